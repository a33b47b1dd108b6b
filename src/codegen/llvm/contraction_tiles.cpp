// The register block of machines with registers of two dims (AMX): tiles of sums, of A and of
// columns. An instruction multiplies up to 16 rows and 16 columns over up to 16 steps of k, which
// lie in memory as the other register block wants them.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>

#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

/// Bytes of a step of k in A, and of a column in a step; bytes of a sum.
constexpr std::int64_t step_bytes = 4, sum_bytes = 4;

/// The eight registers: sums by row tile and column of a pass, then two of A and two of columns.
constexpr unsigned first_a = 4, first_columns = 6;
unsigned tile_of_sums(const TileCut& cut, std::int64_t row, std::int64_t column) {
  return static_cast<unsigned>(row * cut.together + column);
}
unsigned tile_of_a(std::int64_t row) { return first_a + static_cast<unsigned>(row); }
unsigned tile_of_columns(std::int64_t column) {
  return first_columns + static_cast<unsigned>(column % 2);
}

class TileBlock {
 public:
  TileBlock(const ContractionContext& context, PartFunction& part, std::int64_t rows, bool asks)
      : context_(context),
        plan_(context.plan),
        part_(part),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        cut_(rows),
        asks_(asks) {}

  void emit() {
    row_bytes_ = plan_.m.empty() ? 0 : plan_.m[0].a * bytes_of(context_.a_dtype());
    a_ = bytes_at(part_.argument(0),
                  builder_.CreateMul(part_.argument(3), emitter_.i64(row_bytes_)));
    constexpr std::int64_t line = 64;
    const std::int64_t passes = (plan_.vectors + cut_.together - 1) / cut_.together;
    asked_bytes_ =
        asks_ ? (plan_.tile_steps * plan_.asked_bytes / passes + line - 1) / line * line : 0;
    if (asks_) ahead_ = part_.argument(7);  // one run of k then
    for (std::int64_t first = 0; first < plan_.vectors; first += cut_.together)
      emit_pass(first, std::min<std::int64_t>(cut_.together, plan_.vectors - first));
    builder_.CreateRetVoid();
  }

 private:
  static std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }
  Value* bytes_at(Value* pointer, Value* offset) {
    return builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
  }
  Value* bytes_at(Value* pointer, std::int64_t offset) {
    return offset == 0 ? pointer : bytes_at(pointer, builder_.getInt64(offset));
  }
  Value* number(unsigned tile) { return builder_.getInt8(static_cast<std::uint8_t>(tile)); }

  /// All of k for `count` tiles of columns from `first` on.
  void emit_pass(std::int64_t first, std::int64_t count) {
    for (std::int64_t r = 0; r < cut_.row_tiles; ++r)
      for (std::int64_t c = 0; c < count; ++c)
        builder_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {},
                                 {number(tile_of_sums(cut_, r, c))});
    Value* columns = bytes_at(part_.argument(1), first * tile_columns * step_bytes);
    emit_taps(columns, count);
    for (std::int64_t r = 0; r < cut_.row_tiles; ++r) {
      for (std::int64_t c = 0; c < count; ++c) {
        const std::int64_t at =
            r * cut_.first_rows * plan_.block_columns + (first + c) * tile_columns;
        builder_.CreateIntrinsic(
            llvm::Intrinsic::x86_tilestored64, {},
            {number(tile_of_sums(cut_, r, c)), bytes_at(part_.argument(4), at * sum_bytes),
             builder_.getInt64(plan_.block_columns * sum_bytes)});
      }
    }
  }

  /// All k dims but the last are taps, walked by one loop.
  void emit_taps(Value* columns, std::int64_t count) {
    Integers extents, a_steps, column_steps;
    std::int64_t taps = 1;
    const std::vector<AddressDim>& k = plan_.k_open;
    for (std::size_t i = 0; i + 1 < k.size(); ++i) {
      extents.push_back(k[i].extent);
      taps *= k[i].extent;
      a_steps.push_back(k[i].a * bytes_of(context_.a_dtype()));
      column_steps.push_back(k[i].column * step_bytes);
    }
    if (taps == 1) return emit_run(a_, columns, count);
    emitter_.loop(emitter_.i64(0), emitter_.i64(taps), 1, [&](Value* tap) {
      const Values at = emit_linear_sums(emitter_, tap, extents, {a_steps, column_steps}, {0, 0});
      emit_run(bytes_at(a_, at[0]), bytes_at(columns, at[1]), count);
    });
  }

  void emit_run(Value* a, Value* columns, std::int64_t count) {
    const AddressDim& run = plan_.k_open.back();
    const std::int64_t tiles = run.extent / (plan_.unit * plan_.tile_steps);
    const std::int64_t row = run.column * step_bytes;
    Values carried{a, columns};
    if (ahead_) carried.push_back(ahead_);
    Value* made = emitter_.i64(tiles);
    if (plan_.ends_early) made = part_.rounds_that_count(plan_.unit * plan_.tile_steps, tiles);
    carried = emitter_.loop(emitter_.i64(0), made, 1, carried, [&](Value*, Values at) {
      emit_products(at[0], at[1], row, count);
      at[0] = bytes_at(at[0], plan_.tile_steps * step_bytes);
      at[1] = bytes_at(at[1], plan_.tile_steps * row);
      if (ahead_) at[2] = emit_asking(emitter_, at[2], asked_bytes_);
      return at;
    });
    if (ahead_) ahead_ = carried[2];
  }

  /// Of a tile of k, whose rows of columns lie so many bytes apart.
  void emit_products(Value* a, Value* columns, std::int64_t column_row, std::int64_t count) {
    for (std::int64_t r = 0; r < cut_.row_tiles; ++r)
      load(tile_of_a(r), bytes_at(a, r * cut_.first_rows * row_bytes_), row_bytes_);
    for (std::int64_t c = 0; c < count; ++c) {
      load(tile_of_columns(c), bytes_at(columns, c * tile_columns * step_bytes), column_row);
      for (std::int64_t r = 0; r < cut_.row_tiles; ++r)
        builder_.CreateIntrinsic(
            plan_.products == Products::byte_quads ? llvm::Intrinsic::x86_tdpbusd
                                                   : llvm::Intrinsic::x86_tdpbf16ps,
            {},
            {number(tile_of_sums(cut_, r, c)), number(tile_of_a(r)), number(tile_of_columns(c))});
    }
  }

  void load(unsigned tile, Value* at, std::int64_t stride) {
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {},
                             {number(tile), at, emitter_.i64(stride)});
  }

  const ContractionContext& context_;
  const ContractionPlan& plan_;
  PartFunction& part_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  TileCut cut_;
  bool asks_;
  std::int64_t asked_bytes_ = 0;  ///< of the panel behind this one, beside each tile of k
  Value* ahead_ = nullptr;        ///< where they begin; null: nobody asks
  Value* a_ = nullptr;            ///< of the block's first row
  std::int64_t row_bytes_ = 0;    ///< from row to row of A
};

}  // namespace

void emit_tile_block(const ContractionContext& context, PartFunction& part, std::int64_t rows,
                     bool asks) {
  TileBlock(context, part, rows, asks).emit();
}

void emit_tile_config(const ContractionContext& context, std::int64_t rows) {
  // Palette 1: bytes of a row of each tile from byte 16 on, their rows from byte 48 on.
  constexpr std::size_t row_bytes_at = 16, rows_at = 48, bytes = 64;
  constexpr std::int64_t full_row = 64;
  const TileCut cut(rows);
  const std::int64_t steps = context.plan.tile_steps;
  std::array<std::uint8_t, bytes> config{1};
  const auto set = [&](unsigned tile, std::int64_t tile_height, std::int64_t row_bytes) {
    config[row_bytes_at + std::size_t{2} * tile] = static_cast<std::uint8_t>(row_bytes);
    config[rows_at + tile] = static_cast<std::uint8_t>(tile_height);
  };
  for (std::int64_t r = 0; r < cut.row_tiles; ++r) {
    const std::int64_t height = r == 0 ? cut.first_rows : cut.last_rows;
    set(tile_of_a(r), height, steps * step_bytes);
    for (std::int64_t c = 0; c < cut.together; ++c) set(tile_of_sums(cut, r, c), height, full_row);
  }
  for (std::int64_t c = 0; c < 2; ++c) set(tile_of_columns(c), steps, full_row);
  Emitter& emitter = context.emitter;
  llvm::IRBuilder<>& builder = emitter.builder;
  auto* value = llvm::ConstantDataVector::get(builder.getContext(), config);
  llvm::BasicBlock& entry = emitter.function->getEntryBlock();
  llvm::IRBuilder<> first(&entry, entry.begin());
  llvm::AllocaInst* slot = first.CreateAlloca(value->getType());
  slot->setAlignment(llvm::Align(64));
  builder.CreateAlignedStore(value, slot, llvm::Align(64));
  builder.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {slot});
}

void emit_tile_release(Emitter& emitter) {
  emitter.builder.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
}

}  // namespace rlx::codegen
