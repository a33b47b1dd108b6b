// Products of one value with several weights: merged where only views read the parts.
#include <gtest/gtest.h>

#include "passes/merge_products.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;
using testing::weight;

Value projection(Graph& graph, Value x, std::int64_t columns, std::uint32_t seed, bool bias) {
  const Value y = matmul(x, weight(graph, {8, columns}, seed));
  return bias ? y + weight(graph, {columns}, seed + 1) : y;
}

/// Runs the pass; the values must stay. Gives the products that are left.
int products_after(const Graph& graph) {
  const Graph merged = passes::merge_products(graph, IoFusionGate::preset(Device::cpu)).value();
  testing::expect_same_values(graph, merged, 1e-5);
  return count<op::DotGeneral>(merged);
}

Value heads(Value x, std::int64_t count) {
  const Dims dims = x.type().dims();
  return transpose(reshape(x, {dims[0], dims[1], count, dims[2] / count}), {0, 2, 1, 3});
}

/// Queries, keys and values of 12, 6 and 6 columns, as heads of 3.
Graph attention_block(bool bias) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 5, 8});
  graph.output("q", exp(heads(projection(graph, x, 12, 1, bias), 4)));
  graph.output("k", exp(heads(projection(graph, x, 6, 3, bias), 2)));
  graph.output("v", exp(heads(projection(graph, x, 6, 5, bias), 2)));
  return graph;
}

// The weights stand before the first product, as importers put them.
Graph weights_first(const Graph& graph) {
  Graph result;
  std::vector<ValueId> mapped(graph.nodes().size());
  for (const bool leaves : {true, false}) {
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (node.inputs.empty() != leaves) continue;
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs)
        inputs.push_back(mapped[static_cast<std::size_t>(id.node)]);
      mapped[i] = result.try_add(node.op, inputs, node.name, node.origin).value()[0];
    }
  }
  std::vector<GraphOutput> outputs;
  for (const GraphOutput& output : graph.outputs())
    outputs.push_back({output.name, mapped[static_cast<std::size_t>(output.value.node)]});
  result.set_outputs(std::move(outputs));
  return result;
}

TEST(MergeProducts, projections_become_one) {
  EXPECT_EQ(products_after(weights_first(attention_block(true))), 1);
  EXPECT_EQ(products_after(weights_first(attention_block(false))), 1);
}

TEST(MergeProducts, weights_that_come_too_late_stay) {
  EXPECT_EQ(products_after(attention_block(true)), 3);
}

TEST(MergeProducts, the_gate_decides_and_its_question_is_kept) {
  const Graph graph = weights_first(attention_block(true));
  std::vector<FusionQuestion> asked;
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  EXPECT_EQ(count<op::DotGeneral>(passes::merge_products(graph, gate, &asked).value()), 1);
  gate.min_gain_ns = 1e9;
  EXPECT_EQ(count<op::DotGeneral>(passes::merge_products(graph, gate, &asked).value()), 3);
  ASSERT_EQ(asked.size(), 2);
  EXPECT_TRUE(asked[0].fused);
  EXPECT_FALSE(asked[1].fused);
  EXPECT_EQ(asked[0].kind, "products");
  // Two launches and two readings of x [2, 5, 8] are saved.
  EXPECT_EQ(asked[0].before.kernel_launches - asked[0].after.kernel_launches, 2);
  EXPECT_EQ(asked[0].before.device_traffic_bytes - asked[0].after.device_traffic_bytes, 2 * 320);
  EXPECT_EQ(asked[0].score_ns, gate.score_ns(asked[0].before, asked[0].after));
}

// sigmoid(x a) * (x b): the epilogues of two products do it; after a merge it would be a kernel.
TEST(MergeProducts, gates_stay) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 8}), a = weight(graph, {8, 6}, 1),
              b = weight(graph, {8, 6}, 2);
  graph.output("y", sigmoid(matmul(x, a)) * matmul(x, b));
  EXPECT_EQ(products_after(graph), 2);
}

TEST(MergeProducts, outputs_and_products_of_other_values_stay) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 4, 8}), a = weight(graph, {8, 6}, 1),
              b = weight(graph, {8, 6}, 2), c = weight(graph, {8, 6}, 3);
  graph.output("asked", matmul(x, a));
  graph.output("y", exp(heads(matmul(x, b), 2)));
  graph.output("z", exp(heads(matmul(exp(x), c), 2)));
  EXPECT_EQ(products_after(graph), 3);
}

// A reshape across the columns cannot be a view of a part.
TEST(MergeProducts, parts_that_are_reshaped_across_rows_stay) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 8}), a = weight(graph, {8, 6}, 1),
              b = weight(graph, {8, 6}, 2);
  graph.output("y", exp(reshape(matmul(x, a), {3, 8})));
  graph.output("z", exp(reshape(matmul(x, b), {3, 8})));
  EXPECT_EQ(products_after(graph), 2);
}

}  // namespace
}  // namespace rlx
