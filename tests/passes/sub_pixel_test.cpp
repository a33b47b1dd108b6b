// Transposed convolutions as plain ones whose channels are phases.
#include <gtest/gtest.h>

#include "passes/sub_pixel.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::weight;

int transposed(const Graph& graph) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
        const auto* conv = node.op.as<op::Conv>();
        return conv && conv->transposed;
      }));
}

/// The pass keeps every value, whether it does something or not; `compiled`: so does all of the
/// compiler.
Graph checked(const Graph& graph, bool compiled = true) {
  Graph made = passes::sub_pixel(graph).value();
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const Tensor wanted = evaluate_graph(graph, inputs).value()[0];
  std::vector<Tensor> results{evaluate_graph(made, inputs).value()[0]};
  if (compiled) {
    Session session(Device::cpu);
    const std::vector<NamedInput> named{{"x", inputs[0]}};
    const Outputs run =
        session.compile(graph).value().run(std::span<const NamedInput>(named)).value();
    results.push_back(run[0]);
  }
  for (const Tensor& got : results) {
    EXPECT_EQ(got.dims(), wanted.dims());
    for (std::size_t i = 0; i < wanted.as<float>().size(); ++i)
      EXPECT_NEAR(got.as<float>()[i], wanted.as<float>()[i], 1e-4) << i;
  }
  return made;
}

Graph upsampling(const op::Conv& conv, Shape x, Shape w) {
  Graph graph;
  graph.output("y", graph.add_one(conv, {graph.input("x", f32, std::move(x)),
                                         weight(graph, std::move(w), 3)}));
  return graph;
}

TEST(SubPixel, KernelsOfEverySizeBesideTheStride) {
  for (const std::int64_t kernel : {1, 2, 3, 4, 5}) {
    for (const std::int64_t stride : {2, 3}) {
      for (const std::int64_t cut : {0, 1, 2}) {
        op::Conv conv{.strides = {stride, 2}, .pad_low = {cut, 0}, .pad_high = {0, 1}};
        conv.transposed = true;
        SCOPED_TRACE(std::to_string(kernel) + " " + std::to_string(stride) + " " +
                     std::to_string(cut));
        checked(upsampling(conv, {2, 3, 5, 4}, {3, 5, kernel, 3}), kernel == 4 && stride == 2);
      }
    }
  }
}

TEST(SubPixel, GroupsOutputPaddingAndOneAxis) {
  op::Conv conv{.strides = {1, 2}, .pad_low = {0, 1}, .pad_high = {0, 1}, .groups = 2};
  conv.transposed = true;
  conv.output_padding = {0, 1};
  EXPECT_EQ(transposed(checked(upsampling(conv, {1, 8, 3, 6}, {8, 3, 1, 5}))), 0);
  op::Conv line{.strides = {4}, .pad_low = {2}, .pad_high = {2}};
  line.transposed = true;
  EXPECT_EQ(transposed(checked(upsampling(line, {1, 4, 9}, {4, 6, 8}))), 0);
}

TEST(SubPixel, LeavesDilatedAndDepthwiseOnesAlone) {
  op::Conv conv{.strides = {2}, .dilations = {2}};
  conv.transposed = true;
  EXPECT_EQ(transposed(checked(upsampling(conv, {1, 4, 9}, {4, 6, 3}))), 1);
  op::Conv depthwise{.strides = {2}, .groups = 4};
  depthwise.transposed = true;
  EXPECT_EQ(transposed(checked(upsampling(depthwise, {1, 4, 9}, {4, 1, 2}))), 1);
}

// What follows goes with it: bias, normalisation by channels, activation; a residual does not.
TEST(SubPixel, TakesMapsOverChannelsAlong) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 4, 3, 5});
  op::Conv conv{.strides = {2, 2}};
  conv.transposed = true;
  Value y = graph.add_one(conv, {x, weight(graph, {4, 6, 2, 2}, 1), weight(graph, {6}, 2)});
  y = y * weight(graph, {1, 6, 1, 1}, 4) + weight(graph, {6, 1, 1}, 5);
  y = relu(y) + graph.constant(f32, 0.25);
  graph.output("y", y + weight(graph, {1, 1, 6, 10}, 6));
  const Graph made = checked(graph);
  const auto is_relu = [](const Node& node) { return node.op.is<op::Relu>(); };
  const auto at = std::find_if(made.nodes().begin(), made.nodes().end(), is_relu);
  ASSERT_NE(at, made.nodes().end());
  EXPECT_EQ(at->results[0].dims(), (Dims{1, 3, 5, 24}));
}

}  // namespace
}  // namespace rlx
