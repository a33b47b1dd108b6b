// Reductions of whole images row by row: the same values, only where workers gain by it.
#include <gtest/gtest.h>

#include "passes/sums_of_rows.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

/// A channel's factor by a product with what a reduction gave, as squeeze and excitation has it.
Graph reduced_image(Dims dims, Axes axes, Reduction kind = Reduction::sum) {
  Graph graph;
  const auto channels = dims.back();
  const Value x = graph.input("x", f32, Shape(dims.begin(), dims.end()));
  const Value all = reduce(x, kind, std::move(axes), true) * graph.constant(f32, 0.25);
  const Value weight = graph.input("w", f32, {channels, 3});
  graph.output("y", matmul(reshape(all, {1, channels}), weight));
  return graph;
}

TEST(SumsOfRows, ImagesAreReducedRowByRow) {
  for (const Reduction kind : {Reduction::sum, Reduction::max, Reduction::min}) {
    const Graph graph = reduced_image({1, 40, 40, 24}, {1, 2}, kind);
    const Graph split = passes::sums_of_rows(graph, 2).value();
    EXPECT_EQ(testing::reductions_of(split), (std::vector<Axes>{{2}, {1}}));
    testing::expect_same_values(graph, split, 1e-5);
  }
  Graph output;
  output.output("y", reduce(output.input("x", f32, {1, 40, 40, 24}), Reduction::sum, {1, 2}, true));
  EXPECT_EQ(testing::reductions_of(passes::sums_of_rows(output, 2).value()),
            (std::vector<Axes>{{2}, {1}}));
  const Graph volume = reduced_image({1, 6, 20, 20, 24}, {2, 1, 3});
  const Graph split = passes::sums_of_rows(volume, 2).value();
  EXPECT_EQ(testing::reductions_of(split), (std::vector<Axes>{{2, 3}, {1}}));
  testing::expect_same_values(volume, split, 1e-5);
}

TEST(SumsOfRows, NormsAreTakenRowByRow) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 40, 40, 24});
  const Value each = graph.constant(f32, 1.0 / 1600);
  const Value centred = x - reduce(x, Reduction::sum, {1, 2}, true) * each;
  const Value variance = reduce(centred * centred, Reduction::sum, {1, 2}, true) * each;
  graph.output("y", centred * rsqrt(variance + graph.constant(f32, 1e-5)));
  const Graph split = passes::sums_of_rows(graph, 2).value();
  EXPECT_EQ(testing::reductions_of(split), (std::vector<Axes>{{2}, {1}, {2}, {1}}));
  testing::expect_same_values(graph, split, 1e-5);
}

TEST(SumsOfRows, OthersStay) {
  const auto stays = [](const Graph& graph, int workers = 2) {
    return print(passes::sums_of_rows(graph, workers).value()) == print(graph);
  };
  EXPECT_TRUE(stays(reduced_image({1, 40, 40, 24}, {1, 2}), 1)) << "one worker has all rows";
  EXPECT_TRUE(stays(reduced_image({1, 20, 20, 24}, {1, 2}))) << "too small to be shared out";
  EXPECT_TRUE(stays(reduced_image({1, 3, 800, 24}, {1, 2}))) << "too few rows";
  EXPECT_TRUE(stays(reduced_image({1, 1600, 24}, {1}))) << "one axis has no rows";
  Graph lanes;
  const Value planes = lanes.input("x", f32, {1, 24, 40, 40});
  lanes.output("y", reduce(planes, Reduction::sum, {2, 3}, true));
  EXPECT_TRUE(stays(lanes)) << "workers have channels";
}

}  // namespace
}  // namespace rlx
