// Convolutions with few output channels in other forms: the same values, only where they may and
// where they are faster.
#include <gtest/gtest.h>

#include <algorithm>

#include "one_by_one.hpp"
#include "passes/axis_order.hpp"
#include "passes/few_channels.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

struct Case {
  Dims image, filter;  ///< [N, spatial..., C], [spatial..., C, n]
  op::Conv conv;
};

Value weights(Graph& graph, const Dims& dims, std::uint32_t seed) {
  std::mt19937 generator(seed);
  const Type type{f32, Shape(dims.begin(), dims.end())};
  return graph.constant(testing::noise(type, -1, 1, generator));
}

/// With a bias and an activation, or alone.
Graph convolution(const Case& c, bool maps) {
  Graph graph;
  const Value x = graph.input("x", f32, Shape(c.image.begin(), c.image.end()));
  op::Conv conv = c.conv;
  conv.channels_last = true;
  const Value y = graph.add_one(conv, {x, weights(graph, c.filter, 3)});
  const Dims channels{c.filter.back()};
  graph.output("y", maps ? relu(y + weights(graph, channels, 5)) * graph.constant(f32, 0.5) : y);
  return graph;
}

const op::Conv* only_convolution(const Graph& graph) {
  const op::Conv* found = nullptr;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Conv>()) found = node.op.as<op::Conv>();
  }
  return found;
}

/// Answers with the last form whose name has `part` in it.
passes::ChooseForms prefer(std::string part, int* asked = nullptr) {
  return testing::one_by_one([part = std::move(part), asked](const Node&, const auto& forms) {
    if (asked) ++*asked;
    for (std::size_t i = forms.size(); i-- > 1;) {
      if (forms[i].what.find(part) != std::string::npos) return i;
    }
    return std::size_t{0};
  });
}

TEST(FewChannels, NeighbouringColumnsGiveTheSameValues) {
  const Case cases[] = {
      {{1, 28, 28, 1}, {5, 5, 1, 8}, {.pad_low = {2, 2}, .pad_high = {2, 2}}},
      {{2, 7, 33, 8}, {3, 39, 8, 8}, {.pad_low = {1, 19}, .pad_high = {1, 19}}},
      {{1, 20, 37, 16}, {3, 9, 16, 5}, {.strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {0, 3}}},
      {{1, 31, 40, 5}, {5, 11, 5, 4}, {.strides = {1, 3}, .pad_low = {0, 2}, .pad_high = {2, 1}}},
      {{1, 30, 45, 6}, {2, 8, 6, 8}, {.strides = {1, 2}, .dilations = {3, 2}}},
      {{1, 5000, 1}, {64, 1, 1}, {.strides = {2}}},
  };
  for (const Case& c : cases) {
    for (const bool maps : {false, true}) {
      const Graph direct = convolution(c, maps);
      const Graph made = passes::few_channels(direct, prefer("side by side")).value();
      SCOPED_TRACE(print(direct));
      ASSERT_TRUE(only_convolution(made));
      ASSERT_GT(only_convolution(made)->strides.back(),
                c.conv.strides.empty() ? 1 : c.conv.strides.back());
      ASSERT_EQ(made.type(made.outputs()[0].value), direct.type(direct.outputs()[0].value));
      testing::expect_same_values(direct, made, 1e-4, 1e-5);
    }
  }
}

TEST(FewChannels, ProductsOfTapsGiveTheSameValues) {
  const Case cases[] = {
      {{1, 22, 17, 64}, {5, 5, 64, 1}, {.pad_low = {2, 2}, .pad_high = {2, 2}}},
      {{2, 11, 12, 32}, {3, 3, 32, 3}, {.pad_low = {0, 2}, .pad_high = {1, 0}}},
      {{1, 25, 24, 16},
       {3, 2, 16, 8},
       {.pad_low = {3, 1}, .pad_high = {2, 1}, .dilations = {2, 3}}},
      {{1, 700, 40}, {7, 40, 1}, {.pad_low = {3}, .pad_high = {3}}},
      {{1, 9, 10, 11, 16}, {2, 3, 2, 16, 2}, {}},
  };
  for (const Case& c : cases) {
    for (const bool maps : {false, true}) {
      const Graph direct = convolution(c, maps);
      const Graph made = passes::few_channels(direct, prefer("as one product")).value();
      SCOPED_TRACE(print(direct));
      ASSERT_FALSE(only_convolution(made));
      ASSERT_EQ(made.type(made.outputs()[0].value), direct.type(direct.outputs()[0].value));
      testing::expect_same_values(direct, made, 1e-4, 1e-5);
    }
  }
}

/// An image [N, C, spatial...], which convolutions read with its channels last, and a result that
/// is read in the order of the image.
Graph planes(const Dims& image, std::int64_t outputs, const op::Conv& conv = {}) {
  Graph graph;
  const std::int64_t channels = image[1];
  const Axes to = passes::to_channels_last(static_cast<int>(image.size()));
  const Value x = transpose(graph.input("x", f32, Shape(image.begin(), image.end())), to);
  Dims filter(image.size() - 2, 1);
  filter.insert(filter.end(), {channels, outputs});
  op::Conv last = conv;
  last.channels_last = true;
  const Value y = graph.add_one(last, {x, weights(graph, filter, 3)});
  graph.output("y", transpose(relu(y + weights(graph, {outputs}, 5)), passes::inverse(to)));
  return graph;
}

TEST(FewChannels, OneTapOfPlanesIsAProductOfTheWeightsAndAllPoints) {
  for (const Dims& image :
       {Dims{1, 16, 60, 61}, Dims{1, 40, 1400}, Dims{1, 64, 9, 10, 11}, Dims{3, 16, 40, 41}}) {
    for (const std::int64_t outputs : {1, 4, 21, 64}) {
      const Graph direct = planes(image, outputs);
      const Graph made = passes::few_channels(direct, prefer("all points")).value();
      SCOPED_TRACE(print(direct));
      ASSERT_FALSE(only_convolution(made));
      // Nothing stands between the product and the maps behind it.
      for (const Node& node : made.nodes())
        EXPECT_FALSE(node.op.is<op::Slice>() || node.op.is<op::Pad>());
      testing::expect_same_values(direct, made, 1e-4, 1e-5);
    }
  }
  const Graph padded = planes({1, 16, 40, 41}, 4, {.pad_low = {1, 0}, .pad_high = {0, 2}});
  const Graph made = passes::few_channels(padded, prefer("all points")).value();
  EXPECT_FALSE(only_convolution(made));
  testing::expect_same_values(padded, made, 1e-4, 1e-5);
  // Strides, images with borders that lie behind each other, and more rows than are asked about.
  for (const Graph& other :
       {planes({1, 16, 40, 41}, 4, {.strides = {2, 1}}),
        planes({2, 16, 40, 41}, 4, {.pad_low = {1, 0}}), planes({1, 16, 40, 41}, 65)})
    EXPECT_TRUE(only_convolution(passes::few_channels(other, prefer("all points")).value()));
}

/// Both forms are asked about with the result in the order in which it is read.
TEST(FewChannels, ResultsAreAskedAboutAsTheyAreRead) {
  const Graph direct = planes({1, 16, 40, 41}, 4);
  int asked = 0;
  const auto look = [&](const Graph& graph, std::span<const passes::FormQuestion> questions) {
    for (const passes::FormQuestion& question : questions) {
      for (const passes::ConvolutionForm& form : question.forms) {
        const Graph alone = form.graph().value();
        EXPECT_EQ(alone.type(alone.outputs()[0].value), graph.type(graph.outputs()[0].value));
        ++asked;
      }
    }
    return std::vector<std::size_t>(questions.size(), 0);
  };
  EXPECT_TRUE(passes::few_channels(direct, look).ok());
  EXPECT_GE(asked, 2);
}

/// A map by an image, or a second reader, ends what comes along; the values stay.
TEST(FewChannels, MapsOfOtherValuesStayBehind) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 12, 40, 32}), r = graph.input("r", f32, {1, 12, 40, 4});
  const op::Conv conv{.pad_low = {1, 4}, .pad_high = {1, 4}, .channels_last = true};
  const Value y =
      graph.add_one(conv, {x, weights(graph, {3, 9, 32, 4}, 3)}) * graph.constant(f32, 2);
  graph.output("sum", relu(y + r));
  graph.output("y", y);
  for (const char* part : {"side by side", "as one product"}) {
    int asked = 0;
    const Graph made = passes::few_channels(graph, prefer(part, &asked)).value();
    EXPECT_EQ(asked, 1);
    EXPECT_TRUE(print(made) != print(graph)) << part;
    testing::expect_same_values(graph, made, 1e-4, 1e-5);
  }
}

TEST(FewChannels, AsksOnlyWhereLanesAreIdle) {
  const Dims image{1, 30, 30, 8};
  const Case cases[] = {
      {image, {3, 9, 8, 16}, {}},            // whole registers
      {image, {1, 1, 8, 8}, {}},             // one tap
      {image, {3, 9, 4, 8}, {.groups = 2}},  // groups
      {{1, 3, 12, 8}, {3, 9, 8, 4}, {}},     // hardly any work
      {image, {1, 2, 8, 24}, {}},            // zeros would cost more than lanes
  };
  for (const Case& c : cases) {
    int asked = 0;
    const Graph direct = convolution(c, true);
    EXPECT_EQ(print(passes::few_channels(direct, prefer("", &asked)).value()), print(direct));
    EXPECT_EQ(asked, 0) << print(direct);
  }
  Graph graph;  // weights that runs make
  const Value x = graph.input("x", f32, {1, 30, 30, 8}), w = graph.input("w", f32, {3, 9, 8, 4});
  graph.output("y", graph.add_one(op::Conv{.channels_last = true}, {x, w}));
  int asked = 0;
  EXPECT_EQ(print(passes::few_channels(graph, prefer("", &asked)).value()), print(graph));
  EXPECT_EQ(asked, 0);
}

/// The direct form stays where the answer says so, and comes first among what is asked.
TEST(FewChannels, FirstFormIsTheConvolution) {
  const Graph direct = convolution({{1, 28, 28, 1}, {5, 5, 1, 8}, {}}, true);
  const auto as_it_is = testing::one_by_one([](const Node& node, const auto& forms) {
    EXPECT_TRUE(node.op.is<op::Conv>());
    EXPECT_GT(forms.size(), 1U);
    EXPECT_EQ(forms[0].weights, 1);
    EXPECT_TRUE(only_convolution(forms[0].graph().value()));
    return std::size_t{0};
  });
  EXPECT_EQ(print(passes::few_channels(direct, as_it_is).value()), print(direct));
}

/// A form is asked about as it will read its image: channels first, where the program keeps it so.
TEST(FewChannels, QuestionsReadTheImageAsItIsKept) {
  for (const bool first : {false, true}) {
    Graph graph;
    const Value x = first ? transpose(graph.input("x", f32, {1, 64, 22, 17}), {0, 2, 3, 1})
                          : graph.input("x", f32, {1, 22, 17, 64});
    graph.output(
        "y", graph.add_one(op::Conv{.channels_last = true}, {x, weights(graph, {3, 3, 64, 1}, 3)}));
    int asked = 0;
    const auto look = testing::one_by_one([&](const Node&, const auto& forms) {
      for (const auto& form : forms) {
        const Graph alone = form.graph().value();
        EXPECT_EQ(alone.type({0, 0}), graph.type({0, 0})) << form.what;
        EXPECT_EQ(alone.nodes()[1].op.template is<op::Transpose>(), first) << form.what;
        ++asked;
      }
      return std::size_t{0};
    });
    passes::few_channels(graph, look).value();
    EXPECT_GT(asked, 1);
  }
}

/// Layers that every model of times finds faster in another form, on the device, on one thread and
/// on two.
TEST(FewChannels, ProgramsWithAndWithoutAgree) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 64, 41, 53});
  const auto layer = [&](Value in, const Dims& dims, const op::Conv& options) {
    std::mt19937 generator(5);
    const Type type{f32, Shape(dims.begin(), dims.end())};
    return conv(in, graph.constant(testing::noise(type, -0.1, 0.1, generator)), options);
  };
  const op::Conv same{.pad_low = {2, 2}, .pad_high = {2, 2}};
  graph.output("taps", relu(layer(x, {1, 64, 5, 5}, same)));
  graph.output("columns",
               relu(layer(x, {8, 64, 3, 21}, {.pad_low = {1, 10}, .pad_high = {1, 10}})));
  std::mt19937 generator(7);
  const Tensor image = testing::noise({f32, {1, 64, 41, 53}}, -1, 1, generator);
  Session session(Device::cpu);
  for (const int threads : {1, 2}) {
    auto fast = session.compile(graph, {.threads = threads}).value();
    auto exact = session.compile(graph, {.exact = true, .threads = threads}).value();
    EXPECT_NE(fast.stage_text("mir").value(), exact.stage_text("mir").value());
    const Outputs a = fast.run({{"x", image}}).value(), b = exact.run({{"x", image}}).value();
    for (std::size_t k = 0; k < 2; ++k) {
      for (std::size_t i = 0; i < b[k].as<float>().size(); ++i)
        ASSERT_NEAR(a[k].as<float>()[i], b[k].as<float>()[i], 2e-4) << k << " at " << i;
    }
  }
}

}  // namespace
}  // namespace rlx
