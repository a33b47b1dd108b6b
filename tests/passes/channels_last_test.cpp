// Channels-last images: the shuffle of channels between groups moves along the channels alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/op_info.hpp"
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

}  // namespace
}  // namespace rlx
