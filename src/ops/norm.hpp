// What softmax and the norms share: rows of an operand for their evaluations, and widening for
// their bodies.
#pragma once

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"

namespace rlx {

/// An operand seen as [outer, size, inner] around the axes [first, last).
struct RowShape {
  std::int64_t outer = 1, size = 1, inner = 1;
};

inline RowShape row_shape(std::span<const std::int64_t> dims, std::size_t first, std::size_t last) {
  return {product(dims, 0, first), product(dims, first, last), product(dims, last, dims.size())};
}

inline std::size_t axis_at(std::int64_t axis, int rank) {
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

/// Calls visit(row) with each row gathered into a vector and stores the row back.
template <class Visit>
void map_rows(const RowShape& shape, std::vector<double>& values, Visit visit) {
  std::vector<double> row(shape.size);
  for (std::int64_t o = 0; o < shape.outer; ++o) {
    for (std::int64_t i = 0; i < shape.inner; ++i) {
      double* first = values.data() + o * shape.size * shape.inner + i;
      for (std::int64_t k = 0; k < shape.size; ++k) row[k] = first[k * shape.inner];
      visit(row);
      for (std::int64_t k = 0; k < shape.size; ++k) first[k * shape.inner] = row[k];
    }
  }
}

/// Subtracts the mean and divides by the deviation: (x - mean) / sqrt(mean((x - mean)^2) +
/// epsilon).
void standardize(std::vector<double>& row, double epsilon);

/// x * scale + bias, either left out, broadcast to the dims of x.
void scale_and_shift(std::vector<double>& values, std::span<const std::int64_t> dims,
                     const TensorView* scale, std::span<const std::int64_t> scale_dims,
                     const TensorView* bias);

/// Narrow floats cast to f32, others as they are.
inline Value widened(Value x) { return cast(x, wide_dtype(x.dtype())); }
/// A [C] operand reshaped to [C, 1, ...] with `ones` ones.
Value per_channel(Value x, int ones);

/// Cost of an op that does so many FLOPs for each element of its result.
inline OpCost cost_per_element(double flops, std::span<const Type* const> inputs,
                               std::span<const Type> results) {
  return {flops * static_cast<double>(results[0].elements()), bytes_of(inputs, results)};
}

}  // namespace rlx
