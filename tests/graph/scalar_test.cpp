// Patterns among the nodes of scalar expressions.
#include "graph/scalar.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "graph/scalar_value.hpp"

namespace rlx {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// e^(x - largest), where `hidden_by` is what the maximum is compared with and `instead` what takes
/// its place then.
bool is_power_of_masked(double hidden_by, double instead) {
  std::vector<ScalarNode> nodes;
  ScalarBuilder builder(nodes);
  const ScalarValue x = builder.add({.op = ScalarOp::load, .dtype = f32});
  const ScalarValue max = builder.reduce(ReduceKind::max, x);
  const ScalarValue hidden = builder.binary(ScalarOp::equal, max, builder.constant(f32, hidden_by));
  const ScalarValue largest = builder.select(hidden, builder.constant(f32, instead), max);
  const ScalarValue power = scalar::exp(x - largest);
  return is_softmax_power(nodes[static_cast<std::size_t>(power.id())], nodes);
}

TEST(SoftmaxPower, is_known_with_and_without_a_mask) {
  std::vector<ScalarNode> nodes;
  ScalarBuilder builder(nodes);
  const ScalarValue x = builder.add({.op = ScalarOp::load, .dtype = f32}),
                    y = builder.add({.op = ScalarOp::load, .dtype = f32, .index = 1});
  const ScalarValue max = builder.reduce(ReduceKind::max, x);
  const auto is_power = [&](ScalarValue power) {
    return is_softmax_power(nodes[static_cast<std::size_t>(power.id())], nodes);
  };
  EXPECT_TRUE(is_power(scalar::exp(x - max)));
  EXPECT_FALSE(is_power(scalar::exp(y - max)));
  EXPECT_FALSE(is_power(scalar::exp(max - x)));
  EXPECT_FALSE(is_power(scalar::exp(x - builder.reduce(ReduceKind::min, x))));
  EXPECT_TRUE(is_power_of_masked(-infinity, 0));
  // e^(x - 5) may be large.
  EXPECT_FALSE(is_power_of_masked(5, 0));
  EXPECT_FALSE(is_power_of_masked(-infinity, -5));
}

}  // namespace
}  // namespace rlx
