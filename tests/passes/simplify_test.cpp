// Algebraic identities: what is replaced, what is left, and that values stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/op_info.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

/// pow(x, exponent) simplified, checked on numbers of both signs; true where no power is left.
bool replaces_power(double exponent) {
  Graph graph;
  const Value x = graph.input("x", f32, {5});
  graph.output("y", pow(x, graph.constant(f32, exponent)));
  const Graph simple = passes::simplify(graph).value();
  const std::vector<Tensor> inputs{
      Tensor::of<float>({5}, std::vector<float>{-1.5f, -0.0f, 0.25f, 3, 1e20f})};
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  const std::vector<Tensor> made = evaluate_graph(simple, inputs).value();
  for (std::size_t i = 0; i < 5; ++i) {
    const float a = made[0].as<float>()[i], b = wanted[0].as<float>()[i];
    EXPECT_TRUE(a == b || std::abs(a - b) <= 2e-7f * std::abs(b) || (a != a && b != b)) << i;
  }
  return std::none_of(simple.nodes().begin(), simple.nodes().end(),
                      [](const Node& node) { return node.op.is<op::Pow>(); });
}

TEST(Simplify, small_whole_powers_are_products) {
  EXPECT_TRUE(replaces_power(2));
  EXPECT_TRUE(replaces_power(3));
  EXPECT_FALSE(replaces_power(0.5));
  EXPECT_FALSE(replaces_power(4));
}

TEST(Simplify, a_power_that_broadcasts_stays) {
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  const Value exponents = graph.constant(Tensor::of<float>({1, 1}, std::vector<float>{2}));
  graph.output("y", pow(x, exponents));
  const Graph simple = passes::simplify(graph).value();
  EXPECT_EQ(simple.type(simple.outputs()[0].value).dims(), (Dims{1, 3}));
}

TEST(Simplify, what_is_never_negative_needs_no_relu) {
  const std::vector<Tensor> inputs{
      Tensor::of<float>({5}, std::vector<float>{-1.5f, -0.0f, 0.25f, NAN, INFINITY})};
  const auto maps_left = [&](Value (*inner)(Value), Value (*outer)(Value)) {
    Graph graph;
    graph.output("y", outer(inner(graph.input("x", f32, {5}))));
    const Graph simple = passes::drop_dead(passes::simplify(graph).value()).value();
    const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
    const std::vector<Tensor> made = evaluate_graph(simple, inputs).value();
    for (std::size_t i = 0; i < 5; ++i) {
      const float a = made[0].as<float>()[i], b = wanted[0].as<float>()[i];
      EXPECT_TRUE(a == b || (a != a && b != b)) << i;
    }
    return simple.nodes().size() - 1;
  };
  for (const auto outer : {relu, abs}) {
    for (const auto inner : {relu, abs, exp, sqrt, sigmoid}) EXPECT_EQ(maps_left(inner, outer), 1U);
    for (const auto inner : {tanh, sin, neg}) EXPECT_EQ(maps_left(inner, outer), 2U);
  }
}

TEST(Simplify, a_reduction_over_one_element_is_that_element) {
  for (const Reduction kind :
       {Reduction::sum, Reduction::mean, Reduction::prod, Reduction::min, Reduction::max}) {
    Graph graph;
    const Value x = graph.input("x", f32, {1, 4});
    graph.output("y", reduce(x, kind, {0}, true));
    graph.output("z", reduce(x, kind, {1}, true));
    const Graph simple = passes::simplify(graph).value();
    EXPECT_EQ(std::ranges::count_if(simple.nodes(),
                                    [](const Node& node) { return node.op.is<op::Reduce>(); }),
              1);
    const std::vector<Tensor> inputs{
        Tensor::of<float>({1, 4}, std::vector<float>{-1.5f, NAN, INFINITY, 3})};
    const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
    const std::vector<Tensor> made = evaluate_graph(simple, inputs).value();
    for (std::size_t i = 0; i < 4; ++i) {
      const float a = made[0].as<float>()[i], b = wanted[0].as<float>()[i];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i;
    }
  }
}

/// Does cast(cast(conv(x - zero, w), i32), f32) become the convolution alone? Values are compared.
bool drops_casts(bool of_bytes) {
  Graph graph;
  const Value x = graph.input("x", of_bytes ? u8 : f32, {1, 2, 3, 3});
  const Value w = graph.constant(Tensor::of<std::int8_t>(
      {2, 1, 2, 2}, std::vector<std::int8_t>{-128, 127, 3, -5, 1, 0, 100, -7}));
  const Value centred = cast(x, f32) - cast(graph.constant(u8, 117), f32);
  const Value sums = conv(centred, cast(w, f32), {.pad_low = {1, 1}, .groups = 2});
  graph.output("y", cast(cast(sums, i32), f32) * graph.constant(f32, 0.5));
  const Graph simple = passes::simplify(graph).value();
  const Tensor input =
      of_bytes ? Tensor::of<std::uint8_t>(
                     {1, 2, 3, 3}, std::vector<std::uint8_t>{0, 255, 3, 117, 90, 200, 1, 2, 254, 7,
                                                             8, 9, 117, 0, 255, 255, 33, 64})
               : Tensor::of<float>({1, 2, 3, 3}, std::vector<float>(18, 0.3F));
  const std::vector<Tensor> inputs{input};
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  const std::vector<Tensor> made = evaluate_graph(simple, inputs).value();
  EXPECT_TRUE(std::ranges::equal(made[0].as<float>(), wanted[0].as<float>()));
  const Node& scaled = simple.node(simple.outputs()[0].value);
  return simple.node(scaled.inputs[0]).op.is<op::Conv>();
}

TEST(Simplify, sums_of_bytes_are_whole_already) {
  EXPECT_TRUE(drops_casts(true));
  EXPECT_FALSE(drops_casts(false));
}

TEST(Simplify, values_without_elements_are_constants) {
  Graph graph;
  const Value x = graph.input("x", f32, {0, 8});
  const Value y = exp(x), all = sum(y, {0});
  graph.output("y", matmul(y, graph.constant(Tensor(f32, {8, 3}))));
  graph.output("sum", all + all);
  const Graph simple = passes::drop_dead(passes::simplify(graph).value()).value();
  const auto constants = std::count_if(simple.nodes().begin(), simple.nodes().end(),
                                       [](const Node& node) { return node.op.is<op::Constant>(); });
  EXPECT_EQ(constants, 2);
  EXPECT_EQ(simple.nodes().size(), 5u);  // the input, the sum of nothing and what adds it
  EXPECT_EQ(evaluate_graph(simple, std::vector<Tensor>{Tensor(f32, {0, 8})}).value()[0].dims(),
            (Dims{0, 3}));
}

TEST(Simplify, parts_without_elements_are_not_joined) {
  Graph graph;
  const Value past = graph.input("past", f32, {2, 0}), x = graph.input("x", f32, {2, 3});
  graph.output("one", concat({past, x}, 1));
  graph.output("two", concat({x, past, x}, 1));
  const Graph simple = passes::simplify(graph).value();
  EXPECT_TRUE(simple.node(simple.outputs()[0].value).op.is<op::Input>());
  EXPECT_EQ(simple.node(simple.outputs()[1].value).inputs.size(), 2u);
  EXPECT_EQ(simple.type(simple.outputs()[1].value).dims(), (Dims{2, 6}));
}

TEST(Simplify, pads_of_nothing_are_none) {
  const auto pads = [](const Axes& low, const Axes& high) {
    Graph graph;
    const Value x = graph.input("x", f32, {2, 3});
    graph.output("y", relu(graph.add_one(op::Pad{low, high}, {x, graph.constant(f32, 0.5)})));
    const Graph simple = passes::simplify(graph).value();
    testing::expect_same_values(graph, simple, 0);
    return testing::count<op::Pad>(simple);
  };
  EXPECT_EQ(pads({0, 0}, {0, 0}), 0);
  EXPECT_EQ(pads({0, 1}, {0, 0}), 1);
  EXPECT_EQ(pads({0, 0}, {0, -1}), 1);
}

TEST(Simplify, factors_of_one_are_found_behind_views) {
  const auto products_left = [](std::vector<float> factors) {
    Graph graph;
    const Value x = graph.input("x", f32, {2, 3, 4});
    const Value ones = graph.constant(Tensor::of<float>({3}, factors));
    graph.output("y", x * broadcast(reshape(ones, {3, 1}), {3, 4}));
    const Graph simple = passes::simplify(graph).value();
    return simple.node(simple.outputs()[0].value).op.is<op::Mul>();
  };
  EXPECT_FALSE(products_left({1, 1, 1}));
  EXPECT_TRUE(products_left({1, 1, 2}));
  EXPECT_TRUE(products_left({2, 2, 2}));
}

TEST(Simplify, a_reshape_there_and_back_is_none) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 4});
  graph.output("y", reshape(reshape(x, {6, 4}), {2, 3, 4}));
  const Graph simple = passes::simplify(graph).value();
  EXPECT_TRUE(simple.node(simple.outputs()[0].value).op.is<op::Input>());
}

}  // namespace
}  // namespace rlx
