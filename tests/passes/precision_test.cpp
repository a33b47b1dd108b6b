// The precision policy: which products are narrowed, what they become, and how near the values
// stay.
#include "passes/precision.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/line_points.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using passes::PrecisionPolicy;
using testing::weight;
using Choices = std::vector<Explanation::Claim>;

/// Narrow products take half of the time, or twice as long.
PrecisionPolicy policy(Precision asked, bool pays = true) {
  return {asked, true, true, [pays](const ProductShape&, DType, DType b, bool) {
            return (b == f32) == pays ? 2000.0 : 1000.0;
          }};
}

/// Two layers, the first result read twice.
Graph two_layers() {
  Graph graph;
  const Value x = graph.input("x", f32, {6, 32});
  const Value hidden = relu(matmul(x, weight(graph, {32, 48}, 1)) + weight(graph, {48}, 2));
  const Value y = matmul(hidden, weight(graph, {48, 32}, 3));
  graph.output("y",
               exp(y * graph.constant(f32, 0.05)) + matmul(hidden, weight(graph, {48, 32}, 4)));
  return graph;
}

int count_casts(const Graph& graph, DType dtype) {
  const Graph live = passes::drop_dead(graph).value();
  return static_cast<int>(std::count_if(
      live.nodes().begin(), live.nodes().end(),
      [&](const Node& node) { return node.op.is<op::Cast>() && node.results[0].dtype == dtype; }));
}

double cosine_after(const Graph& graph, const Graph& narrowed) {
  std::mt19937 generator(9);
  std::vector<Tensor> inputs;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Input>())
      inputs.push_back(testing::noise(node.results[0], -1, 1, generator));
  }
  const Tensor wanted = evaluate_graph(graph, inputs).value()[0];
  const Tensor made = evaluate_graph(narrowed, inputs).value()[0];
  double dot = 0, a = 0, b = 0;
  for (std::size_t i = 0; i < wanted.as<float>().size(); ++i) {
    const double x = wanted.as<float>()[i], y = made.as<float>()[i];
    dot += x * y, a += x * x, b += y * y;
  }
  return dot / std::sqrt(a * b);
}

TEST(Precision, bf16_rounds_both_operands_and_shares_rounded_values) {
  const Graph graph = two_layers();
  Choices choices;
  const Graph narrowed = passes::narrow_products(graph, policy(Precision::bf16), choices).value();
  ASSERT_EQ(choices.size(), 3U);
  for (const auto& choice : choices)
    EXPECT_TRUE(choice.reason.starts_with("bf16: ")) << choice.reason;
  EXPECT_EQ(count_casts(narrowed, bf16), 5);  // x, hidden, three weights
  const double cosine = cosine_after(graph, narrowed);
  EXPECT_GT(cosine, 0.9999);
  EXPECT_LT(cosine, 1 - 1e-12) << "nothing was rounded";
}

/// The transforms behind them would enlarge what rounding takes.
TEST(Precision, points_of_tiles_stay_wide) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 19, 32}), image = graph.input("i", f32, {1, 6, 6, 32});
  const op::Conv of_points{.groups = 7, .channels_last = true};
  const Value products = graph.add_one(
      of_points, {graph.add_one(op::LinePoints{}, {x}), weight(graph, {1, 1, 32, 7 * 48}, 1)});
  graph.output("y", graph.add_one(op::LineOutputs{}, {products}));
  graph.output(
      "z", matmul(graph.add_one(op::WinogradImage{4}, {image}), weight(graph, {36, 32, 48}, 2)));
  for (const Precision asked : {Precision::bf16, Precision::f16, Precision::int8}) {
    Choices choices;
    const Graph narrowed = passes::narrow_products(graph, policy(asked), choices).value();
    EXPECT_EQ(print(narrowed), print(graph));
    EXPECT_TRUE(choices.empty());
  }
}

TEST(Precision, int8_quantises_rows_once_and_leaves_the_last_layer) {
  Graph graph;
  const Value x = graph.input("x", f32, {6, 64});
  const Value hidden = gelu(matmul(x, weight(graph, {64, 48}, 1)));
  const Value left = exp(matmul(hidden, weight(graph, {48, 32}, 3)) * graph.constant(f32, 0.05));
  const Value right = relu(matmul(hidden, weight(graph, {48, 32}, 4)));
  graph.output("y", matmul(left + right, weight(graph, {32, 16}, 5)));
  Choices choices;
  const Graph narrowed = passes::narrow_products(graph, policy(Precision::int8), choices).value();
  ASSERT_EQ(choices.size(), 4U);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(choices[i].reason.starts_with("int8: ")) << choices[i].reason;
  EXPECT_TRUE(choices[3].reason.starts_with("f32: ")) << choices[3].reason;
  EXPECT_EQ(count_casts(narrowed, u8), 2);
  EXPECT_EQ(count_casts(narrowed, i8), 3);
  EXPECT_GT(cosine_after(graph, narrowed), 0.999);
}

TEST(Precision, f16_stores_weights_alone) {
  const Graph graph = two_layers();
  Choices choices;
  const Graph narrowed = passes::narrow_products(graph, policy(Precision::f16), choices).value();
  for (const auto& choice : choices)
    EXPECT_TRUE(choice.reason.starts_with("f16 weights: ")) << choice.reason;
  EXPECT_EQ(count_casts(narrowed, f16), 3);
  EXPECT_GT(cosine_after(graph, narrowed), 0.999999);
}

TEST(Precision, what_does_not_pay_stays_f32_and_says_so) {
  const Graph graph = two_layers();
  Choices choices;
  const Graph same =
      passes::narrow_products(graph, policy(Precision::bf16, false), choices).value();
  EXPECT_EQ(count_casts(same, bf16), 0);
  ASSERT_EQ(choices.size(), 3U);
  for (const auto& choice : choices) {
    EXPECT_TRUE(choice.reason.starts_with("f32: ")) << choice.reason;
    EXPECT_NE(choice.reason.find("predicted"), std::string::npos);
  }
}

TEST(Precision, first_layers_and_single_columns_stay_f32) {
  Graph graph;
  const Value image = graph.input("image", f32, {1, 3, 12, 12});
  const Value conv = graph.add(Op(op::Conv{}), Values{image, weight(graph, {16, 3, 3, 3}, 1)})[0];
  const Value x = graph.input("x", f32, {6, 64});
  graph.output("conv", conv);
  graph.output("column", exp(matmul(x, weight(graph, {64, 1}, 2))));
  Choices choices;
  const Graph canonical = passes::channels_last(passes::canonicalise(graph).value()).value();
  (void)passes::narrow_products(canonical, policy(Precision::bf16), choices).value();
  ASSERT_EQ(choices.size(), 2U);
  for (const auto& choice : choices)
    EXPECT_TRUE(choice.reason.starts_with("f32: ")) << choice.reason;
}

TEST(Precision, a_machine_without_the_instructions_narrows_weights_or_nothing) {
  const Graph graph = two_layers();
  PrecisionPolicy plain = policy(Precision::bf16);
  plain.bf16_dot = plain.vnni = false;
  Choices choices;
  (void)passes::narrow_products(graph, plain, choices).value();
  for (const auto& choice : choices)
    EXPECT_TRUE(choice.reason.starts_with("bf16 weights: ")) << choice.reason;
  choices.clear();
  plain.asked = Precision::int8;
  (void)passes::narrow_products(graph, plain, choices).value();
  for (const auto& choice : choices) {
    EXPECT_TRUE(choice.reason.starts_with("f32: ")) << choice.reason;
    EXPECT_NE(choice.reason.find("VNNI"), std::string::npos);
  }
}

/// f16 has no numbers beyond 65504 and few digits below 2^-14: columns are scaled.
TEST(Precision, f16_weights_may_have_any_size) {
  for (const float scale : {1e-30F, 1e-9F, 1.0F, 3e4F, 1e30F}) {
    Graph graph;
    const Value x = graph.input("x", f32, {2, 5, 24});
    const Value w = weight(graph, {24, 40}, 1) * graph.constant(f32, scale);
    // Columns of very different sizes, one of them nothing.
    const Value sizes = graph.add_one(op::Iota{f32, {40}, 0}, {});
    const Value y = matmul(x, w * sizes) * graph.constant(f32, 1 / scale);
    graph.output("y", y);
    Choices choices;
    const Graph narrowed = passes::narrow_products(graph, policy(Precision::f16), choices).value();
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_TRUE(choices[0].taken);
    EXPECT_EQ(count_casts(narrowed, f16), 1);
    EXPECT_GT(cosine_after(graph, narrowed), 0.999999) << scale;
  }
}

TEST(Precision, f16_scales_columns_of_every_kind_of_product) {
  const op::DotGeneral batched{
      .a_batch = {0}, .b_batch = {-2}, .a_contract = {2}, .b_contract = {-1}};
  Graph graph;
  const Value x = graph.input("x", f32, {3, 4, 8});
  graph.output("y", graph.add_one(batched, {x, weight(graph, {7, 3, 8}, 1)}));
  Choices choices;
  EXPECT_GT(
      cosine_after(graph, passes::narrow_products(graph, policy(Precision::f16), choices).value()),
      0.999999);
  EXPECT_TRUE(choices[0].taken);
  Graph image;
  const Value pixels = image.input("x", f32, {1, 6, 5, 8});
  image.output("y", image.add_one(op::Conv{.channels_last = true},
                                  {pixels, weight(image, {3, 3, 8, 10}, 1)}));
  choices.clear();
  EXPECT_GT(
      cosine_after(image, passes::narrow_products(image, policy(Precision::f16), choices).value()),
      0.999999);
  EXPECT_TRUE(choices[0].taken);
}

}  // namespace
}  // namespace rlx
