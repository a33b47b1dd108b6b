// Packed layout of a contraction's B: [batch][panel][k / group][panel_width][group], the last panel
// and the last group of a run filled with zeros. The layout depends on N, K, the element type, the
// target and whether there are many rows of A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "codegen/code.hpp"

namespace rlx::codegen {

/// Columns of a panel (or column block) that cost least for n columns: `lanes` times 1 to
/// `most_vectors`. Narrow blocks read A more often; padding costs as much as columns do.
constexpr std::int64_t choose_panel_width(std::int64_t n, unsigned lanes, unsigned most_vectors) {
  std::int64_t best_width = 0, best_cost = 0;
  for (unsigned vectors = most_vectors; vectors >= 1; --vectors) {
    const std::int64_t width = static_cast<std::int64_t>(lanes) * vectors;
    const std::int64_t cost_percent = vectors == 1 ? 125 : vectors == 2 ? 104 : 100;
    const std::int64_t cost = (n + width - 1) / width * width * cost_percent;
    if (best_width == 0 || cost < best_cost) best_width = width, best_cost = cost;
  }
  return best_width;
}

/// How a packed B of one matrix lies in memory.
struct PackedLayout {
  std::int64_t n = 0;  ///< columns that exist
  std::int64_t k = 0;  ///< product of the k dims
  std::int64_t panel_width = 16;
  DType dtype = DType::f32;
  std::int64_t group = 1;  ///< so many k of a run lie side by side
  std::int64_t inner = 1;  ///< extent of the innermost k dim, where group > 1
  /// Of integers of four bits, k in groups of one: a byte holds those of two neighbouring k, the
  /// first in its low half. `k` is even.
  bool nibbles = false;

  std::int64_t panels() const { return (n + panel_width - 1) / panel_width; }
  /// k with the innermost dim filled up to whole groups.
  std::int64_t filled_k() const {
    return group == 1 || inner == 0 ? k : k / inner * ((inner + group - 1) / group * group);
  }
  /// Elements of one matrix; batches follow each other.
  std::int64_t elements() const { return panels() * filled_k() * panel_width; }
  std::int64_t panel_bytes() const {
    return filled_k() * panel_width * static_cast<std::int64_t>(size_of(dtype)) / (nibbles ? 2 : 1);
  }
  bool operator==(const PackedLayout&) const = default;
};

/// Two panels of so many bytes stay in a large L2; others hold half of it.
inline constexpr std::int64_t most_bytes_of_walked_panel = 640 * 1024;

/// The layout of a B of k x n elements for that many rows of A, known or 1; only panel_width was
/// chosen. Rows of more than one block walk over a panel again and again: where cores have been
/// measured (those with a large L2), deep ones are narrow, so that L2 holds two of them; or one, of
/// an A that comes from memory for every panel.
/// Groups of k are the caller's to choose.
PackedLayout choose_packed_layout(std::int64_t n, std::int64_t k, DType dtype, const Target& target,
                                  std::int64_t rows = 1);

/// Bytes of `batches` packed matrices.
std::size_t packed_bytes(const PackedLayout& layout, std::int64_t batches);

/// Where B lies before packing: element (batch, k..., n) at `offset` + the strides, in elements.
struct PackSource {
  const void* data = nullptr;
  /// Of the elements, where packing converts them: f32 rounded to f16 or bf16, these widened
  /// to f32, bytes to i16.
  std::optional<DType> from;
  std::int64_t offset = 0;
  std::int64_t batches = 1, batch_stride = 0;
  std::vector<std::int64_t> k_extents, k_strides;  ///< outer to inner, any order in memory
  std::int64_t n_stride = 1;
};

/// Looks at bytes that were packed, whole elements that lie in the cache by then.
using Written = std::function<void(std::span<const std::byte>)>;

/// Writes packed_bytes(layout, source.batches) bytes, and shows them piece by piece to `written`.
/// The product of k_extents must be layout.k.
void pack(const PackSource& source, const PackedLayout& layout, void* destination,
          const Written& written = {});

}  // namespace rlx::codegen
