// What the reference evaluations of the larger ops share: whole operands as plain vectors, permuted
// copies, and checks that several infer rules make.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/op_info.hpp"

namespace rlx {

/// All elements as T: float, double, std::int64_t (u64 as its bits) or std::complex<double>. Empty
/// for a left-out operand.
template <class T>
std::vector<T> load_all(const TensorView& view);

/// Stores all elements, floats rounded to nearest even, integers wrapped to the dtype's width.
template <class T>
void store_all(const MutableTensorView& view, std::span<const T> values);

/// Row-major strides, in elements.
Dims strides_of(std::span<const std::int64_t> dims);

/// Product of dims[begin, end).
std::int64_t product(std::span<const std::int64_t> dims, std::size_t begin, std::size_t end);

/// Calls `visit(index)` for every index of the dims in row-major order.
template <class Visit>
void for_each_index(std::span<const std::int64_t> dims, Visit visit) {
  Dims index(dims.size(), 0);
  for (std::int64_t count = element_count(dims); count > 0; --count) {
    visit(static_cast<const Dims&>(index));
    for (std::size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
}

/// The offset of an index under strides.
inline std::int64_t offset_of(std::span<const std::int64_t> index,
                              std::span<const std::int64_t> strides) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

/// The elements with axis i of the result being axis perm[i] of the operand.
template <class T>
std::vector<T> permuted(std::span<const T> values, std::span<const std::int64_t> dims,
                        const Axes& perm) {
  Dims result_dims, result_strides;
  const Dims strides = strides_of(dims);
  for (const std::int64_t axis : perm) {
    result_dims.push_back(dims[axis]);
    result_strides.push_back(strides[axis]);
  }
  std::vector<T> result;
  result.reserve(values.size());
  for_each_index(result_dims, [&](const Dims& index) {
    result.push_back(values[offset_of(index, result_strides)]);
  });
  return result;
}

/// The strides with which an operand is read at the indices of a result that it broadcasts to.
Dims broadcast_strides(std::span<const std::int64_t> operand, std::span<const std::int64_t> result);

/// Bytes of inputs and results, each once. Left-out inputs are null.
double bytes_of(std::span<const Type* const> inputs, std::span<const Type> results);

/// dim + amount, where the amount may be negative.
Dim shifted(const Dim& dim, std::int64_t amount);

/// Equal dtypes, or "The op X wants equal dtypes and was given A and B."
Status require_same_dtype(std::string_view op, const Type& a, const Type& b);

/// The sum of so many products of two 8-bit integers, zero points taken off, as i32: computed by
/// the float products that kernels have, in the narrowest dtype that holds every such sum exactly.
struct ExactProducts {
  DType dtype = f64;
  bool wraps = true;  ///< the sum may leave i32

  explicit ExactProducts(const Dim& products) {
    constexpr std::int64_t largest = 255 * 255;
    if (!products.is_static()) return;
    dtype = products.value() <= (1 << 24) / largest ? f32 : f64;
    wraps = products.value() > (std::int64_t{1} << 31) / largest - 1;
  }
  Value rounded(const Value& sum) const { return cast(wraps ? cast(sum, i64) : sum, i32); }
};

/// Real floats computed in f32 and up: f32 for the narrow ones.
inline DType wide_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

}  // namespace rlx
