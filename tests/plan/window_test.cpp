// Depthwise convolutions and pools of images that do not lie channels last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/build.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

/// A pool over images that the caller passes channels first, as programs have it.
Graph pool_of(std::int64_t channels, std::int64_t size, std::int64_t window, std::int64_t stride) {
  Graph graph;
  const Value x = transpose(graph.input("x", f32, {1, channels, size, size}), {0, 2, 3, 1});
  graph.output("y", graph.add_one(op::WindowReduce{.kind = Reduction::max,
                                                   .window = {window, window},
                                                   .strides = {stride, stride},
                                                   .channels_last = true},
                                  {x}));
  return graph;
}

std::vector<std::string> kernels_of(const Graph& graph) {
  std::vector<std::string> names;
  const Plan plan = build_plan(flatten(graph).value(), {}).value();
  for (const Step& step : plan.steps) names.push_back(step.name);
  return names;
}

TEST(Windows, images_that_are_read_again_are_turned_first) {
  using ::testing::ElementsAre;
  EXPECT_THAT(kernels_of(pool_of(32, 20, 3, 1)), ElementsAre("copy", "pool"));
  EXPECT_THAT(kernels_of(pool_of(32, 20, 3, 2)), ElementsAre("copy", "pool"));
  // Read once, too large for what two readings save, or too few channels for lanes.
  EXPECT_THAT(kernels_of(pool_of(32, 20, 2, 2)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(pool_of(96, 56, 3, 2)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(pool_of(3, 20, 3, 1)), ElementsAre("pool"));
}

TEST(Windows, images_that_lie_channels_last_are_read_where_they_lie) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 20, 20, 32});
  graph.output(
      "y",
      graph.add_one(
          op::WindowReduce{.kind = Reduction::max, .window = {3, 3}, .channels_last = true}, {x}));
  EXPECT_THAT(kernels_of(graph), ::testing::ElementsAre("pool"));
}

}  // namespace
}  // namespace rlx::plan
