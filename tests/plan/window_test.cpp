// Depthwise convolutions and pools of images that do not lie channels last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "computed.hpp"
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

/// Channels first behind the windows, too, as an exporter's model has a pool.
Graph channels_first(const op::WindowReduce& pool, std::int64_t channels, std::int64_t rows,
                     std::int64_t columns) {
  Graph graph;
  const Value x = transpose(graph.input("x", f32, {2, channels, rows, columns}), {0, 2, 3, 1});
  op::WindowReduce last = pool;
  last.channels_last = true;
  const Value pooled = graph.add_one(last, {x});
  graph.output("y", transpose(relu(pooled), {0, 3, 1, 2}));
  return graph;
}

std::vector<std::string> kernels_of(const Graph& graph, int threads = 1) {
  std::vector<std::string> names;
  BuildOptions options;
  options.threads = threads;
  const Plan plan = build_plan(flatten(graph).value(), options).value();
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

/// Where lanes cannot run along the rows they would be channels, each in a line of its own: large
/// images are turned for that, too.
TEST(Windows, large_images_with_short_rows_are_turned_first) {
  using ::testing::ElementsAre;
  const op::WindowReduce twos{.kind = Reduction::max, .window = {2, 2}, .strides = {2, 2}};
  op::WindowReduce threes = twos, fives = twos;
  threes.window = {3, 3};
  fives.window = {5, 5}, fives.strides = {3, 3};
  const auto turned = ElementsAre("copy", "pool", "output");
  EXPECT_THAT(kernels_of(pool_of(1024, 14, 3, 2)), ElementsAre("copy", "pool"));
  EXPECT_THAT(kernels_of(channels_first(threes, 700, 14, 14)), turned);
  EXPECT_THAT(kernels_of(channels_first(fives, 700, 14, 14)), turned);
  EXPECT_THAT(kernels_of(channels_first(fives, 300, 14, 47)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(threes, 300, 14, 47)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(twos, 700, 14, 14)), ElementsAre("pool")) << "read once";
  testing::expect_computed(channels_first(threes, 700, 14, 14));
}

TEST(Windows, windows_inside_of_their_rows_go_along_them) {
  using ::testing::ElementsAre;
  const op::WindowReduce twos{.kind = Reduction::max, .window = {2, 2}, .strides = {2, 2}};
  const op::WindowReduce threes{.kind = Reduction::sum, .window = {3, 3}};
  op::WindowReduce halved = threes, padded = threes, above = threes, fives = twos, wide = threes;
  halved.strides = {2, 2};
  padded.pad_low = padded.pad_high = {1, 1};
  wide.window = {9, 9};
  above.pad_low = above.pad_high = {1, 0};
  fives.strides = {5, 5};
  EXPECT_THAT(kernels_of(channels_first(twos, 32, 20, 20)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(threes, 32, 20, 20)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(above, 32, 20, 20)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(halved, 3, 20, 20)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(twos, 32, 6, 6)), ElementsAre("pool"));
  // Their ends, where lanes would differ, come point by point.
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 40, 28), 2), ElementsAre("pool"));
  // Many points at the borders, or lanes far apart; elements that are read again along every other
  // column, or along rows that fill no register.
  const auto turned = ElementsAre("copy", "pool", "output");
  EXPECT_THAT(kernels_of(channels_first(wide, 32, 20, 40)), ElementsAre("pool")) << "no ends";
  wide.pad_low = wide.pad_high = {4, 4};
  EXPECT_THAT(kernels_of(channels_first(wide, 32, 20, 20)), turned);
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 40, 28)), turned);  // by one thread
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 20, 9)), turned);
  // Points at the borders come one by one, each with all of its taps; large images cost more to
  // turn.
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 20, 20)), turned);
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 14, 14)), turned);
  EXPECT_THAT(kernels_of(channels_first(padded, 700, 14, 14)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(padded, 32, 40, 40)), ElementsAre("pool"));
  EXPECT_THAT(kernels_of(channels_first(fives, 32, 20, 20)), ElementsAre("pool", "output"));
  EXPECT_THAT(kernels_of(channels_first(halved, 32, 20, 20)), turned);
  EXPECT_THAT(kernels_of(channels_first(threes, 32, 20, 9)), turned);
  for (const std::int64_t channels : {1, 3, 21, 32}) {
    for (const std::int64_t columns : {9, 20, 37}) {
      for (const op::WindowReduce& pool : {twos, threes, halved, above, padded})
        testing::expect_computed(channels_first(pool, channels, 11, columns));
    }
  }
}

TEST(Windows, depthwise_convolutions_inside_of_their_rows_go_along_them) {
  for (const std::int64_t stride : {1, 2}) {
    Graph graph;
    const Value x = transpose(graph.input("x", f32, {2, 20, 13, 19}), {0, 2, 3, 1});
    const op::Conv conv{.strides = {stride, stride}, .groups = 20, .channels_last = true};
    const Value y = graph.add_one(conv, {x, testing::weight(graph, {3, 3, 1, 20}, 1)});
    graph.output("y", transpose(relu(y), {0, 3, 1, 2}));
    if (stride == 1) {
      EXPECT_THAT(kernels_of(graph), ::testing::ElementsAre("depthwise"));
    }
    testing::expect_computed(graph);
  }
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
