// Helpers of the op tests: patterned operands that the Python generator makes alike, evaluation,
// comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "graph/op_info.hpp"
#include "ops/reference.hpp"
#include "rlx/ops.hpp"

namespace rlx::testing {

/// Element i is ((37 i + 11 seed) mod 23 - 11) / 8: exact in every float type. Integers: ((37 i +
/// 11 seed) mod 23 - 11) + offset.
inline Tensor pattern(Dims dims, int seed, DType dtype = f32, std::int64_t offset = 0) {
  Tensor tensor(dtype, dims);
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t whole = (37 * i + 11 * seed) % 23 - 11;
    values.push_back(is_integer(dtype) ? static_cast<double>(whole + offset)
                                       : static_cast<double>(whole) / 8);
  }
  const MutableTensorView view{dtype, tensor.dims(), tensor.mutable_data()};
  store_all<double>(view, values);
  return tensor;
}

/// The results of an op; a test failure and no results where it refuses.
inline std::vector<Tensor> results_of(const Op& op, std::vector<Tensor> inputs) {
  auto results = evaluate(op, inputs);
  if (results.ok()) return *std::move(results);
  ADD_FAILURE() << op.name() << ": " << results.error().message;
  return std::vector<Tensor>(4, Tensor(f32, {0}));
}

/// The sentence with which an op refuses its inputs, or "" where it takes them.
inline std::string refusal_of(const Op& op, std::vector<Tensor> inputs) {
  auto results = evaluate(op, inputs);
  return results.ok() ? "" : results.error().message;
}

/// Dims and values of a result; complex ones as pairs along one more axis in memory.
struct Answer {
  Dims dims;
  std::vector<double> values;
};

inline void expect_values(const Tensor& actual, const Dims& dims,
                          const std::vector<double>& expected, double tolerance = 1e-5) {
  ASSERT_EQ(actual.dims(), dims);
  const std::vector<double> values = load_all<double>(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << "at " << i;
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(values[i], expected[i]) << "at " << i;
    } else {
      EXPECT_NEAR(values[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "at " << i;
    }
  }
}

inline void expect_answer(const Tensor& actual, const Answer& answer, double tolerance = 1e-5) {
  expect_values(actual, answer.dims, answer.values, tolerance);
}

}  // namespace rlx::testing
