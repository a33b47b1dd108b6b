// Windows that walk down the rows of an image with some of its channels, so that L1 keeps what they
// read.
#include <algorithm>
#include <numeric>

#include "codegen/llvm/nest_plan.hpp"

namespace rlx::codegen {
namespace {

/// What the windows of a row read of each channel.
struct RowOfWindows {
  std::int64_t places = 0, weights = 0;  ///< of the image, and beside it
  std::int64_t size = 0;                 ///< bytes of an element of the image
  std::int64_t pixel = 0;                ///< bytes from one place to the next
  std::int64_t image = 0;                ///< bytes of all images
};

RowOfWindows row_of(const NestPlan& plan, std::span<const loop::Buffer> buffers, int column_dim) {
  const auto extent = [&](int dim) { return plan.nest.extents[static_cast<std::size_t>(dim)]; };
  const int tap_dim = plan.rank() - 1;
  RowOfWindows row;
  for (const loop::Access& access : plan.nest.accesses) {
    const auto stride = [&](int dim) {
      return std::abs(access.strides[static_cast<std::size_t>(dim)]);
    };
    if (stride(tap_dim) == 0 || stride(plan.vector_dim) != 1) continue;
    std::int64_t rows = 1;
    for (int dim = plan.nest.parallel_dims; dim < tap_dim; ++dim)
      rows *= stride(dim) != 0 ? extent(dim) : 1;
    if (stride(column_dim) == 0) {
      row.weights += rows * extent(tap_dim);
      continue;
    }
    const loop::Buffer& buffer = buffers[static_cast<std::size_t>(access.buffer)];
    const std::int64_t step = std::max<std::int64_t>(stride(column_dim) / stride(tap_dim), 1);
    row.places = std::max(row.places, rows * extent(column_dim) * step);
    row.size = static_cast<std::int64_t>(size_of(buffer.dtype));
    row.pixel = stride(tap_dim) * row.size;
    row.image = std::max(row.image, buffer.elements * row.size);
  }
  return row;
}

}  // namespace

int column_dim_of(const NestPlan& plan) {
  int best = -1;
  const std::vector<std::int64_t>& strides = plan.nest.stores.front().access.strides;
  const auto stride = [&](int dim) { return std::abs(strides[static_cast<std::size_t>(dim)]); };
  for (int dim = 0; dim < plan.nest.parallel_dims; ++dim) {
    if (dim != plan.vector_dim && (best < 0 || stride(dim) <= stride(best))) best = dim;
  }
  return best;
}

WindowBands bands_of_window(const NestPlan& plan, std::span<const loop::Buffer> buffers,
                            const Machine& machine) {
  constexpr std::int64_t l1_bytes = 40 << 10;     // what L1 holds of what is read again
  constexpr std::int64_t piece_bytes = 24 << 10;  // what a piece of the channels takes of that
  constexpr std::int64_t l2_bytes = 768 << 10;    // of larger images lines come as they lie
  // Worth their loops; 28 x 28 pixels of 192 channels under 5 x 5 taps took 74 us without, 43 with
  // bands of 32 on a core with an L1 of 48 KB.
  const std::int64_t least_channels = machine.large_l2 ? 32 : 48;
  const std::int64_t sets_bytes = machine.large_l2 ? 48 << 10 : l1_bytes;
  constexpr std::int64_t page = 4096;  // from a line of a set of L1 to its next one
  const auto extent = [&](int dim) { return plan.nest.extents[static_cast<std::size_t>(dim)]; };
  const int column_dim = column_dim_of(plan);
  int row_dim = -1;
  std::int64_t images = 1;
  for (int dim = 0; dim < plan.nest.parallel_dims; ++dim) {
    if (dim == column_dim || dim == plan.vector_dim) continue;
    images *= row_dim < 0 ? 1 : extent(row_dim);
    row_dim = dim;
  }
  if (row_dim < 0 || extent(row_dim) < 4 || plan.levels != 1) return {};
  const RowOfWindows row = row_of(plan, buffers, column_dim);
  const std::int64_t lines = row.places + row.weights, bytes = lines * row.size;
  if (row.places == 0 || images == 0 || row.image / images > l2_bytes) return {};
  if (bytes * extent(plan.vector_dim) <= l1_bytes) return {};
  if (bytes * least_channels > piece_bytes) return {};
  // Lines that lie so far apart fall into so few sets that they push each other out.
  if (lines * std::gcd(row.pixel, page) > sets_bytes) return {};
  // Products of such images by square matrices share out their columns, two panels of which fill
  // these channels: workers go on with their own. Those of larger images share out the rows.
  constexpr std::int64_t two_panels = 64;
  const std::int64_t channels = extent(plan.vector_dim);
  const std::int64_t points = extent(row_dim) * extent(column_dim);
  const bool by_channels = channels > points * most_columns_for_a_row(machine.large_l2) &&
                           channels % two_panels == 0 && images == 1;
  return {.channels = piece_bytes / bytes, .count = by_channels ? 1 : 2};
}

}  // namespace rlx::codegen
