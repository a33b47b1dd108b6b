// Layers that were unrolled over slices of one value, as one product.
#include <gtest/gtest.h>

#include "passes/merge_products.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::weight;

/// Runs the pass; the values must stay. Gives the products that are left.
int products_after(const Graph& graph) {
  std::vector<FusionQuestion> asked;
  const Graph made =
      passes::stack_products(graph, IoFusionGate::preset(Device::cpu), &asked).value();
  testing::expect_same_values(graph, made, 1e-5);
  const auto count = std::count_if(made.nodes().begin(), made.nodes().end(),
                                   [](const Node& node) { return node.op.is<op::DotGeneral>(); });
  EXPECT_EQ(asked.empty(), made.nodes().size() == graph.nodes().size());
  return static_cast<int>(count);
}

/// relu(x[:, start + i * step, :] W + b), each [1, 3, 4].
Values layers(Graph& graph, Value x, std::initializer_list<std::int64_t> places) {
  const Value w = weight(graph, {5, 4}, 1), b = weight(graph, {4}, 2);
  Values parts;
  for (const std::int64_t place : places) {
    const Value at = reshape(slice(x, {0, place, 0}, {3, place + 1, 5}), {3, 5});
    parts.push_back(reshape(relu(matmul(at, w) + b), {1, 3, 4}));
  }
  return parts;
}

TEST(StackProducts, LayersOverTime) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 6, 5});
  graph.output("y", concat(layers(graph, x, {0, 1, 2, 3, 4, 5}), 0));
  EXPECT_EQ(products_after(graph), 1);
}

TEST(StackProducts, EverySecondStepAndFirstAxis) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 6, 5});
  graph.output("y", concat(layers(graph, x, {1, 3, 5}), 0));
  graph.output("z", exp(concat(layers(graph, x, {0, 1}), 0)));
  EXPECT_EQ(products_after(graph), 2);
}

TEST(StackProducts, OtherOrdersReadersAndWeightsStay) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 6, 5});
  graph.output("y", concat(layers(graph, x, {0, 2, 1}), 0));
  const Values read = layers(graph, x, {0, 1});
  graph.output("z", concat(read, 0));
  graph.output("first", read[0]);
  const Value at0 = reshape(slice(x, {0, 0, 0}, {3, 1, 5}), {3, 5}),
              at1 = reshape(slice(x, {0, 1, 0}, {3, 2, 5}), {3, 5});
  graph.output(
      "w",
      concat({matmul(at0, weight(graph, {5, 4}, 3)), matmul(at1, weight(graph, {5, 4}, 4))}, 0));
  EXPECT_EQ(products_after(graph), 7);
}

// Along the second axis parts do not lie behind each other.
TEST(StackProducts, ConcatenationsWithinRowsStay) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 6, 5});
  Values parts = layers(graph, x, {0, 1});
  for (Value& part : parts) part = reshape(part, {3, 4});
  graph.output("y", concat(parts, 1));
  EXPECT_EQ(products_after(graph), 2);
}

TEST(StackProducts, TheGateMayRefuse) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 6, 5});
  graph.output("y", concat(layers(graph, x, {0, 1, 2}), 0));
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  gate.min_gain_ns = 1e9;
  std::vector<FusionQuestion> asked;
  const Graph same = passes::stack_products(graph, gate, &asked).value();
  EXPECT_EQ(same.nodes().size(), graph.nodes().size());
  ASSERT_EQ(asked.size(), 1);
  EXPECT_FALSE(asked[0].fused);
  EXPECT_EQ(asked[0].before.kernel_launches, 3);
  EXPECT_EQ(asked[0].after.kernel_launches, 1);
}

}  // namespace
}  // namespace rlx
