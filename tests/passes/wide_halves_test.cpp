// Graphs of halves computed in f32: what becomes wide, what stays as it is stored, and the values.
#include "passes/wide_halves.hpp"

#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;

Graph widened(const Graph& graph, DType half) {
  return passes::wide_halves(graph, half, nullptr).value();
}

/// How many ops give values of the dtype, other than leaves and casts.
int ops_on(const Graph& graph, DType dtype) {
  int found = 0;
  for (const Node& node : graph.nodes()) {
    const bool stored = node.inputs.empty() || node.op.is<op::Cast>();
    found += !stored && node.results[0].dtype == dtype;
  }
  return found;
}

std::vector<float> numbers(const Tensor& tensor) {
  const Tensor wide = evaluate(Op(op::Cast{f32}), {&tensor, 1}).value()[0];
  return {wide.as<float>().begin(), wide.as<float>().end()};
}

/// Outputs keep their dtypes, and differ by at most so much.
void expect_near(const Graph& graph, const Graph& made, double absolute) {
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const auto wanted = evaluate_graph(graph, inputs).value(),
             found = evaluate_graph(made, inputs).value();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    ASSERT_EQ(found[k].dtype(), wanted[k].dtype());
    const std::vector<float> a = numbers(found[k]), b = numbers(wanted[k]);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], absolute) << k << " " << i;
  }
}

Value half_weight(Graph& graph, DType half, Shape shape, std::uint32_t seed) {
  const Tensor noise = testing::noise(std::move(shape), seed);
  return graph.constant(evaluate(Op(op::Cast{half}), {&noise, 1}).value()[0]);
}

TEST(WideHalves, ops_take_and_give_f32_between_inputs_and_outputs) {
  for (const DType half : {f16, bf16}) {
    Graph graph;
    const Value x = graph.input("x", half, {6, 32});
    const Value hidden = gelu(matmul(x, half_weight(graph, half, {32, 100}, 1)));
    graph.output("y", softmax(hidden + half_weight(graph, half, {100}, 2), {1}));
    graph.output("hidden", hidden);
    const Graph made = widened(graph, half);
    EXPECT_EQ(ops_on(made, half), 0);
    EXPECT_EQ(ops_on(made, f32), ops_on(graph, half));
    // An input, two weights; two outputs.
    EXPECT_EQ(count<op::Cast>(made), 5);
    expect_near(graph, made, half == f16 ? 4e-2 : 0.3);
    const DType other = half == f16 ? bf16 : f16;
    EXPECT_EQ(ops_on(widened(graph, other), half), ops_on(graph, half));
  }
}

TEST(WideHalves, casts_that_the_graph_asks_for_round) {
  Graph graph;
  const Value x = graph.input("x", f32, {64});
  const Value rounded = cast(exp(x), f16);
  graph.output("y", cast(rounded + rounded, f32));
  const Graph made = widened(graph, f16);
  EXPECT_EQ(ops_on(made, f16), 0);
  EXPECT_EQ(count<op::Cast>(made), 2);
  expect_near(graph, made, 0);
}

TEST(WideHalves, elements_that_only_move_stay_as_they_are_stored) {
  Graph graph;
  const Value past = graph.input("past", f16, {4, 7, 8});
  const Value fresh = graph.input("x", f16, {4, 1, 8});
  const Value all = concat({past, fresh * fresh}, 1);
  graph.output("present", all);
  graph.output("sums", sum(transpose(all, {0, 2, 1}), {1}, false));
  const Graph made = widened(graph, f16);
  const ValueId present = made.outputs()[0].value;
  EXPECT_TRUE(made.node(present).op.is<op::Concat>());
  EXPECT_EQ(made.type(present).dtype, f16);
  EXPECT_EQ(ops_on(made, f16), 2);  // the concatenation and the transpose
  expect_near(graph, made, 2e-2);
}

TEST(WideHalves, small_constants_are_constants_of_f32) {
  Graph graph;
  graph.output("y", graph.input("x", f16, {16}) * graph.constant(f16, 0.125));
  const Graph made = widened(graph, f16);
  EXPECT_EQ(count<op::Cast>(made), 2);
  expect_near(graph, made, 0);
}

TEST(WideHalves, the_claim_says_what_was_done) {
  Graph graph;
  const Value x = graph.input("x", f16, {4});
  graph.output("y", exp(x) + x);
  std::vector<Explanation::Claim> claims;
  ASSERT_TRUE(passes::wide_halves(graph, f16, &claims).ok());
  ASSERT_EQ(claims.size(), 1U);
  EXPECT_EQ(claims[0].op, "f16");
  EXPECT_EQ(claims[0].reason, "(2) ops on it compute in f32, and round where it is stored");
  ASSERT_TRUE(passes::wide_halves(graph, bf16, &claims).ok());
  EXPECT_EQ(claims.size(), 1U);
}

/// The cast that a product's B is, if it is one.
const Node* cast_of_b(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!node.op.is<op::DotGeneral>()) continue;
    const Node& b = graph.node(node.inputs[1]);
    return b.op.is<op::Cast>() ? &b : nullptr;
  }
  return nullptr;
}

TEST(CastsOfProducts, halves_that_are_waited_for_are_cast_right_before_the_product) {
  for (const std::int64_t rows : {1, 7, 8}) {
    Graph graph;
    const Value keys = graph.input("k", f16, {2, 50, 16});
    const Value wide = cast(keys, f32);
    graph.output("y", matmul(graph.input("q", f32, {2, rows, 16}), transpose(wide, {0, 2, 1})));
    graph.output("sum", sum(wide, {1}, false));
    const Graph made = passes::casts_of_products(graph).value();
    const Node* own = cast_of_b(made);
    EXPECT_EQ(own != nullptr, rows < 8);
    if (own) {
      EXPECT_EQ(made.type(own->inputs[0]).dims(), (Dims{2, 16, 50}));
    }
    testing::expect_same_values(graph, made, 0);
  }
}

}  // namespace
}  // namespace rlx
