// Batches of products with one column become sums.
#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;

/// Runs the pass; the values must stay. Gives the products that are left.
int products_after(const Graph& graph) {
  const Graph made = passes::single_columns(graph).value();
  testing::expect_same_values(graph, made, 1e-5);
  return count<op::DotGeneral>(made);
}

TEST(SingleColumns, OfManyBatchesAreSums) {
  Graph graph;
  const Value a = graph.input("a", f32, {4, 3, 7, 9}), b = graph.input("b", f32, {4, 3, 9, 1});
  graph.output("y", matmul(a, b));
  graph.output("rows", matmul(a, reshape(b, {4, 3, 9, 1})) + matmul(a, b));
  const Value one_row = reshape(b, {4, 3, 1, 9});
  graph.output("turned", graph.add_one(op::DotGeneral{{0, 1}, {0, 1}, {3}, {3}}, {a, one_row}));
  EXPECT_EQ(products_after(graph), 0);
}

TEST(SingleColumns, WeightsSeveralColumnsAndSingleProductsStay) {
  Graph graph;
  const Value a = graph.input("a", f32, {4, 7, 9});
  graph.output("weight", matmul(a, testing::weight(graph, {4, 9, 1}, 1)));
  graph.output("columns", matmul(a, graph.input("b", f32, {4, 9, 2})));
  graph.output("single", matmul(reshape(slice(a, {0, 0, 0}, {1, 7, 9}), {7, 9}),
                                graph.input("c", f32, {9, 1})));
  graph.output("other axis", graph.add_one(op::DotGeneral{{0}, {0}, {1}, {1}},
                                           {a, graph.input("d", f32, {4, 7, 1})}));
  EXPECT_EQ(products_after(graph), 4);
}

}  // namespace
}  // namespace rlx
