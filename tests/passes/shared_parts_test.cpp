// Products over concatenations: what rows share is multiplied once, and the values are the same.
#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "passes/shared_parts.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

/// x [2, 3, 5, 7], g [2, 4, 1, 1] and h [6, 5, 1] along the channels, g and h along the pixels.
Value with_shared(Graph& graph) {
  const Value x = graph.input("x", f32, {2, 3, 5, 7});
  const Value g = graph.input("g", f32, {2, 4, 1, 1}), h = graph.input("h", f32, {6, 5, 1});
  const Value z = graph.input("z", f32, {2, 1, 5, 7});
  return concat({broadcast(g, {2, 4, 5, 7}), x, broadcast(h, {2, 6, 5, 7}), z}, 1);
}

std::int64_t products_of(const Graph& graph) {
  return testing::count<op::Conv>(graph) + testing::count<op::DotGeneral>(graph);
}

void expect_apart(const Graph& graph, std::int64_t products) {
  SCOPED_TRACE(print(graph));
  const Graph apart = passes::shared_parts(graph).value();
  EXPECT_EQ(products_of(apart), products);
  ASSERT_EQ(apart.type(apart.outputs()[0].value), graph.type(graph.outputs()[0].value));
  testing::expect_same_values(graph, apart, 1e-5);
}

TEST(SharedParts, ConvolutionsOfPixelsMultiplyThemOnce) {
  for (const Axes& strides : {Axes{}, Axes{2, 3}}) {
    Graph graph;
    const Value read = with_shared(graph), w = testing::weight(graph, {9, 14, 1, 1}, 3);
    graph.output("y", relu(graph.add_one(op::Conv{.strides = strides}, {read, w})));
    expect_apart(graph, 3);
  }
  // What one axis shares is as long along the other one.
  Graph graph;
  const Value read = with_shared(graph), w = testing::weight(graph, {9, 14, 1, 1}, 3);
  graph.output("y", graph.add_one(op::Conv{}, {read, w}));
  const Graph apart = passes::shared_parts(graph).value();
  const auto made = [&](const Dims& dims) {
    return std::ranges::any_of(apart.nodes(), [&](const Node& node) {
      return node.op.is<op::Conv>() && node.results[0].dims() == dims;
    });
  };
  EXPECT_TRUE(made({2, 9, 5, 7}) && made({2, 9, 1, 1}) && made({2, 9, 5, 1}));
}

/// A pooled image that is resized to its pixels again is the same at all of them.
TEST(SharedParts, SeesSinglePixelsThatAreResized) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 3, 6, 8}), g = graph.input("g", f32, {1, 4, 1, 1});
  op::Resize to_pixels{.sizes = {1, 4, 6, 8}, .mode = op::ResizeMode::linear};
  const Value read = concat({x, graph.add_one(to_pixels, {g})}, 1);
  graph.output("y", graph.add_one(op::Conv{}, {read, testing::weight(graph, {9, 7, 1, 1}, 3)}));
  Graph lowered = passes::lower(graph, [](const Graph&, const Node&) { return false; }).value();
  lowered = passes::canonicalise(std::move(lowered)).value();
  expect_apart(passes::simplify(std::move(lowered)).value(), 2);
}

TEST(SharedParts, RowsOfMatricesMultiplyThemOnce) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 5, 3}), g = graph.input("g", f32, {4});
  const Value read = concat({x, broadcast(g, {2, 5, 4})}, 2);
  graph.output("y", matmul(read, testing::weight(graph, {7, 6}, 3)));
  expect_apart(graph, 2);
  Graph turned;  // the same, the channels in front
  const Value of_turned = transpose(turned.input("x", f32, {2, 5, 3}), {2, 0, 1});
  const Value both =
      concat({broadcast(turned.input("g", f32, {4, 1, 1}), {4, 2, 5}), of_turned}, 0);
  turned.output("y", turned.add_one(op::DotGeneral{{}, {}, {0}, {1}},
                                    {both, testing::weight(turned, {6, 7}, 3)}));
  expect_apart(turned, 2);
}

TEST(SharedParts, LeavesWhatItDoesNotFit) {
  const auto stays = [](const auto& product) {
    Graph graph;
    graph.output("y", product(graph));
    return products_of(passes::shared_parts(graph).value()) == 1;
  };
  const auto conv_of = [&](const op::Conv& conv, const Shape& w) {
    return stays([&](Graph& graph) {
      return graph.add_one(conv, {with_shared(graph), testing::weight(graph, w, 3)});
    });
  };
  EXPECT_FALSE(conv_of({}, {9, 14, 1, 1}));
  EXPECT_TRUE(conv_of({}, {9, 14, 3, 1})) << "windows";
  EXPECT_TRUE(conv_of({.pad_low = {0, 1}, .pad_high = {0, 0}}, {9, 14, 1, 1})) << "zeros";
  EXPECT_TRUE(conv_of({.groups = 2}, {8, 7, 1, 1}));
  EXPECT_TRUE(stays([](Graph& graph) {
    const Value x = graph.input("x", f32, {2, 3, 5}), g = graph.input("g", f32, {2, 3, 1});
    const Value read = concat({x, broadcast(g, {2, 3, 4})}, 2);
    return graph.add_one(op::Conv{}, {read, testing::weight(graph, {9, 3, 1}, 3)});
  })) << "side by side along the rows";
  EXPECT_TRUE(stays([](Graph& graph) {
    const Value g = graph.input("g", f32, {1, 3, 1}), h = graph.input("h", f32, {1, 2, 1});
    const Value read = concat({broadcast(g, {1, 3, 5}), broadcast(h, {1, 2, 5})}, 1);
    return graph.add_one(op::Conv{}, {read, testing::weight(graph, {9, 5, 1}, 3)});
  })) << "nothing of its own";
  EXPECT_TRUE(stays([](Graph& graph) {
    const Value x = graph.input("x", f32, {1, 3, 5}), g = graph.input("g", f32, {1, 1, 5});
    const Value read = concat({x, broadcast(g, {1, 2, 5})}, 1);
    return graph.add_one(op::Conv{}, {read, testing::weight(graph, {9, 5, 1}, 3)});
  })) << "shared by channels, not by rows";
  EXPECT_TRUE(stays([](Graph& graph) {
    const Value read = with_shared(graph), w = graph.input("w", f32, {9, 14, 1, 1});
    return graph.add_one(op::Conv{}, {read, w});
  })) << "weights that runs make";
}

}  // namespace
}  // namespace rlx
