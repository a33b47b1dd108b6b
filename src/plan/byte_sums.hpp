// Sums of bytes in i32, from the bytes themselves: products of quantised numbers want one for each
// column of a weight.
#pragma once

#include <optional>

#include "rlx/graph.hpp"
#include "rlx/tensor.hpp"

namespace rlx::plan {

/// sum(cast(bytes, i32), axes) over neighbouring axes: bytes as [outer, count, inner], added over
/// the middle.
struct ByteSum {
  ValueId wide;   ///< the cast, which nothing has to compute
  ValueId bytes;  ///< i8 or u8
  std::int64_t outer = 1, count = 1, inner = 1;
};

/// The value as such a sum of at least one element; nothing where it is anything else.
std::optional<ByteSum> byte_sum(const Graph& graph, ValueId id);

/// Writes outer * inner sums: what the reference gives for the reduction of the cast.
void sum_bytes(const ByteSum& sum, const Tensor& bytes, std::int32_t* results);

}  // namespace rlx::plan
