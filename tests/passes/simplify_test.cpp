// Algebraic identities: what is replaced, what is left, and that values stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/op_info.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

/// pow(x, exponent) simplified, checked on numbers of both signs; true where no power is left.
bool replaces_power(double exponent) {
  Graph graph;
  const Value x = graph.input("x", f32, {5});
  graph.output("y", pow(x, graph.constant(f32, exponent)));
  const Graph simple = passes::simplify(graph).value();
  const std::vector<Tensor> inputs{
      Tensor::of<float>({5}, std::vector<float>{-1.5f, -0.0f, 0.25f, 3, 1e20f})};
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  const std::vector<Tensor> made = evaluate_graph(simple, inputs).value();
  for (std::size_t i = 0; i < 5; ++i) {
    const float a = made[0].as<float>()[i], b = wanted[0].as<float>()[i];
    EXPECT_TRUE(a == b || std::abs(a - b) <= 2e-7f * std::abs(b) || (a != a && b != b)) << i;
  }
  return std::none_of(simple.nodes().begin(), simple.nodes().end(),
                      [](const Node& node) { return node.op.is<op::Pow>(); });
}

TEST(Simplify, small_whole_powers_are_products) {
  EXPECT_TRUE(replaces_power(2));
  EXPECT_TRUE(replaces_power(3));
  EXPECT_FALSE(replaces_power(0.5));
  EXPECT_FALSE(replaces_power(4));
}

TEST(Simplify, a_power_that_broadcasts_stays) {
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  const Value exponents = graph.constant(Tensor::of<float>({1, 1}, std::vector<float>{2}));
  graph.output("y", pow(x, exponents));
  const Graph simple = passes::simplify(graph).value();
  EXPECT_EQ(simple.type(simple.outputs()[0].value).dims(), (Dims{1, 3}));
}

}  // namespace
}  // namespace rlx
