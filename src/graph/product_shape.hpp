// Matmuls and convolutions as the kernels see them: rows, columns and depth.
#pragma once

#include <cstdint>
#include <optional>

#include "rlx/graph.hpp"

namespace rlx {

struct ProductShape {
  std::int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  std::int64_t a_rows = 1, a_depth = 1;  ///< elements of A, which convolutions read many times
  std::int64_t run = 1;                  ///< extent of the innermost k
  bool run_in_a = true;                  ///< it lies side by side in A
};

/// Of a static matmul or channels-last convolution that becomes a contraction; nothing for any
/// other node.
std::optional<ProductShape> product_shape(const Graph& graph, const Node& node);

}  // namespace rlx
