// Products of flattened rows in the shape that their rows take behind them.
#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::weight;

/// Shapes of what the graph's products make after the pass, whose values are the same to the bit.
std::vector<Dims> products_after(const Graph& graph) {
  const Graph made = passes::drop_dead(passes::unflatten_products(graph).value()).value();
  testing::expect_same_values(graph, made, 0);
  std::vector<Dims> shapes;
  for (const Node& node : made.nodes())
    if (node.op.is<op::DotGeneral>()) shapes.push_back(node.results[0].dims());
  return shapes;
}

TEST(UnflattenProducts, TakeTheShapeBehindTheirBias) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 8}), residual = graph.input("r", f32, {2, 3, 5});
  const Value rows = matmul(reshape(x, {6, 8}), weight(graph, {8, 5}, 1));
  graph.output("y", relu(reshape(rows + weight(graph, {5}, 2), {2, 3, 5}) + residual));
  EXPECT_EQ(products_after(graph), (std::vector<Dims>{{2, 3, 5}}));
  const Graph made = passes::drop_dead(passes::unflatten_products(graph).value()).value();
  EXPECT_EQ(testing::count<op::Reshape>(made), 0);
}

TEST(UnflattenProducts, ReshapeAnOperandThatHadAnotherShape) {
  Graph graph;
  const Value x = graph.input("x", f32, {6, 8});
  graph.output("y", reshape(matmul(x, weight(graph, {8, 5}, 1)), {3, 1, 2, 5}));
  EXPECT_EQ(products_after(graph), (std::vector<Dims>{{3, 1, 2, 5}}));
}

TEST(UnflattenProducts, StayWhereRowsAreReadFlatOrColumnsAreTakenApart) {
  Graph graph;
  const Value x = graph.input("x", f32, {6, 8}), w = weight(graph, {8, 6}, 1);
  const Value shared = matmul(x, w), columns = matmul(x + x, w), flat = matmul(x * x, w);
  graph.output("a", reshape(shared, {2, 3, 6}));
  graph.output("b", shared + shared);
  graph.output("c", reshape(columns, {6, 2, 3}));
  graph.output("d", reshape(flat, {36}));
  // Each row has a number of its own.
  graph.output("e", reshape(matmul(x - x, w) + weight(graph, {6, 1}, 3), {2, 3, 6}));
  EXPECT_EQ(products_after(graph), std::vector<Dims>(4, Dims{6, 6}));
}

TEST(UnflattenProducts, LetWhatFollowsJoinTheirKernels) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 64, 48});
  const Value rows = matmul(reshape(x, {128, 48}), weight(graph, {48, 48}, 1));
  graph.output("y", gelu(reshape(rows + weight(graph, {48}, 2), {2, 64, 48})) + x);
  Session session(Device::cpu);
  const CompiledGraph program = session.compile(graph, {.threads = 1}).value();
  EXPECT_EQ(program.explain().value().kernels.size(), 1u);
}

}  // namespace
}  // namespace rlx
