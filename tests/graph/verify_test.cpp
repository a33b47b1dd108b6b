// verify: each rule broken once, and the words that tell of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

// Builders refuse broken graphs, so the rules are broken from behind.
Node& node_of(Graph& graph, std::size_t index) { return const_cast<Node&>(graph.nodes()[index]); }

std::string defect_of(const Graph& graph) {
  const Status status = verify(graph);
  return status.ok() ? "" : status.error().message;
}

Graph chain() {
  Graph graph;
  const Value x = graph.input("x", f32, {2});
  graph.output("y", graph.add(op::Neg{}, std::array{x}, "minus").front());
  return graph;
}

TEST(Verify, AcceptsWhatBuildersMake) {
  EXPECT_EQ(defect_of(chain()), "");
  EXPECT_EQ(defect_of(Graph()), "");
}

TEST(Verify, NamesTheNodeThatReadsFromBelow) {
  Graph graph = chain();
  node_of(graph, 1).inputs[0] = {1, 0};
  EXPECT_THAT(defect_of(graph), HasSubstr("Node %1 (neg \"minus\") reads %1.0 as input (0)"));
  node_of(graph, 1).inputs[0] = {0, 1};
  EXPECT_THAT(defect_of(graph), HasSubstr("which no node above it gives"));
  node_of(graph, 1).inputs[0] = {};
  EXPECT_THAT(defect_of(graph), HasSubstr("lacks input (0)"));
  node_of(graph, 1).inputs.clear();
  EXPECT_THAT(defect_of(graph), HasSubstr("has (0) inputs; it takes 1 to 1."));
}

TEST(Verify, InfersAgain) {
  Graph graph = chain();
  node_of(graph, 1).results = std::vector<Type>{{f32, {3}}};
  EXPECT_THAT(defect_of(graph), HasSubstr("gives f32[2], but says f32[3]."));
  graph = chain();
  node_of(graph, 1).op = op::Iota{.shape = {2}, .axis = 4};
  node_of(graph, 1).inputs.clear();
  EXPECT_THAT(defect_of(graph), HasSubstr("is refused: Axis (4)"));
}

TEST(Verify, LooksIntoSubgraphs) {
  Graph broken = chain();
  node_of(broken, 1).inputs.clear();
  auto branch = std::make_shared<const Graph>(chain());
  Graph graph;
  const Value c = graph.input("c", boolean, {});
  const Value x = graph.input("x", f32, {2});
  graph.output("y", graph.add_one(op::If{branch, branch}, {c, x}));
  EXPECT_EQ(defect_of(graph), "");
  node_of(graph, 2).op = op::If{branch, std::make_shared<const Graph>(std::move(broken))};
  EXPECT_THAT(defect_of(graph), HasSubstr("has a broken graph as its else_branch: Node %1 (neg"));
}

TEST(Verify, ChecksOutputs) {
  Graph graph = chain();
  graph.set_outputs({{"y", {7, 0}}});
  EXPECT_THAT(defect_of(graph), HasSubstr("The output (y) is %7.0, which no node gives."));
  graph.set_outputs({{"y", {0, 0}}, {"y", {1, 0}}});
  EXPECT_THAT(defect_of(graph), HasSubstr("The output name (y) is used twice."));
}

TEST(Verify, NamesAreUniqueAndStatesUpdatedOnce) {
  Graph graph;
  const Value x = graph.input("x", f32, {2});
  const Value s = graph.state("s", f32, {2});
  graph.update(s, x);
  EXPECT_EQ(defect_of(graph), "");
  graph.add(op::Update{"s"}, std::array{s, x});
  EXPECT_THAT(defect_of(graph), HasSubstr("updates the state (s) a second time."));

  Graph twice;
  twice.add(op::Input{"x", f32, {2}}, {});
  twice.add(op::Param{"x", f32, {2}}, {});
  EXPECT_THAT(defect_of(twice), HasSubstr("Node %1 (param) takes the name (x)"));

  Graph stray;
  const Value y = stray.input("y", f32, {2});
  stray.add(op::Update{"y"}, std::array{y, y});
  EXPECT_THAT(defect_of(stray), HasSubstr("reads no state of that name"));
}

}  // namespace
}  // namespace rlx
