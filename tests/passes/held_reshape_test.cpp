// Transposes move below reshapes: both sides are cut into the factors that they share.
#include "passes/held_reshape.hpp"

#include <gtest/gtest.h>

#include <random>

#include "graph/op_info.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::noise;

/// Transposes of values with so many elements.
int transposes_of(const Graph& graph, std::int64_t elements) {
  int count = 0;
  for (const Node& node : graph.nodes())
    count += node.op.is<op::Transpose>() && node.results[0].elements() == elements;
  return count;
}

/// One kernel less for each transpose that is gone: what the program has, and what it computes.
std::size_t kernels_of(const Graph& graph) {
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, {.exact = true, .threads = 1}).value();
  const std::vector<NamedInput> named{{"x", inputs[0]}};
  const Outputs got = program.run(std::span<const NamedInput>(named)).value();
  const std::span<const float> a = got[0].as<float>(), b = wanted[0].as<float>();
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    EXPECT_NEAR(a[i], b[i], 2e-4F * (1 + std::abs(b[i]))) << "at " << i;
  return program.explain().value().kernels.size();
}

TEST(HeldReshape, CutsIntoCommonFactors) {
  // [2,12,4,6] held as [2,4,6,12], to groups of 3 channels
  const auto pieces = passes::common_pieces({2, 12, 4, 6}, {0, 3, 1, 2}, {2, 4, 72});
  ASSERT_TRUE(pieces);
  EXPECT_EQ(pieces->extents, (std::vector<std::int64_t>{2, 4, 3, 4, 6}));
  EXPECT_EQ(pieces->order, (std::vector<std::size_t>{0, 3, 4, 1, 2}));
  EXPECT_FALSE(passes::are_runs(*pieces));
  EXPECT_TRUE(passes::are_runs(*passes::common_pieces({2, 12, 24}, {0, 2, 1}, {2, 12, 4, 1, 6})));
  EXPECT_FALSE(passes::common_pieces({6, 4}, {1, 0}, {4, 6}));
}

TEST(HeldReshape, TokensBecomeImagesWithoutACopy) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 48, 16});
  const Value image = reshape(transpose(relu(x), {0, 2, 1}), {2, 16, 6, 8});
  const Value both = graph.add_one(op::Concat{1}, {image, relu(image + image)});
  const op::Conv conv{.strides = {1, 1}, .pad_low = {0, 0}, .pad_high = {0, 0}};
  const Value y = graph.add_one(conv, {both, graph.constant(noise({8, 32, 1, 1}, 1))});
  graph.output("y", transpose(reshape(y, {2, 8, 48}), {0, 2, 1}));
  const Graph made = passes::channels_last(graph).value();
  testing::expect_same_values(graph, made, 1e-5, 1e-5);
  EXPECT_EQ(transposes_of(made, 2 * 48 * 16) + transposes_of(made, 2 * 48 * 32) +
                transposes_of(made, 2 * 48 * 8),
            0);
}

/// A group norm as exporters write it: of [n, groups, rest], between two convolutions.
Graph group_norm_between_convolutions() {
  Graph graph;
  const op::Conv conv{.strides = {1, 1}, .pad_low = {1, 1}, .pad_high = {1, 1}};
  const Value x = graph.input("x", f32, {1, 8, 6, 10});
  const Value a = graph.add_one(conv, {x, graph.constant(noise({32, 8, 3, 3}, 1))});
  const Value groups = reshape(a, {1, 4, 480});
  const Value centred = groups - reduce(groups, Reduction::mean, {2}, true);
  const Value variance = reduce(centred * centred, Reduction::mean, {2}, true);
  const Value scale = graph.constant(noise({4, 1}, 2));
  const Value unit = centred * rsqrt(variance + graph.constant(f32, 1e-5)) * scale;
  const Value y = relu(reshape(unit, {1, 32, 6, 10}) * graph.constant(noise({32, 1, 1}, 3)));
  graph.output("y", graph.add_one(conv, {y, graph.constant(noise({8, 32, 3, 3}, 4))}));
  return graph;
}

TEST(HeldReshape, GroupNormsStayBehindTheImage) {
  const Graph graph = group_norm_between_convolutions();
  const Graph made = passes::channels_last(graph).value();
  testing::expect_same_values(graph, made, 1e-4, 1e-4);
  EXPECT_EQ(transposes_of(made, 32 * 60), 0);
  EXPECT_LE(kernels_of(graph), 6U);
}

TEST(HeldReshape, SmallOperandsDoNotTurnLargeOnes) {
  // The bias of the heads of attention, [rows, columns, heads] as it is stored.
  Graph graph;
  const Value x = graph.input("x", f32, {5, 3, 8, 8});
  const Value bias = graph.input("bias", f32, {64, 3});
  const Value heads = transpose(reshape(bias, {8, 8, 3}), {2, 0, 1});
  graph.output("y", relu(x + reshape(heads, {1, 3, 8, 8})));
  const Graph made = passes::channels_last(graph).value();
  testing::expect_same_values(graph, made, 0);
  EXPECT_EQ(transposes_of(made, x.type().elements()), 0);
}

TEST(HeldReshape, GroupsThatAreAskedForAreCopied) {
  Graph graph = group_norm_between_convolutions();
  for (const Node& node : graph.nodes()) {
    if (node.results.empty() || node.results[0].shape != Shape{1, 4, 480}) continue;
    const auto index = static_cast<std::int32_t>(&node - graph.nodes().data());
    graph.output("groups", graph.handle({index, 0}));
    break;
  }
  testing::expect_same_values(graph, passes::channels_last(graph).value(), 1e-4, 1e-4);
}

TEST(HeldReshape, WhatTheCallerWantsIsCopiedOnce) {
  // Space to depth: blocks of 2 x 2 points become channels.
  Graph graph;
  const Value x = graph.input("x", f32, {1, 3, 32, 32});
  const Value blocks = transpose(reshape(x, {1, 3, 16, 2, 16, 2}), {0, 3, 5, 1, 2, 4});
  graph.output("y", reshape(blocks, {1, 12, 16, 16}));
  testing::expect_same_values(graph, passes::channels_last(graph).value(), 0);
  EXPECT_EQ(kernels_of(graph), 1U);
}

TEST(HeldReshape, GroupsWithoutCommonFactorsGoAsWholes) {
  using passes::regrouped;
  // [5, 8, 7, 7, 8] held with its first axis last and the others crossed.
  const auto made = regrouped({5, 8, 7, 7, 8}, {4, 0, 2, 1, 3}, {5, 7, 8, 8, 7});
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->order, (Axes{0, 2, 1, 3, 4}));
  EXPECT_EQ(made->axes, (Axes{1, 2, 3, 4, 0}));
  // Dims 1 belong to the group before them.
  const auto ones = regrouped({1, 5, 6, 1}, {0, 3, 1, 2}, {5, 1, 4, 1});
  EXPECT_FALSE(ones.has_value());  // 6 elements are no 4
  const auto more = regrouped({1, 5, 6, 1}, {0, 3, 1, 2}, {5, 1, 6, 1});
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->axes.size(), 4U);
  // In logical order nothing is gained; nor is there a group where nothing is.
  EXPECT_FALSE(regrouped({8, 7, 5}, {0, 1, 2}, {7, 8, 5}).has_value());
}

TEST(HeldReshape, ChainsOfEveryKindKeepTheirMeaning) {
  const std::vector<Shape> shapes = {
      {2, 12, 24}, {2, 12, 4, 6}, {24, 24},         {4, 6, 24}, {2, 3, 4, 4, 6}, {2, 4, 3, 2, 12},
      {1, 24, 24}, {2, 6, 2, 24}, {2, 12, 2, 2, 6}, {3, 8, 24}, {2, 1, 12, 24},  {576}};
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](std::size_t count) { return random() % count; };
    Graph graph;
    Value x = graph.input("x", f32, {2, 12, 4, 6});
    for (int step = 0; step < 9; ++step) {
      const auto rank = static_cast<std::size_t>(x.rank());
      switch (pick(5)) {
        case 0: {
          Axes perm(rank);
          for (std::size_t i = 0; i < rank; ++i) perm[i] = static_cast<std::int64_t>(i);
          for (std::size_t i = rank; i > 1; --i) std::swap(perm[i - 1], perm[pick(i)]);
          x = transpose(x, perm);
          break;
        }
        case 1: {
          const auto axis = static_cast<std::int64_t>(pick(rank));
          x = x - reduce(x, Reduction::max, {axis}, true);
          break;
        }
        case 2: x = x + graph.constant(noise({x.shape().back()}, seed + 7)); break;
        default: x = reshape(x, shapes[pick(shapes.size())]);
      }
    }
    graph.output("y", x);
    testing::expect_same_values(graph, passes::channels_last(graph).value(), 1e-6);
  }
}

}  // namespace
}  // namespace rlx
