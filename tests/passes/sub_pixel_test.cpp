// Transposed convolutions as plain ones whose channels are phases.
#include <gtest/gtest.h>

#include <algorithm>

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

/// Takes that form of every question, by its name; the first one where it has none of that name.
passes::ChooseForms always(const std::string& name) {
  return [name](const Graph&, std::span<const passes::FormQuestion> asked) {
    std::vector<std::size_t> chosen;
    for (const passes::FormQuestion& question : asked) {
      const auto at = std::ranges::find(question.forms, name, &passes::ConvolutionForm::what);
      const bool has = at != question.forms.end();
      chosen.push_back(has ? static_cast<std::size_t>(at - question.forms.begin()) : 0);
    }
    return chosen;
  };
}

/// The pass keeps every value, whether it does something or not; `compiled`: so does all of the
/// compiler.
Graph checked(const Graph& graph, bool compiled = true,
              const passes::ChooseForms& choose = nullptr) {
  Graph made = passes::sub_pixel(graph, choose).value();
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

Graph upsampled_by(const op::Conv& conv, const Shape& x, const Shape& w, bool with_others) {
  Graph graph;
  const Value image = graph.input("x", f32, x);
  Value y = relu(graph.add_one(conv, {image, weight(graph, w, 3), weight(graph, {w[1]}, 4)}));
  if (with_others) {
    Shape others = y.shape();
    others[1] = 3;
    y = concat({y, weight(graph, others, 5)}, 1 - y.type().rank());  // counted from the end
  }
  graph.output("y", y);
  return graph;
}

/// The forms by name, and how many convolutions they are for these strides.
std::vector<std::pair<std::string, std::int64_t>> forms_of(const Axes& strides, bool among_others) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < strides.size(); ++i) rows *= strides[i];
  return {{"by rows of phases", rows},
          {"with all phases together", 1},
          {"phase by phase", among_others ? rows * strides.back() : rows}};
}

TEST(SubPixel, PhasesInPartsLieWhereTheyBelong) {
  struct Case {
    Shape x, w;
    Axes strides, cut;
  };
  const Case cases[] = {{{2, 16, 12, 11}, {16, 24, 2, 2}, {2, 2}, {0, 0}},
                        {{1, 16, 12, 11}, {16, 24, 4, 4}, {2, 2}, {1, 1}},
                        {{1, 16, 12, 11}, {16, 8, 5, 3}, {3, 2}, {1, 0}},
                        {{1, 16, 4, 6, 5}, {16, 8, 2, 2, 2}, {2, 2, 2}, {0, 0, 0}},
                        {{1, 16, 4, 6, 5}, {16, 8, 2, 3, 3}, {2, 3, 1}, {0, 1, 1}},
                        {{1, 16, 4, 6, 5}, {16, 8, 2, 1, 2}, {2, 1, 2}, {0, 0, 0}}};
  for (const Case& c : cases) {
    op::Conv conv{.strides = c.strides, .pad_low = c.cut, .pad_high = c.cut};
    conv.transposed = true;
    for (const bool with_others : {false, true}) {
      const Graph graph = upsampled_by(conv, c.x, c.w, with_others);
      for (const auto& [form, convolutions] : forms_of(c.strides, with_others)) {
        SCOPED_TRACE(graph.type(graph.outputs()[0].value).text() + " " + form);
        const Graph made = checked(graph, false, always(form));
        EXPECT_EQ(transposed(made), 0);
        EXPECT_EQ(testing::count<op::Conv>(made), convolutions);
      }
    }
  }
}

TEST(SubPixel, AsksOnlyWherePartsMayWin) {
  int questions = 0;
  const passes::ChooseForms count = [&](const Graph&, auto asked) {
    questions += static_cast<int>(asked.size());
    return std::vector<std::size_t>(asked.size(), 0);
  };
  op::Conv conv{.strides = {2, 2}};
  conv.transposed = true;
  checked(upsampling(conv, {1, 16, 12, 11}, {16, 24, 2, 2}), false, count);
  EXPECT_EQ(questions, 1);
  // Little work, one axis with phases, groups.
  checked(upsampling(conv, {1, 4, 3, 3}, {4, 2, 2, 2}), false, count);
  conv.strides = {1, 2};
  checked(upsampling(conv, {1, 16, 12, 11}, {16, 24, 2, 2}), false, count);
  conv.strides = {2, 2};
  conv.groups = 2;
  checked(upsampling(conv, {1, 16, 12, 11}, {16, 24, 2, 2}), false, count);
  EXPECT_EQ(questions, 1);
}

// Between convolutions nothing moves the phases: they are stored where the next one reads them.
TEST(SubPixel, PartsLeaveNoMapBetweenConvolutions) {
  op::Conv up{.strides = {2, 2}};
  up.transposed = true;
  const op::Conv next{.pad_low = {1, 1}, .pad_high = {1, 1}};
  for (const bool with_others : {false, true}) {
    Graph graph;
    Value x = graph.input("x", f32, {1, 32, 24, 24});
    x = relu(graph.add_one(next, {x, weight(graph, {64, 32, 3, 3}, 2)}));
    x = graph.add_one(up, {x, weight(graph, {64, 32, 2, 2}, 3), weight(graph, {32}, 4)});
    if (with_others) {
      const Value large = graph.input("large", f32, {1, 32, 48, 48});
      x = concat({relu(graph.add_one(next, {large, weight(graph, {32, 32, 3, 3}, 1)})), x}, 1);
    }
    x = graph.add_one(next, {x, weight(graph, {32, with_others ? 64 : 32, 3, 3}, 5)});
    graph.output("y", x);
    const auto maps = [&](bool together) {
      Session session(Device::cpu);
      CompileOptions options;
      options.answers["write conv (0) with all phases together"] = together;
      const Explanation plan = session.compile(graph, options).value().explain().value();
      return std::ranges::count(plan.kernels, "map", &Explanation::Kernel::name);
    };
    EXPECT_EQ(maps(false), 0);
    EXPECT_EQ(maps(true), 1);
  }
}

/// Channels that become places, (phases, out) or (out, phases), with maps on either side.
Graph shuffled(bool phases_first, const Axes& blocks, const Shape& x, std::int64_t out) {
  Graph graph;
  const std::size_t spatial = blocks.size();
  Shape split{x[0]}, joined{x[0], Dim(out)};
  Axes perm{0, phases_first ? static_cast<std::int64_t>(spatial) + 1 : 1}, pads(spatial, 1);
  std::int64_t channels = out;
  if (!phases_first) split.push_back(out);
  for (std::size_t i = 0; i < spatial; ++i) {
    split.push_back(blocks[i]);
    channels *= blocks[i];
    joined.push_back(x[i + 2].value() * blocks[i]);
    const auto axis = static_cast<std::int64_t>(i);
    perm.insert(perm.end(),
                {static_cast<std::int64_t>(spatial) + 2 + axis, axis + (phases_first ? 1 : 2)});
  }
  if (phases_first) split.push_back(out);
  split.insert(split.end(), x.begin() + 2, x.end());
  Shape w{Dim(channels), x[1]}, by_channel(spatial + 1, Dim(1));
  w.insert(w.end(), spatial, Dim(3));
  Value y = graph.add_one(
      op::Conv{.pad_low = pads, .pad_high = pads},
      {graph.input("x", f32, x), weight(graph, w, 1), weight(graph, {Dim(channels)}, 2)});
  by_channel[0] = channels;
  y = y * weight(graph, by_channel, 3);
  y = reshape(transpose(reshape(y, split), perm), joined);
  by_channel[0] = out;
  graph.output("y", relu(y + weight(graph, by_channel, 4)));
  return graph;
}

TEST(SubPixel, ShufflesWeightsInsteadOfChannels) {
  for (const bool phases_first : {true, false}) {
    for (const Axes& blocks : {Axes{2, 2}, Axes{3, 2}, Axes{2, 2, 2}, Axes{2, 1}}) {
      const Shape x = blocks.size() == 3 ? Shape{1, 8, 4, 5, 3} : Shape{2, 8, 9, 7};
      const Graph graph = shuffled(phases_first, blocks, x, 12);
      for (const auto& [form, convolutions] : forms_of(blocks, false)) {
        SCOPED_TRACE(::testing::PrintToString(blocks) + form);
        const Graph made = checked(graph, false, always(form));
        EXPECT_EQ(testing::count<op::Conv>(made), convolutions);
        EXPECT_EQ(print(made) == print(graph), form == "with all phases together");
      }
      EXPECT_EQ(print(checked(graph, false)), print(graph)) << "nobody was asked";
    }
  }
}

// Shuffled together for a reader, they are woven behind all maps.
TEST(SubPixel, MapsComeBeforeTheShuffle) {
  Graph graph;
  Value y = graph.add_one(op::Conv{},
                          {graph.input("x", f32, {1, 16, 9, 8}), weight(graph, {48, 16, 1, 1}, 1)});
  y = reshape(transpose(reshape(y, {1, 12, 2, 2, 9, 8}), {0, 1, 4, 2, 5, 3}), {1, 12, 18, 16});
  y = relu(y * weight(graph, {12, 1, 1}, 2));
  graph.output("y", graph.add_one(op::Conv{}, {y, weight(graph, {8, 12, 1, 1}, 3)}));
  const Graph made = checked(graph, false, always("with all phases together"));
  const auto is_relu = [](const Node& node) { return node.op.is<op::Relu>(); };
  const auto at = std::ranges::find_if(made.nodes(), is_relu);
  ASSERT_NE(at, made.nodes().end());
  EXPECT_EQ(at->results[0].dims(), (Dims{1, 9, 8, 48}));
}

TEST(SubPixel, LeavesOtherMovesOfChannelsAlone) {
  const passes::ChooseForms nobody = [](const Graph&, auto asked) {
    EXPECT_TRUE(asked.empty());
    return std::vector<std::size_t>(asked.size(), 0);
  };
  const auto moved = [&](const Shape& split, const Axes& perm, const Shape& joined) {
    Graph graph;
    const Value y = graph.add_one(
        op::Conv{}, {graph.input("x", f32, {1, 32, 8, 8}), weight(graph, {32, 32, 1, 1}, 1)});
    graph.output("y", reshape(transpose(reshape(y, split), perm), joined));
    EXPECT_EQ(print(checked(graph, false, nobody)), print(graph));
  };
  // The phases swapped, in front of their places, and a shuffle of channels in groups.
  moved({1, 8, 2, 2, 8, 8}, {0, 1, 4, 3, 5, 2}, {1, 8, 16, 16});
  moved({1, 8, 2, 2, 8, 8}, {0, 1, 2, 4, 3, 5}, {1, 8, 16, 16});
  moved({1, 4, 8, 8, 8}, {0, 2, 1, 3, 4}, {1, 32, 8, 8});
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
