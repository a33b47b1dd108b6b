// Norms in other shapes: the same values, and only such norms.
#include "passes/recast_norms.hpp"

#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

struct Parts {
  Dims image;
  std::int64_t groups = 4;

  Dims split() const {
    Dims dims = image;
    dims.back() = groups;
    dims.push_back(image.back() / groups);
    return dims;
  }
  /// All axes but the first and the groups'.
  Axes reduced() const {
    Axes axes;
    for (std::int64_t axis = 1; axis < std::ssize(image) - 1; ++axis) axes.push_back(axis);
    axes.push_back(std::ssize(image));
    return axes;
  }
  double count() const {
    double product = static_cast<double>(image.back()) / static_cast<double>(groups);
    for (std::size_t i = 1; i + 1 < image.size(); ++i) product *= static_cast<double>(image[i]);
    return product;
  }
};

/// (x - mean) / deviation of each group, with a scale by group and channel, in the image's shape.
Graph group_norm(const Parts& parts) {
  Graph graph;
  const Value x = reshape(graph.input("x", f32, to_shape(parts.image)), to_shape(parts.split()));
  const Value each = graph.constant(f32, 1 / parts.count());
  const Value centred = x - reduce(x, Reduction::sum, parts.reduced(), true) * each;
  const Value variance = reduce(centred * centred, Reduction::sum, parts.reduced(), true) * each;
  const Value scale = graph.input("scale", f32, {parts.groups, 1});
  const Value offset = graph.input("offset", f32, {parts.split().back()});
  const Value normed = centred * rsqrt(variance + graph.constant(f32, 1e-5)) * scale + offset;
  graph.output(
      "y", reshape(normed, to_shape(parts.image)) + graph.input("w", f32, {parts.image.back()}));
  return graph;
}

Graph together(const Graph& graph) {
  Graph made = passes::simplify(passes::recast_norms(graph, 1).value()).value();
  return passes::drop_dead(std::move(made)).value();
}

TEST(RecastNorms, GroupsAreTakenChannelByChannel) {
  for (const Parts& parts : {Parts{{1, 16, 16, 12}, 4}, Parts{{2, 9, 7, 20}, 10},
                             Parts{{1, 200, 16}, 2}, Parts{{1, 4, 6, 8, 24}, 3}}) {
    const Graph graph = group_norm(parts);
    const Graph made = together(graph);
    Axes outer = parts.reduced();
    const Axes last{outer.back()};
    outer.pop_back();
    EXPECT_EQ(testing::reductions_of(made), (std::vector<Axes>{outer, last, outer, last}));
    for (const Node& node : made.nodes()) {
      if (node.op.info().traits.elementwise && node.results[0].elements() > 1000) {
        EXPECT_EQ(node.results[0].dims(), parts.image);
      }
    }
    testing::expect_same_values(graph, made, 2e-5);
  }
}

TEST(RecastNorms, MaximaAndOtherReadersKeepTheirValues) {
  const Parts parts{{1, 16, 16, 12}, 4};
  Graph graph;
  const Value image = graph.input("x", f32, to_shape(parts.image));
  const Value x = exp(reshape(image, to_shape(parts.split())));
  const Value other =
      reshape(graph.input("other", f32, to_shape(parts.image)), to_shape(parts.split()));
  const Value largest = reduce(x, Reduction::max, parts.reduced(), true);
  graph.output("y", (x + other) / largest);                    // in the shape of the groups
  graph.output("sums", reduce(x, Reduction::sum, {3}, true));  // of other axes
  graph.output("turned", transpose(x, {0, 3, 1, 2, 4}));
  const Graph made = together(graph);
  EXPECT_EQ(testing::reductions_of(made), (std::vector<Axes>{{1, 2}, {4}, {3}}));
  testing::expect_same_values(graph, made, 1e-6);
}

/// A norm of each channel over time, with what a layer adds behind it.
Graph norm_over_time(Dims dims) {
  Graph graph;
  const Value x = graph.input("x", f32, to_shape(dims));
  const auto axis = std::ssize(dims) - 2;
  const Value each = graph.constant(f32, 1 / static_cast<double>(dims[dims.size() - 2]));
  const Value centred = x - reduce(x, Reduction::sum, {axis}, true) * each;
  const Value variance = reduce(centred * centred, Reduction::sum, {axis}, true) * each;
  const Value scale = graph.input("scale", f32, {dims.back()});
  const Value normed = tanh(centred * rsqrt(variance + graph.constant(f32, 1e-5)) * scale);
  graph.output("y", normed + graph.input("residual", f32, to_shape(dims)));
  return graph;
}

TEST(RecastNorms, LongAxesAreTakenApartForWorkers) {
  struct Case {
    Dims dims;
    std::int64_t parts;
  };
  for (const auto& [dims, parts] :
       {Case{{1, 3199, 32}, 7}, Case{{2, 1024, 16}, 16}, Case{{600, 60}, 15},
        Case{{3, 2 * 521, 16}, 0}, Case{{1, 256, 16}, 0}, Case{{4, 144, 256}, 0}}) {
    const Graph graph = norm_over_time(dims);
    EXPECT_EQ(print(passes::recast_norms(graph, 1).value()), print(graph));
    const Graph made = passes::recast_norms(graph, 2).value();
    const auto axis = std::ssize(dims) - 2;
    if (parts == 0) {
      EXPECT_EQ(print(made), print(graph)) << dims[dims.size() - 2];
      continue;
    }
    EXPECT_EQ(testing::reductions_of(made), (std::vector<Axes>(2, {axis, axis + 1})));
    Dims apart = dims;
    apart[static_cast<std::size_t>(axis)] /= parts;
    apart.insert(apart.begin() + axis, parts);
    for (const Node& node : made.nodes()) {
      // What another value joins is computed where that one is made.
      if (node.op.is<op::Tanh>()) {
        EXPECT_EQ(node.results[0].dims(), apart);
      }
      if (node.op.is<op::Add>() && node.results[0].elements() > 5000) {
        EXPECT_EQ(node.results[0].dims(), dims);
      }
    }
    testing::expect_same_values(graph, made, 2e-5);
  }
}

TEST(RecastNorms, MeansOverTimeThatMeetNothingAgainStay) {
  Graph graph;
  graph.output("y", reduce(graph.input("x", f32, {1, 2048, 64}), Reduction::sum, {1}, true));
  EXPECT_EQ(print(passes::recast_norms(graph, 2).value()), print(graph));
}

TEST(RecastNorms, OthersStay) {
  const auto stays = [](const Graph& graph) {
    return print(passes::recast_norms(graph, 2).value()) == print(graph);
  };
  EXPECT_TRUE(stays(group_norm({{1, 4, 4, 12}, 4}))) << "too small";
  EXPECT_TRUE(stays(group_norm({{1, 16, 16, 12}, 1}))) << "one group has all channels";
  EXPECT_TRUE(stays(group_norm({{1, 16, 16, 12}, 12}))) << "a group is a channel";
  EXPECT_TRUE(stays(group_norm({{1, 1, 1, 4096}, 64}))) << "a row is no image";
  Graph rows;  // a norm over the channels of each pixel's groups
  const Value x = reshape(rows.input("x", f32, {1, 16, 16, 12}), {1, 16, 16, 4, 3});
  rows.output("y", x - reduce(x, Reduction::sum, {4}, true));
  EXPECT_TRUE(stays(rows));
  Graph image;  // repeated by channel, what the pixels are multiplied by would be an image
  const Value y = reshape(image.input("x", f32, {1, 16, 16, 12}), {1, 16, 16, 4, 3});
  const Value weights = image.input("w", f32, {16, 16, 1, 1});
  image.output("y", reduce(y * weights, Reduction::sum, {1, 2, 4}, true));
  EXPECT_TRUE(stays(image));
}

}  // namespace
}  // namespace rlx
