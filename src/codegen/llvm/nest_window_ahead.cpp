// Lines that windows ask for before they read or write them.
#include <algorithm>
#include <vector>

#include "codegen/llvm/nest_window.hpp"
#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

constexpr std::int64_t line = 64;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t element_size(const Emitter& emitter, const loop::Access& access) {
  return static_cast<std::int64_t>(size_of(emitter.kernel.buffers[at(access.buffer)].dtype));
}

llvm::Value* bytes_behind(Emitter& emitter, llvm::Value* pointer, std::int64_t bytes) {
  return emitter.builder.CreateConstGEP1_64(emitter.builder.getInt8Ty(), pointer,
                                            static_cast<std::uint64_t>(bytes));
}

/// Elements from a tile to those places that the tile below it is the first to reach.
std::vector<std::int64_t> new_places(const NestPlan& plan, const WindowPlan& window,
                                     const loop::Access& access) {
  const auto stride = [&](int dim) { return access.strides[at(dim)]; };
  const std::int64_t row = stride(window.row_dims.back()), column = stride(window.column_dim);
  if (row <= 0 || column <= 0 || stride(plan.vector_dim) != 1) return {};
  std::int64_t last = 0, tap = row;  // down the taps of a column
  for (const int dim : window.loop_dims) {
    if (stride(dim) <= 0) continue;
    last += stride(dim) * (plan.nest.extents[at(dim)] - 1);
    tap = std::min(tap, stride(dim));
  }
  std::int64_t step = column;
  if (window.tap_dim >= 0 && stride(window.tap_dim) > 0)
    step = std::min(step, stride(window.tap_dim));
  std::vector<std::int64_t> places;
  for (std::int64_t down = std::max(row, last + tap); down <= last + row; down += tap) {
    for (std::int64_t right = 0; right < window.tile * column; right += step)
      places.push_back(down + right);
  }
  return places;
}

}  // namespace

const loop::Access& access_of(const loop::Nest& nest, std::size_t number) {
  if (number < nest.accesses.size()) return nest.accesses[number];
  return nest.stores[number - nest.accesses.size()].access;
}

void ask_for_next_row(Emitter& emitter, const NestPlan& plan, const WindowPlan& window,
                      std::size_t number, llvm::Value* pointer, llvm::Value* channel) {
  constexpr std::int64_t least_bytes = 4 * 1024 * 1024;
  const loop::Access& access = access_of(plan.nest, number);
  const std::int64_t size = element_size(emitter, access);
  if (window.row_dims.empty() ||
      emitter.kernel.buffers[at(access.buffer)].elements * size < least_bytes)
    return;
  const std::vector<std::int64_t> places = new_places(plan, window, access);
  const std::int64_t block = std::int64_t{window.vectors} * plan.lanes;
  const auto ask = [&] {
    for (const std::int64_t place : places) {
      for (std::int64_t bytes = 0; bytes < block * size; bytes += line) {
        emit_prefetch(emitter, bytes_behind(emitter, pointer, place * size + bytes),
                      number >= plan.nest.accesses.size(), 2);
      }
    }
  };
  if (places.empty() || block * size >= line) return ask();
  auto& b = emitter.builder;
  llvm::Value* in_line = b.CreateURem(channel, emitter.i64(line / size));
  emitter.when(b.CreateICmpEQ(in_line, emitter.i64(0)), ask);
}

void ask_for_next_tile(Emitter& emitter, const NestPlan& plan, const WindowPlan& window,
                       std::size_t number, llvm::Value* pointer) {
  constexpr std::int64_t least_bytes = 64 * 1024;
  const loop::Access& access = access_of(plan.nest, number);
  const std::int64_t size = element_size(emitter, access);
  const std::int64_t column = access.strides[at(window.column_dim)] * size;
  if (column % line == 0 || plan.points(0, plan.nest.parallel_dims) * size < least_bytes) return;
  const std::int64_t ahead = window.tile * column + std::int64_t{plan.lanes} * size - 1;
  emit_prefetch(emitter, bytes_behind(emitter, pointer, ahead), true, 3);
}

}  // namespace rlx::codegen
