// Sums of convolutions of one value become one, and give the same values.
#include "passes/sums_of_convolutions.hpp"

#include <gtest/gtest.h>

#include <random>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

constexpr std::int64_t channels = 6;

std::uint32_t seed = 1;

Value kernel(Graph& graph, Shape shape) { return testing::weight(graph, std::move(shape), ++seed); }

Value image(Graph& graph) { return graph.input("x", f32, {2, channels, 9, 8}); }

/// Of `size` taps either way, padded so that the image keeps its size (with a step of 1).
Value square(Value x, std::int64_t size, std::int64_t step = 1, std::int64_t groups = 1,
             std::int64_t dilation = 1, std::int64_t out = channels) {
  const std::int64_t pad = size / 2 * dilation;
  return conv(x, kernel(x.graph(), {out, channels / groups, size, size}),
              {.strides = {step, step},
               .pad_low = {pad, pad},
               .pad_high = {pad, pad},
               .dilations = {dilation, dilation},
               .groups = groups});
}

/// A factor or an addend for each channel.
Value by_channel(Graph& graph) { return kernel(graph, {1, channels, 1, 1}); }

/// Convolutions after the pass, whose values are checked.
int convolutions_after(Graph& written, Value result) {
  written.output("y", result);
  const Graph graph = passes::canonicalise(written).value();
  const Graph made = passes::sums_of_convolutions(graph).value();
  testing::expect_same_values(graph, made, 1e-4);
  return testing::count<op::Conv>(made);
}

TEST(SumsOfConvolutions, BlocksThatAreMadeForTrainingAreOne) {
  Graph rep_vgg;
  Value x = image(rep_vgg);
  Value sum = square(x, 3) + by_channel(rep_vgg) + (square(x, 1) + by_channel(rep_vgg)) +
              (x * by_channel(rep_vgg) + by_channel(rep_vgg));
  EXPECT_EQ(convolutions_after(rep_vgg, relu(sum)), 1);
  for (const std::int64_t groups : {2, 6}) {
    Graph mobile_one;
    x = image(mobile_one);
    sum = square(x, 1, 1, groups) + square(x, 3, 1, groups) + square(x, 3, 1, groups) +
          x * by_channel(mobile_one) + mobile_one.constant(f32, 0.0);
    EXPECT_EQ(convolutions_after(mobile_one, relu(sum)), 1) << groups;
  }
  Graph rows;
  x = image(rows);
  EXPECT_EQ(convolutions_after(rows, square(x, 1) + square(x, 1) + x), 1);
}

TEST(SumsOfConvolutions, WithStepsAndDilations) {
  Graph steps;
  Value x = image(steps);
  EXPECT_EQ(convolutions_after(steps, square(x, 3, 2) + square(x, 1, 2) + square(x, 5, 2)), 1);
  Graph dilated;
  x = image(dilated);
  EXPECT_EQ(convolutions_after(dilated, square(x, 3, 1, 1, 2) + square(x, 1) + x), 1);
}

TEST(SumsOfConvolutions, ADepthwiseOneTakesWhatItIsAddedTo) {
  Graph graph;
  const Value x = image(graph);
  const Value sum = x + (square(x, 3, 1, channels) + by_channel(graph));
  graph.output("y", sum);
  graph = passes::canonicalise(std::move(graph)).value();
  const Graph joined = passes::drop_dead(passes::sums_of_convolutions(graph).value()).value();
  testing::expect_same_values(graph, joined, 1e-5);
  const auto adds = [](const Graph& of) {
    return std::ranges::count_if(of.nodes(), [](const Node& node) {
      return node.op.is<op::Add>() && node.results[0].dims()[2] == 9;
    });
  };
  EXPECT_EQ(adds(graph), 2);
  EXPECT_EQ(adds(joined), 1);
}

TEST(SumsOfConvolutions, OthersStay) {
  const auto stays = [](const char* why, auto&& sum) {
    Graph graph;
    const Value result = sum(graph, image(graph));
    graph.output("y", result);
    graph = passes::canonicalise(std::move(graph)).value();
    EXPECT_EQ(print(passes::sums_of_convolutions(graph).value()), print(graph)) << why;
  };
  stays("a cross has fewer taps than the square around it", [](Graph& graph, Value x) {
    const Value tall =
        conv(x, kernel(graph, {channels, channels, 3, 1}), {.pad_low = {1, 0}, .pad_high = {1, 0}});
    return tall + conv(x, kernel(graph, {channels, channels, 1, 3}),
                       {.pad_low = {0, 1}, .pad_high = {0, 1}});
  });
  stays("taps between each other's",
        [](Graph&, Value x) { return square(x, 3, 1, 1, 2) + square(x, 3); });
  stays("somebody reads one of them", [](Graph& graph, Value x) {
    const Value read = square(x, 3);
    graph.output("z", read);
    return read + square(x, 3);
  });
  stays("of two values", [](Graph&, Value x) { return square(x, 3) + square(relu(x), 3); });
  stays("other groups", [](Graph&, Value x) { return square(x, 3) + square(x, 3, 1, 2); });
  stays("an epilogue adds the value as well", [](Graph&, Value x) { return square(x, 3) + x; });
  stays("other steps", [](Graph&, Value x) {
    return slice(square(x, 3), {0, 0, 0, 0}, {2, channels, 5, 4}) + square(x, 3, 2);
  });
  stays("weights that come with the input", [](Graph& graph, Value x) {
    const Value w = graph.input("w", f32, {channels, channels, 1, 1});
    return conv(x, w) + square(x, 3);
  });
  stays("factors by row",
        [](Graph& graph, Value x) { return square(x, 3) + x * kernel(graph, {1, 1, 9, 1}); });
}

/// Sizes, places, steps and groups as they come.
TEST(SumsOfConvolutions, AnyKernelsGiveTheSameValues) {
  std::mt19937 random(7);
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int joined = 0;
  for (int round = 0; round < 60; ++round) {
    Graph graph;
    const Value x = image(graph);
    const std::int64_t step = any(1, 2), groups = std::vector{1, 2, 3, 6}[any(0, 3)];
    const std::int64_t out = channels * any(1, 2);
    Values addends;
    const std::int64_t convolutions = any(2, 5);
    for (std::int64_t k = 0; k < convolutions; ++k) {
      op::Conv one{.strides = {step, step}, .groups = groups};
      Shape shape{out, channels / groups};
      const std::int64_t most = any(1, 3);
      for (const std::int64_t size : {most, std::max<std::int64_t>(most - any(0, 3) / 3, 1)}) {
        const std::int64_t dilation = any(1, 6) / 6 + 1, reach = (size - 1) * dilation;
        const std::int64_t low = any(0, reach);
        one.pad_low.push_back(low), one.pad_high.push_back(reach - low);
        one.dilations.push_back(dilation), shape.emplace_back(size);
      }
      addends.push_back(graph.add_one(one, {x, kernel(graph, shape)}));
    }
    if (step == 1 && out == channels) addends.push_back(x * by_channel(graph));
    Value sum = addends[0];
    for (std::size_t k = 1; k < addends.size(); ++k) sum = sum + addends[k];
    joined += convolutions_after(graph, tanh(sum)) < convolutions ? 1 : 0;
  }
  EXPECT_GT(joined, 10);
}

TEST(SumsOfConvolutions, LongSumsDoNotFillTheStack) {
  Graph graph;
  const Value x = image(graph), one = graph.input("one", f32, {2, channels, 9, 8});
  Value sum = square(x, 3);
  for (int i = 0; i < 200'000; ++i) sum = sum + one;
  graph.output("y", sum + square(x, 1));
  const Graph made = passes::sums_of_convolutions(graph).value();
  EXPECT_EQ(testing::count<op::Conv>(made), 1);
}

TEST(SumsOfConvolutions, ProgramsHaveOneKernelUnlessTheyAreExact) {
  Graph graph;
  const Value x = image(graph);
  graph.output("y", relu(square(x, 3) + square(x, 1) + x * by_channel(graph)));
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const Tensor wanted = evaluate_graph(graph, inputs).value()[0];
  Session session(Device::cpu);
  const std::vector<NamedInput> named{{"x", inputs[0]}};
  struct Kernels {
    std::ptrdiff_t products = 0, all = 0;
  };
  // The one convolution may be written by points: its two transforms are not counted.
  const auto kernels = [&](bool exact) {
    CompileOptions options{.threads = 1};
    options.exact = exact;
    CompiledGraph program = session.compile(graph, options).value();
    const Outputs got = program.run(std::span<const NamedInput>(named)).value();
    const std::span<const float> a = got[0].as<float>(), b = wanted.as<float>();
    for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4F) << "at " << i;
    const Explanation explanation = program.explain().value();
    Kernels count;
    for (const auto& kernel : explanation.kernels) {
      count.products +=
          kernel.name == "conv" || kernel.name == "matmul" || kernel.name == "winograd";
      count.all += kernel.name != "tiles";
    }
    return count;
  };
  const Kernels joined = kernels(false), apart = kernels(true);
  EXPECT_LT(joined.all, apart.all);
  EXPECT_EQ(joined.products, 1);
  EXPECT_EQ(apart.products, 2);
}

}  // namespace
}  // namespace rlx
