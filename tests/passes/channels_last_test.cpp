// Channels-last images: the shuffle of channels between groups moves along the channels alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/op_info.hpp"
#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

Tensor counted(const Dims& dims) {
  Tensor tensor(f32, dims);
  auto* data = reinterpret_cast<float*>(tensor.mutable_data());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) data[i] = static_cast<float>(i);
  return tensor;
}

/// Max pools around `middle` make the pass hold the image channels last.
Graph between_pools(const Dims& dims, const std::function<Value(Value)>& middle) {
  Graph graph;
  const op::WindowReduce pool{.kind = Reduction::max, .window = {2, 2}};
  const Value x = graph.input("x", f32, {dims.begin(), dims.end()});
  graph.output("y", graph.add_one(pool, {middle(graph.add_one(pool, {x}))}));
  return graph;
}

/// Transposes between the two pools that move more than axes of channels.
int image_transposes(const Graph& graph) {
  int count = 0;
  bool inside = false;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::WindowReduce>()) inside = !inside;
    const auto* transpose = node.op.as<op::Transpose>();
    if (inside && transpose && (transpose->perm[1] != 1 || transpose->perm[2] != 2)) ++count;
  }
  return count;
}

void expect_same(const Graph& graph, const Graph& made, const Dims& dims) {
  const std::vector<Tensor> wanted = evaluate_graph(graph, std::vector{counted(dims)}).value();
  const std::vector<Tensor> found = evaluate_graph(made, std::vector{counted(dims)}).value();
  ASSERT_EQ(found[0].dims(), wanted[0].dims());
  const std::span<const float> a = found[0].as<float>(), b = wanted[0].as<float>();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
}

TEST(ChannelsLast, ShuffledChannelsStayBehindTheImage) {
  const Dims dims{2, 12, 5, 7};
  const Graph graph = between_pools(dims, [](Value x) {
    const Value groups = reshape(x, {2, 3, 4, 4, 6});
    return reshape(transpose(groups, {0, 2, 1, 3, 4}), {2, 12, 4, 6});
  });
  const Graph made = passes::channels_last(graph).value();
  expect_same(graph, made, dims);
  EXPECT_EQ(image_transposes(made), 0);
}

TEST(ChannelsLast, OtherReshapesKeepTheirMeaning) {
  const Dims dims{2, 12, 5, 7};
  for (const Shape& shape : {Shape{2, 4, 12, 6}, Shape{2, 6, 2, 4, 6}, Shape{4, 6, 4, 6},
                             Shape{2, 12, 6, 4}, Shape{24, 1, 4, 6}}) {
    const Graph graph = between_pools(
        dims, [&](Value x) { return reshape(relu(reshape(x, shape)), {2, 12, 4, 6}); });
    expect_same(graph, passes::channels_last(graph).value(), dims);
  }
}

// Windows of 7 x 7 pixels become grids of them: 8 x 7 and 7 x 8 have no factors in common, but the
// channels do not take part.
TEST(ChannelsLast, ChannelsStayLastBetweenPartitionsOfAnImage) {
  const Dims dims{1, 8, 8, 7, 7, 5};
  Graph graph;
  const Value windows = graph.input("x", f32, {dims.begin(), dims.end()});
  const Value image = transpose(windows, {0, 5, 1, 3, 2, 4});
  const Value grid = transpose(reshape(image, {1, 5, 7, 8, 7, 8}), {0, 1, 2, 4, 3, 5});
  graph.output("y", relu(transpose(reshape(grid, {1, 5, 49, 64}), {0, 3, 2, 1})));
  const Graph made = passes::channels_last(graph).value();
  expect_same(graph, made, dims);
  const Graph live = passes::drop_dead(made).value();
  int transposes = 0;
  for (const Node& node : live.nodes()) {
    const auto* transpose = node.op.as<op::Transpose>();
    if (!transpose) continue;
    ++transposes;
    EXPECT_EQ(transpose->perm.back(), std::ssize(transpose->perm) - 1);
  }
  EXPECT_GT(transposes, 0);
}

/// The transposes that an output is made of, weights' left out.
int live_transposes(const Graph& graph) {
  const Graph live = passes::drop_dead(graph).value();
  const std::vector<bool> is_weight = weight_only_nodes(live);
  int count = 0;
  for (std::size_t i = 0; i < live.nodes().size(); ++i)
    count += live.nodes()[i].op.is<op::Transpose>() && !is_weight[i];
  return count;
}

// Of two values of one size products keep their order: the other one, which a table gave for each
// pair of positions, is turned.
TEST(ChannelsLast, PositionsDoNotTurnScores) {
  Graph graph;
  const Value q = graph.input("q", f32, {1, 4, 6, 8}), k = graph.input("k", f32, {1, 4, 8, 6}),
              v = graph.input("v", f32, {1, 4, 6, 8}), pairs = graph.input("pairs", i64, {6, 6});
  const Value table = graph.param("table", f32, {10, 4});
  const Value bias = transpose(graph.add_one(op::Gather{0}, {table, pairs}), {2, 0, 1});
  const Value scores = matmul(q, k) + reshape(bias, {1, 4, 6, 6});
  const Value powers = exp(scores - reduce(scores, Reduction::max, {3}, true));
  graph.output("y", matmul(powers, v));
  EXPECT_EQ(live_transposes(passes::channels_last(graph).value()), 1);
  // An image beside a product's result stays as it is: pools want it so.
  Graph image;
  const op::WindowReduce pool{.kind = Reduction::max, .window = {2, 2}};
  const Value x = image.add_one(pool, {image.input("x", f32, {1, 4, 7, 8})});
  const Value mixed =
      matmul(image.input("a", f32, {1, 4, 6, 5}), image.input("b", f32, {1, 4, 5, 7}));
  image.output("y", image.add_one(pool, {x + mixed}));
  const Graph made = passes::channels_last(image).value();
  const auto sum =
      std::ranges::find_if(made.nodes(), [](const Node& n) { return n.op.is<op::Add>(); });
  ASSERT_NE(sum, made.nodes().end());
  EXPECT_EQ(sum->results[0].dims(), (Dims{1, 6, 7, 4}));
}

// Weights have no say: positions that are resized as an image do not turn the rows that they are
// added to.
TEST(ChannelsLast, WeightsDoNotTurnWhatTheyAreAddedTo) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 12, 5});
  const Value image = graph.param("positions", f32, {1, 5, 3, 4});
  const op::WindowReduce same{.kind = Reduction::mean, .window = {1, 1}};
  const Value rows = reshape(transpose(graph.add_one(same, {image}), {0, 2, 3, 1}), {1, 12, 5});
  graph.output("turned first", relu(x + transpose(reshape(image, {1, 5, 12}), {0, 2, 1})));
  graph.output("y", relu(x + rows));
  const Graph made = passes::channels_last(graph).value();
  EXPECT_EQ(live_transposes(made), 0);
  for (const Node& node : made.nodes())
    EXPECT_TRUE(!node.op.is<op::Relu>() || node.results[0].dims() == (Dims{1, 12, 5}));
}

/// The dims of the only transposition of an image behind the pool.
Dims turned_behind_pool(const Graph& graph) {
  Dims dims;
  bool behind = false;
  for (const Node& node : graph.nodes()) {
    behind = behind || node.op.is<op::WindowReduce>();
    if (!behind || !node.op.is<op::Transpose>()) continue;
    EXPECT_TRUE(dims.empty()) << print(graph);
    dims = node.results[0].dims();
  }
  return dims;
}

// What grows an image that no window reads is done with its channels first, where it is smaller to
// turn; what shrinks it, or stands before another pool, is not.
TEST(ChannelsLast, AnImageThatGrowsAtTheEndIsTurnedBefore) {
  const Dims dims{1, 6, 9, 11};
  const auto resized = [](Value x, std::int64_t rows, std::int64_t columns) {
    const op::Resize resize{.sizes = {1, 6, rows, columns}, .mode = op::ResizeMode::linear};
    return x.graph().add_one(resize, {x});
  };
  const auto picked = [](Value x, std::int64_t count) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(i / 3);
    return gather(x, x.graph().constant(Tensor::of<std::int64_t>({count}, rows)), 2);
  };
  const auto behind_pool = [&](const std::function<Value(Value)>& end) {
    Graph graph;
    const op::WindowReduce pool{.kind = Reduction::max, .window = {2, 2}};
    const Value x = graph.input("x", f32, {dims.begin(), dims.end()});
    graph.output("y", end(graph.add_one(pool, {x})));
    return graph;
  };
  const std::pair<Graph, Dims> cases[] = {
      {behind_pool([&](Value x) { return relu(resized(x, 16, 20)); }), {1, 6, 8, 10}},
      {behind_pool([&](Value x) { return relu(resized(x, 4, 5)); }), {1, 6, 4, 5}},
      {behind_pool([&](Value x) { return picked(x, 20); }), {1, 6, 8, 10}},
      {behind_pool([&](Value x) { return picked(x, 5); }), {1, 6, 5, 10}},
  };
  for (const auto& [graph, turned] : cases) {
    const Graph made = passes::channels_last(graph).value();
    EXPECT_EQ(turned_behind_pool(made), turned) << print(made);
    expect_same(graph, made, dims);
  }
  const Graph graph = between_pools(dims, [&](Value x) { return resized(x, 16, 20); });
  EXPECT_EQ(image_transposes(passes::channels_last(graph).value()), 0);
}

TEST(ChannelsLast, PlacesOfExtremesOfChannelsAreFoundWhereTheyLie) {
  const Dims dims{2, 6, 5, 7};
  for (const std::int64_t axis : {1, -3, 2, -1}) {
    Graph graph;
    const op::WindowReduce pool{.kind = Reduction::max, .window = {2, 2}};
    const Value x = graph.add_one(pool, {graph.input("x", f32, {dims.begin(), dims.end()})});
    const Value places = graph.add_one(op::ArgReduce{.axis = axis, .keep_dims = true}, {x});
    graph.output("y", cast(places, f32));
    const Graph made = passes::channels_last(graph).value();
    expect_same(graph, made, dims);
    for (const Node& node : made.nodes()) {
      if (!node.op.is<op::ArgReduce>()) continue;
      EXPECT_FALSE(made.node(node.inputs[0]).op.is<op::Transpose>()) << print(made);
    }
  }
}

}  // namespace
}  // namespace rlx
