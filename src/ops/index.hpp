// What gathers and scatters share: reading indices and checking them.
#pragma once

#include "base/error.hpp"
#include "graph/elementwise_eval.hpp"
#include "rlx/graph.hpp"

namespace rlx {

inline std::int64_t read_index(const TensorView& indices, std::int64_t at) {
  if (indices.dtype == i64) return indices.as<std::int64_t>()[at];
  if (indices.dtype == i32) return indices.as<std::int32_t>()[at];
  return load_datum(indices.dtype, indices.data, at).integer;
}

/// The index in [0, size), counted from the end where negative; -1 where it lies outside.
inline std::int64_t index_inside(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  return index < 0 || index >= size ? -1 : index;
}

inline Error index_outside(std::int64_t index, std::int64_t axis, const TensorView& x) {
  return bad_input("Index ({}) is outside axis ({}) of {}.", index, axis,
                   Type{x.dtype, to_shape(x.dims)}.text());
}

/// Elements of `inner` dims that each entry of an ND index names: offsets of the blocks in x, in
/// elements. `indices` is [batch..., count..., k]; the first `batch_dims` axes of x and indices go
/// together.
Result<std::vector<std::int64_t>> block_offsets(const TensorView& x, const TensorView& indices,
                                                std::int64_t batch_dims);

/// Offsets in x, in elements, of the elements that `indices` (of x's rank) names along `axis`.
Result<std::vector<std::int64_t>> element_offsets(const TensorView& x, const TensorView& indices,
                                                  std::int64_t axis);

/// Checks x against indices of the same rank that stay inside x along every other axis.
Status require_element_indices(std::string_view op, const Type& x, const Type& indices,
                               std::int64_t axis);

/// The number of axes that an ND index of [..., k] names, checked against the rank of x.
Result<std::int64_t> index_depth(std::string_view op, const Type& x, const Type& indices,
                                 std::int64_t batch_dims);

}  // namespace rlx
