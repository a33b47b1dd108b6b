// Sizes and FLOPs of nodes, for profiles and cost models.
#pragma once

#include "graph/op_info.hpp"
#include "rlx/cost.hpp"

namespace rlx::cost {

/// Bytes of a value; a dim that is not bound counts as 1. Saturates.
std::int64_t bytes_of(const Type& type);

/// Costs nothing in the static profile: the op's trait, and slices with steps of 1 (narrow).
bool is_metadata(const Op& op);

/// Only changes how elements are addressed.
bool is_view(const Op& op);

/// Whether the op is of one of these kinds, which stop a device; of custom ops, unless the
/// definition says that it does not.
bool is_sync_point(const Op& op, std::span<const std::string_view> kinds);

/// Bytes of the distinct operands and of the results. Saturates.
std::int64_t operand_bytes(const Graph& graph, const Node& node);
std::int64_t result_bytes(const Node& node);

/// m, k, n of the matmul that an op is: dot_general with its batches in m, a convolution with its
/// pixels in m, attention with a row of scores. Nothing for other ops.
struct MatmulShape {
  std::int64_t m = 1, k = 1, n = 1;
};
std::optional<MatmulShape> matmul_shape(const Graph& graph, const Node& node);

}  // namespace rlx::cost
