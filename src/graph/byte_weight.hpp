// Weights of products that kernels read as the small integers that they are stored as.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

/// The B of a matmul as scale * (numbers - zero), each a matrix of its own that depends on weights
/// alone. Steps are in elements of the value they belong to.
struct ByteWeight {
  ValueId numbers;  ///< i8, u8, i4 or u4 in a byte each, dense, with the axes of B's dequantize
  ValueId scale;    ///< f32
  ValueId zero;     ///< of the type of the numbers, as the scale lies; node -1: zeros
  std::int64_t blocks = 1;                       ///< equally many k have one scale for each column
  std::int64_t block_step = 0, column_step = 0;  ///< of the scale
};

/// Of a static f32 matmul by one matrix (no batch, one contracted axis) that is made by dequantize
/// and transposes alone, with scales for all of it, for each column, or for blocks of k that fill
/// it; nothing for any other node. `weight_only`: by node of the graph.
std::optional<ByteWeight> byte_weight(const Graph& graph, const Node& product,
                                      const std::vector<bool>& weight_only);

/// Do only such products read what the dequantize makes? `few_rows`: and wait for it
/// (narrow_products.hpp).
bool is_read_as_bytes(const Graph& graph, const Node& dequantize, bool few_rows);

}  // namespace rlx
