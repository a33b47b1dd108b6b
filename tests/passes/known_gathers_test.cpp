// Gathers by constant places: repeated elements, and two axes by one list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

Value places(Graph& graph, std::vector<std::int64_t> list) {
  const Dims dims{static_cast<std::int64_t>(list.size())};
  return graph.constant(Tensor::of<std::int64_t>(dims, std::span<const std::int64_t>(list)));
}

/// Gathers after the pass, whose values are the same to the bit.
std::int64_t gathers_after(const Graph& graph) {
  const Graph made = passes::drop_dead(passes::known_gathers(graph).value()).value();
  testing::expect_same_values(graph, made, 0);
  return testing::count<op::Gather>(made);
}

TEST(KnownGathers, OfNeighbouringAxesInEitherOrder) {
  for (const std::int64_t first : {1, 2}) {
    Graph graph;
    const Value x = graph.input("x", f32, {2, 3, 4, 9});
    const Value list = places(graph, {0, 0, -1, 1, 2});
    graph.output("y", gather(gather(x, list, first), places(graph, {2, 0, -2}), 3 - first));
    EXPECT_EQ(gathers_after(graph), 1) << first;
  }
}

TEST(KnownGathers, AxesThatCountFromTheEnd) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 4, 8});
  graph.output("y", gather(gather(x, places(graph, {1, 1}), -3), places(graph, {3, 3, 0}), -2));
  EXPECT_EQ(gathers_after(graph), 1);
}

/// What others read, what lies apart, what only data tells, and lists that are used seldom stay.
TEST(KnownGathers, NothingElse) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 4, 3, 9});
  const Value list = places(graph, {0, 1});
  const Value shared = gather(x, list, 0);
  graph.output("a", gather(shared, list, 1));
  graph.output("b", relu(shared));
  graph.output("c", gather(gather(x, list, 0), list, 2));
  graph.output("d", gather(gather(x, list, 1), graph.input("i", i64, {2}), 2));
  const Value flat = graph.input("f", f32, {7, 3, 4});
  graph.output("e", gather(gather(flat, list, 1), list, 2));
  graph.output("f", gather(gather(x, list, 1), list, 1));
  EXPECT_EQ(gathers_after(graph), 10);
}

/// Each element of an axis in turn, so many times, is no gather.
TEST(KnownGathers, RepeatedElementsAreBroadcasts) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3, 1, 4});
  const Value thrice = places(graph, {0, 0, 0, 1, 1, 1, 2, 2, 2});
  graph.output("a", gather(gather(x, thrice, 1), places(graph, {0, 0, 1, 1, 2, 2, 3, 3}), 3));
  graph.output("b", gather(gather(x, places(graph, {0, 0}), 2), places(graph, {0, 0, 1, 1}), 0));
  EXPECT_EQ(gathers_after(graph), 0);
}

TEST(KnownGathers, WhatIsReadInBetweenIsStillMade) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 4});
  const Value once = gather(x, places(graph, {0, 0, 1, 1, 2, 2}), 0);
  graph.output("once", once);
  graph.output("twice", gather(once, places(graph, {0, 0, 1, 1, 2, 2, 3, 3}), 1));
  EXPECT_EQ(gathers_after(graph), 0);
}

/// Nearly each element twice.
TEST(KnownGathers, OtherListsAreNoRepetition) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 16});
  graph.output("a", gather(x, places(graph, {0, 0, 1, 2, 2, 2}), 0));
  graph.output("b", gather(x, places(graph, {0, 0, 1, 1, 2}), 0));
  graph.output("c", gather(x, places(graph, {0, 1, 2}), 0));
  EXPECT_EQ(gathers_after(graph), 3);
}

/// Twice as many rows and columns are one map, which writes its part of a concatenation.
TEST(KnownGathers, MakeUpsamplingOneKernel) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 16, 6, 5}), y = graph.input("y", f32, {1, 8, 12, 10});
  const Value to = testing::weight(graph, {16, 16, 1, 1}, 2),
              w = testing::weight(graph, {16, 24, 1, 1}, 3);
  op::Resize twice;
  twice.sizes = {1, 16, 12, 10};
  twice.scales = {1, 1, 2, 2};
  twice.mode = op::ResizeMode::nearest;
  twice.coordinates = op::ResizeCoordinates::asymmetric;
  twice.nearest = op::ResizeNearest::floor;
  const Value up = graph.add_one(twice, {graph.add_one(op::Conv{}, {x, to})});
  graph.output("z", graph.add_one(op::Conv{}, {concat({up, y}, 1), w}));
  Session session(Device::cpu);
  const CompiledGraph program = session.compile(graph, {.threads = 1}).value();
  const Explanation explained = program.explain().value();
  std::vector<std::string> regions;
  for (const Explanation::Kernel& kernel : explained.kernels) regions.push_back(kernel.region);
  EXPECT_THAT(regions, ::testing::ElementsAre("conv", "reshape", "concat", "conv", ""));
}

}  // namespace
}  // namespace rlx
