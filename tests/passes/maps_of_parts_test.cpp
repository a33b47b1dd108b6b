// Maps behind a concatenation of pieces of one value become maps of the pieces.
#include "passes/maps_of_parts.hpp"

#include <gtest/gtest.h>

#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;
using testing::weight;

Value piece(Value x, std::int64_t axis, std::int64_t first, std::int64_t last) {
  Axes starts(x.rank(), 0), limits(x.rank(), op::slice_end);
  starts[static_cast<std::size_t>(axis)] = first;
  limits[static_cast<std::size_t>(axis)] = last;
  return slice(x, std::move(starts), std::move(limits));
}

/// concat(-x[half:], x[:half]) along the last axis.
Value turned(Value x, std::int64_t half) {
  return concat({-piece(x, 3, half, op::slice_end), piece(x, 3, 0, half)}, 3);
}

/// Runs the pass; the values must stay. Gives what it made, and the number of questions.
std::pair<Graph, std::size_t> after(const Graph& graph,
                                    IoFusionGate gate = IoFusionGate::preset(Device::cpu)) {
  std::vector<FusionQuestion> asked;
  Graph made = passes::maps_of_parts(graph, gate, &asked).value();
  testing::expect_same_values(graph, made, 1e-6);
  return {std::move(made), asked.size()};
}

/// Is the only concatenation that is left that of the output?
bool joins_last(const Graph& graph) {
  return count<op::Concat>(graph) == 1 && graph.node(graph.outputs()[0].value).op.is<op::Concat>();
}

TEST(MapsOfParts, RotaryPositionsAreTwoMaps) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 5, 32});
  const Value cosines = weight(graph, {1, 1, 5, 32}, 1), sines = weight(graph, {5, 32}, 2);
  graph.output("y", (x * cosines + turned(x, 16) * sines) * graph.constant(f32, 0.125));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 1U);
  EXPECT_TRUE(joins_last(made));
  // Each half multiplies x, the turned half and their sum.
  EXPECT_EQ(count<op::Mul>(made), 6);
}

TEST(MapsOfParts, MapsOfPiecesAndBroadcastOperands) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 6, 4, 8});
  const Value rows = concat({exp(piece(x, 1, 4, 6)), piece(x, 1, 0, 4)}, 1);
  const Value channels = weight(graph, {1, 6, 1, 1}, 3), columns = weight(graph, {8}, 4);
  graph.output("y", tanh(rows * channels + columns));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 1U);
  EXPECT_TRUE(joins_last(made));
  EXPECT_EQ(count<op::Tanh>(made), 2);
}

TEST(MapsOfParts, PartsThatBeginElsewhereAreReadAsAWhole) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 1, 4, 48});
  graph.output("y", exp(turned(x, 16) + turned(x, 32)));
  const Graph made = after(graph).first;
  EXPECT_EQ(count<op::Exp>(made), 2);
  EXPECT_EQ(count<op::Concat>(made), 2);
}

TEST(MapsOfParts, StaysWhereOthersReadItOrPartsAreStrangersOrShort) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 5, 32}), z = graph.input("z", f32, {2, 3, 5, 16});
  const Value halves = turned(x, 16);
  graph.output("read twice", halves + x);
  graph.output("y", exp(halves));
  graph.output("strangers", exp(concat({piece(x, 3, 0, 16), z}, 3)));
  graph.output("short", exp(turned(x, 4)));
  graph.output("unmapped", matmul(turned(x, 16), weight(graph, {32, 7}, 5)));
  const auto [made, questions] = after(graph);
  EXPECT_EQ(questions, 0U);
  EXPECT_EQ(made.nodes().size(), graph.nodes().size());
}

// Of a long chain of maps the last ones move, the others are cut where they end.
TEST(MapsOfParts, LongChainsAreCut) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 5, 32});
  Value long_way = x;
  for (int i = 0; i < 5000; ++i) long_way = -long_way;
  graph.output("y", long_way + turned(x, 16));
  const Graph made = after(graph).first;
  EXPECT_TRUE(joins_last(made));
  EXPECT_LT(count<op::Neg>(made), 5100);
}

TEST(MapsOfParts, TheGateMayRefuse) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 5, 32});
  graph.output("y", exp(turned(x, 16)));
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  gate.min_gain_ns = 1e9;
  std::vector<FusionQuestion> asked;
  EXPECT_EQ(passes::maps_of_parts(graph, gate, &asked).value().nodes().size(),
            graph.nodes().size());
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_FALSE(asked[0].fused);
  EXPECT_EQ(asked[0].before.kernel_launches, 3);
  EXPECT_EQ(asked[0].after.kernel_launches, 2);
  const GivenAnswers given{{asked[0].what, true}};
  EXPECT_EQ(count<op::Exp>(passes::maps_of_parts(graph, gate, nullptr, given).value()), 2);
}

}  // namespace
}  // namespace rlx
