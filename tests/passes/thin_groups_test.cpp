// Thin groups of convolutions share wider ones.
#include "passes/thin_groups.hpp"

#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::noise;

Graph grouped(std::int64_t groups, std::int64_t in, std::int64_t out, bool constant = true) {
  Graph graph;
  const op::Conv conv{.strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {0, 1}, .groups = groups};
  const Value x = graph.input("x", f32, {2, groups * in, 7, 6});
  const Shape shape{groups * out, in, 3, 2};
  const Value w = constant ? graph.constant(noise(shape, 3)) : graph.input("w", f32, shape);
  graph.output("y", graph.add_one(conv, {x, w}));
  return graph;
}

std::int64_t groups_of(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (const auto* conv = node.op.as<op::Conv>()) return conv->groups;
  return 0;
}

/// Groups after the pass, whose values are checked to be the same to the last bit.
std::int64_t groups_after(const Graph& graph, std::int64_t lanes) {
  const Graph made = passes::thin_groups(graph, lanes).value();
  testing::expect_same_values(graph, made, 0);
  return groups_of(made);
}

TEST(ThinGroups, FillARegister) {
  EXPECT_EQ(groups_after(grouped(32, 4, 4), 16), 8);
  EXPECT_EQ(groups_after(grouped(32, 4, 4), 8), 16);
  EXPECT_EQ(groups_after(grouped(6, 8, 8), 16), 3);
  EXPECT_EQ(groups_after(grouped(3, 5, 2), 16), 1);
  EXPECT_EQ(groups_after(grouped(5, 4, 4), 16), 5);  // 5 has no divisor up to 4
  EXPECT_EQ(groups_after(grouped(8, 1, 2), 16), 1);
  EXPECT_EQ(groups_after(grouped(16, 1, 8), 16), 8);
  EXPECT_EQ(groups_after(grouped(16, 1, 3), 8), 8);
}

TEST(ThinGroups, OfOneChannelAreDepthwiseForEachOfTheirResults) {
  for (const std::int64_t results : {2, 3, 4}) {
    const Graph graph = grouped(16, 1, results);
    const Graph made = passes::thin_groups(graph, 16).value();
    testing::expect_same_values(graph, made, 0);
    EXPECT_EQ(groups_of(made), 16);
    EXPECT_EQ(testing::count<op::Conv>(made), results);
  }
  EXPECT_EQ(groups_after(grouped(16, 1, 4), 8), 8) << "half a register of eight";
  EXPECT_EQ(groups_after(grouped(12, 1, 2), 16), 2) << "no register full of groups";
}

TEST(ThinGroups, LeaveWideAndDepthwiseOnesAndUnknownWeights) {
  EXPECT_EQ(groups_after(grouped(4, 16, 16), 16), 4);
  EXPECT_EQ(groups_after(grouped(4, 9, 4), 16), 4);
  EXPECT_EQ(groups_after(grouped(16, 1, 1), 16), 16);
  EXPECT_EQ(groups_after(grouped(8, 4, 4, false), 16), 8);
}

TEST(ThinGroups, ProgramsComputeTheSame) {
  const Graph graph = grouped(8, 4, 4);
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const Tensor wanted = evaluate_graph(graph, inputs).value()[0];
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, {.threads = 1}).value();
  const std::vector<NamedInput> named{{"x", inputs[0]}};
  const Outputs got = program.run(std::span<const NamedInput>(named)).value();
  const std::span<const float> a = got[0].as<float>(), b = wanted.as<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4F) << "at " << i;
}

}  // namespace
}  // namespace rlx
