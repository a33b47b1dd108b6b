// Batches that an operand repeats become two axes, along one of which it is broadcast.
#include "passes/split_batches.hpp"

#include <gtest/gtest.h>

#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::weight;

constexpr std::int64_t groups = 2, each = 3;

/// [1, groups, n, d] as [1, groups * each, n, d], each head repeated, or all `together`.
Value repeated(Value x, bool together = false) {
  Shape shape = x.shape();
  const int along = together ? 1 : 2;
  shape.insert(shape.begin() + along, Dim(1));
  const Value apart = reshape(x, shape);
  shape[static_cast<std::size_t>(along)] = Dim(each);
  const Value all = broadcast(apart, shape);
  shape.erase(shape.begin() + 1, shape.begin() + 3);
  shape.insert(shape.begin() + 1, Dim(groups * each));
  return reshape(all, shape);
}

/// How many repetitions are stored: reshapes of broadcasts that the outputs are made of.
int copies(const Graph& graph) {
  const Graph live = passes::drop_dead(graph).value();
  return static_cast<int>(std::ranges::count_if(live.nodes(), [&](const Node& node) {
    return node.op.is<op::Reshape>() && live.node(node.inputs[0]).op.is<op::Broadcast>();
  }));
}

/// Runs the pass; the values must stay. Gives what it made, and the number of questions.
std::pair<Graph, std::size_t> after(const Graph& graph) {
  std::vector<FusionQuestion> asked;
  Graph made = passes::split_batches(graph, IoFusionGate::preset(Device::cpu), &asked).value();
  testing::expect_same_values(graph, made, 1e-5);
  return {std::move(made), asked.size()};
}

TEST(SplitBatches, KeysAndValuesThatHeadsShare) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, groups * each, 5, 8}),
              k = graph.input("k", f32, {1, groups, 7, 8}),
              v = graph.input("v", f32, {1, groups, 7, 4});
  // The scale stands on the keys, the mask has one value for all heads, the slopes one for each.
  const Value keys = transpose(repeated(k), {0, 1, 3, 2}) * graph.constant(f32, 0.5);
  const Value scores =
      matmul(q, keys) + weight(graph, {5, 7}, 1) + weight(graph, {1, groups * each, 1, 7}, 2);
  const Value powers = exp(scores - reduce(scores, Reduction::max, {3}, true));
  const Value shares = powers / reduce(powers, Reduction::sum, {3}, true);
  const Value heads = matmul(shares, repeated(v));
  graph.output("y", reshape(transpose(heads, {0, 2, 1, 3}), {1, 5, groups * each * 4}));
  EXPECT_EQ(copies(graph), 2);
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 2U);
  EXPECT_EQ(copies(made), 0);
  // Nothing between the products takes the heads together again.
  const Graph live = passes::drop_dead(made).value();
  EXPECT_EQ(std::ranges::count_if(live.nodes(),
                                  [](const Node& node) {
                                    return node.op.is<op::DotGeneral>() &&
                                           node.results[0].rank() == 5;
                                  }),
            2);
}

TEST(SplitBatches, OneOperandAndReadersThatWantTheAxisWhole) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, groups * each, 5, 8}),
              k = graph.input("k", f32, {1, groups, 7, 8});
  const Value scores = matmul(q, transpose(repeated(k, true), {0, 1, 3, 2}));
  graph.output("summed", reduce(scores, Reduction::sum, {1}, true));
  graph.output("scores", scores);
  graph.output("slice", slice(relu(scores), {0, 1, 0, 0}, {1, 5, 5, 7}));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 1U);
  EXPECT_EQ(copies(made), 0);
}

TEST(SplitBatches, StaysWhereAnotherReadsItOrTheAxisIsNoBatch) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, groups * each, 5, 8}),
              k = graph.input("k", f32, {1, groups, 7, 8});
  const Value keys = repeated(k);
  graph.output("y", matmul(q, transpose(keys, {0, 1, 3, 2})));
  graph.output("keys", keys);
  graph.output("columns", matmul(weight(graph, {1, 8, 4, groups * each}, 3),
                                 transpose(repeated(transpose(k, {0, 1, 3, 2})), {0, 2, 1, 3})));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 0U);
  EXPECT_EQ(made.nodes().size(), graph.nodes().size());
}

// Each reader is looked at once, however many ways lead to it.
TEST(SplitBatches, ManyWaysToOneProduct) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, groups * each, 5, 8}),
              k = graph.input("k", f32, {1, groups, 8, 7});
  Value keys = repeated(k);
  for (int i = 0; i < 20; ++i) keys = relu(keys) + tanh(keys);
  graph.output("y", matmul(q, keys));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 1U);
  EXPECT_EQ(copies(made), 0);
  for (int i = 0; i < 80; ++i) keys = relu(keys) + tanh(keys);
  graph.output("far", matmul(q, keys));
  EXPECT_EQ(copies(passes::split_batches(graph, IoFusionGate::preset(Device::cpu)).value()), 1);
}

TEST(SplitBatches, TheGateMayRefuse) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, groups * each, 5, 8}),
              k = graph.input("k", f32, {1, groups, 8, 7});
  graph.output("y", matmul(q, repeated(k)));
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  gate.min_gain_ns = 1e9;
  std::vector<FusionQuestion> asked;
  EXPECT_EQ(copies(passes::split_batches(graph, gate, &asked).value()), 1);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_FALSE(asked[0].fused);
  const std::int64_t bytes = groups * 8 * 7 * 4;
  EXPECT_EQ(asked[0].before.device_traffic_bytes - asked[0].after.device_traffic_bytes,
            2 * each * bytes);
  EXPECT_EQ(copies(passes::split_batches(graph, gate, nullptr, {{asked[0].what, true}}).value()),
            0);
}

}  // namespace
}  // namespace rlx
