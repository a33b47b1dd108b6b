// Convolutions by minimal filtering of lines: the same values, only where they may.
#include <gtest/gtest.h>

#include "convolution_case.hpp"
#include "graph/line_points.hpp"
#include "one_by_one.hpp"
#include "passes/passes.hpp"
#include "relative_errors.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using Case = testing::ConvolutionCase;
using testing::always;
using testing::convolution;

Graph by_lines(const Graph& graph) { return passes::line_points(graph, always(1)).value(); }

op::Conv padded(Axes low, Axes high, Axes strides = {}, Axes dilations = {}) {
  return {.strides = std::move(strides),
          .pad_low = std::move(low),
          .pad_high = std::move(high),
          .dilations = std::move(dilations)};
}

/// Windows of every length, ends of lines that cut tiles, borders, other axes of any kind.
const Case fitting[] = {
    {{1, 4099, 16}, {2, 16, 19}, padded({1}, {0})},
    {{1, 4000, 16}, {3, 16, 16}, padded({1}, {1})},
    {{1, 1601, 16}, {4, 16, 24}, {}},
    {{2, 1001, 16}, {5, 16, 16}, padded({0}, {4})},
    {{1, 1502, 16}, {7, 16, 16}, padded({3}, {3})},
    {{1, 803, 17}, {9, 17, 18}, padded({8}, {0})},
    {{1, 1200, 8}, {12, 8, 19}, {}},
    {{1, 4, 300, 9}, {1, 51, 9, 16}, padded({0, 25}, {0, 25})},
    {{1, 300, 5, 9}, {39, 1, 9, 16}, padded({19, 0}, {19, 0})},
    {{1, 40, 41, 8}, {5, 5, 8, 16}, padded({2, 2}, {2, 2})},
    {{1, 41, 60, 8}, {5, 7, 8, 16}, padded({1, 3}, {0, 2}, {2, 1}, {3, 1})},
    {{1, 4, 30, 31, 16}, {7, 1, 1, 16, 16}, padded({3, 0, 0}, {3, 0, 0})},
    {{1, 2000, 16}, {4, 16, 48}, padded({2}, {1}, {2})},
    {{1, 1003, 16}, {16, 16, 40}, padded({8}, {3}, {4})},
    {{1, 3, 999, 8}, {3, 8, 8, 16}, padded({1, 0}, {1, 0}, {2, 2})},
    {{1, 1000, 16}, {3, 16, 48}, padded({4}, {4}, {1}, {4})},
    {{2, 501, 16}, {7, 16, 24}, padded({18}, {0}, {1}, {3})},
    {{1, 600, 48}, {16, 16, 48}, {.pad_low = {8}, .pad_high = {7}, .groups = 3}},
    {{1, 50, 6, 16}, {11, 1, 16, 48}, padded({25, 0}, {25, 0}, {1, 1}, {5, 1})},
    {{1, 2001, 16}, {3, 16, 48}, padded({}, {}, {2})},
    {{2, 1500, 16}, {3, 16, 40}, padded({1}, {1}, {2})},
    {{1, 1999, 16}, {3, 16, 48}, padded({2}, {0}, {2})},
    {{1, 2004, 16}, {3, 16, 48}, padded({0}, {1}, {2})},
    {{1, 601, 4, 16}, {3, 1, 16, 48}, padded({1, 0}, {1, 0}, {2, 1})},
    {{1, 60, 201, 8}, {1, 3, 8, 16}, padded({0, 1}, {0, 0}, {1, 2})},
    {{1, 801, 5, 6, 8}, {3, 1, 1, 8, 16}, padded({1, 0, 0}, {1, 0, 0}, {2, 1, 1})},
    {{1, 2001, 48}, {3, 16, 48}, {.strides = {2}, .groups = 3}},
};

TEST(LinePoints, GivesTheDirectSumsValues) {
  for (const Case& c : fitting) {
    const Graph direct = convolution(c);
    SCOPED_TRACE(print(direct));
    const Graph points = by_lines(direct);
    ASSERT_EQ(testing::count<op::LinePoints>(points), 1);
    ASSERT_EQ(testing::count<op::LineOutputs>(points), 1);
    ASSERT_EQ(points.type(points.outputs()[0].value), direct.type(direct.outputs()[0].value));
    testing::expect_same_values(direct, points, 2e-4);
  }
}

/// What treats all places of a channel alike comes along, other axes or not.
TEST(LinePoints, MapsComeAlong) {
  for (const Case& c :
       {Case{{1, 1200, 8}, {12, 8, 19}, {}}, Case{{1, 12, 30, 31, 16}, {7, 1, 1, 16, 16}, {}}}) {
    Graph direct = convolution(c);
    const Value y = direct.handle(direct.outputs()[0].value);
    const Value bias = testing::weight(direct, {c.filter.back()}, 5);
    direct.set_outputs({});
    direct.output("z", relu(y * direct.constant(f32, 2) + bias));
    const Graph points = by_lines(direct);
    testing::expect_same_values(direct, points, 4e-4);
    const Node& last = points.node(points.outputs()[0].value);
    EXPECT_TRUE(last.op.is<op::Reshape>()) << "to the shape that volumes have";
    EXPECT_TRUE(points.node(last.inputs[0]).op.is<op::Relu>());
  }
}

TEST(LinePoints, LeavesWhatItDoesNotFit) {
  const auto stays = [](const Case& c) {
    return testing::count<op::LinePoints>(by_lines(convolution(c))) == 0;
  };
  const Dims image{1, 1200, 16}, filter{12, 16, 24};
  EXPECT_FALSE(stays({image, filter, {}}));
  EXPECT_FALSE(stays({image, filter, {.strides = {2}}}));
  EXPECT_TRUE(stays({image, filter, {.strides = {7}}})) << "taps of two pixels, half of which lack";
  EXPECT_TRUE(stays({image, filter, padded({}, {}, {2}, {2})}));
  EXPECT_TRUE(stays({{1, 300, 60, 16}, {12, 1, 16, 24}, {.strides = {2, 1}}})) << "not the last";
  EXPECT_TRUE(stays({image, filter, padded({12}, {0})})) << "a window of zeros alone";
  EXPECT_TRUE(stays({{1, 14, 64}, {12, 64, 512}, {}})) << "tiles of which three results are used";
  EXPECT_TRUE(stays({{1, 1200, 6}, {12, 6, 64}, {}})) << "few channels";
  EXPECT_TRUE(stays({{1, 1200, 64}, {12, 64, 6}, {}}));
  EXPECT_TRUE(stays({{1, 1200, 32}, {12, 4, 32}, {.groups = 8}}));
  EXPECT_TRUE(stays({{1, 120, 16}, {12, 16, 24}, {}})) << "little work";
  EXPECT_TRUE(stays({{1, 60, 60, 16}, {3, 3, 16, 16}, {}})) << "Winograd's tiles";
  EXPECT_FALSE(stays({{1, 60, 60, 16}, {3, 3, 16, 16}, padded({}, {}, {}, {1, 2})}));
  EXPECT_TRUE(stays({{1, 9, 30, 31, 16}, {7, 3, 1, 16, 16}, {}})) << "two axes of a volume";
  Graph graph;
  const Value x = graph.input("x", f32, Shape(image.begin(), image.end()));
  const Value w = graph.input("w", f32, Shape(filter.begin(), filter.end()));
  graph.output("y", graph.add_one(op::Conv{.channels_last = true}, {x, w}));
  EXPECT_EQ(testing::count<op::LinePoints>(by_lines(graph)), 0) << "weights that runs make";
}

/// Attributes and dims that do not fit each other are errors, however large they are.
TEST(LinePoints, TransformsOfOtherShapesAreErrors) {
  const auto made = [](const Op& op, const Type& type) {
    Graph graph;
    const Value x = graph.input("x", type.dtype, type.shape);
    return graph.try_add(op, std::vector{x.id()}, "", "").ok();
  };
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const Type lines{f32, {1, 18, 3}};
  EXPECT_TRUE(made(op::LinePoints{1, 4, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{0, 4, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{2, 4, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 4}, lines));
  EXPECT_TRUE(made(op::LinePoints{1, 4, 4, 1, 1, 0}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 4, 1, -3, 4}, lines));
  EXPECT_TRUE(made(op::LinePoints{1, 4, 3, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 3, 2}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 3, 0}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 3, huge}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 3, 1, huge, huge}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 2, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 0, 3}, lines));
  EXPECT_FALSE(made(op::LinePoints{1, 4, 3}, {f16, {1, 18, 3}}));
  const Type filters{f32, {8, 3, 5, 3}};
  EXPECT_TRUE(made(op::LineFilters{0, 4, 4, 2, 1, 2}, filters));
  EXPECT_TRUE(made(op::LineFilters{1, 4, 2, 2, 0, 1}, filters));
  EXPECT_FALSE(made(op::LineFilters{2, 4, 2, 2, 0, 1}, filters));
  EXPECT_FALSE(made(op::LineFilters{1, 4, 2, 2, 2, 1}, filters));
  EXPECT_FALSE(made(op::LineFilters{1, 4, 2, 2, 0, 0}, filters));
  EXPECT_FALSE(made(op::LineFilters{1, 4, 2, 2, 0, 3}, filters));
  EXPECT_FALSE(made(op::LineFilters{1, 4, 2, 0, 0, 1}, filters));
  EXPECT_FALSE(made(op::LineFilters{1, 4, 2, huge, 0, 1}, filters));
  const Type points{f32, {1, 4, 1, 18}};
  EXPECT_TRUE(made(op::LineOutputs{1, 4, 3}, points));
  EXPECT_TRUE(made(op::LineOutputs{1, 4, 3, 3}, points));
  EXPECT_FALSE(made(op::LineOutputs{1, 4, 3, 4}, points));
  EXPECT_FALSE(made(op::LineOutputs{1, 4, 3, -1}, points));
  EXPECT_FALSE(made(op::LineOutputs{1, 4, 4}, points));
  EXPECT_FALSE(made(op::LineOutputs{2, 4, 3}, points));
  EXPECT_FALSE(made(op::LineOutputs{1, 4, 3}, {f32, {1, 0, 1, 18}}));
  EXPECT_FALSE(made(op::LineOutputs{1, 4, 3}, {f32, {1, 4, 18}}));
}

/// Of a line of 1200 places, half of them zeros, and windows of so many taps over 64 channels.
testing::Errors errors_of(std::int64_t taps, const lines::Tile& tile) {
  std::mt19937 generator(11);
  constexpr std::int64_t places = 1200, in = 64, out = 16;
  Tensor image = testing::noise({f32, {1, places, in}}, -1, 1, generator);
  auto* const pixels = reinterpret_cast<float*>(image.mutable_data());
  std::transform(pixels, pixels + image.elements(), pixels,
                 [](float value) { return std::max(value, 0.0f); });
  const Tensor filter = testing::noise({f32, {taps, in, out}}, -1, 1, generator);
  const auto x = image.as<float>(), w = filter.as<float>();
  std::vector<double> expected;
  for (std::int64_t i = 0; i + taps <= places; ++i) {
    for (std::int64_t k = 0; k < out; ++k) {
      double sum = 0;
      for (std::int64_t at = 0; at < taps * in; ++at)
        sum += static_cast<double>(x[static_cast<std::size_t>(i * in + at)]) *
               static_cast<double>(w[static_cast<std::size_t>(at * out + k)]);
      expected.push_back(sum);
    }
  }
  Graph graph;
  const Value y = graph.add_one(op::Conv{.channels_last = true},
                                {graph.input("x", f32, {1, places, in}), graph.constant(filter)});
  graph.output("y", y);
  const Graph points = by_lines(graph);
  EXPECT_TRUE(std::ranges::any_of(points.nodes(), [&](const Node& node) {
    const auto* made = node.op.as<op::LinePoints>();
    return made && lines::Tile{made->outputs, made->taps} == tile;
  }));
  Session session(Device::cpu);
  auto program = session.compile(points, {.exact = true}).value();
  const Outputs outputs = program.run({{"x", image}}).value();
  return testing::errors_of(outputs[0].as<float>(), expected);
}

/// The direct sum of 51 taps has 7.1e-7, 5.5e-6.
TEST(LinePoints, ErrorsAreAsStated) {
  const struct {
    std::int64_t taps;
    lines::Tile tile;
    testing::Errors most;
  } cases[] = {{2, {4, 2}, {2.5e-7, 2e-6}}, {3, {4, 3}, {3.5e-7, 2.8e-6}},
               {5, {4, 5}, {6.5e-7, 5e-6}}, {9, {3, 3}, {5e-7, 5e-6}},
               {33, {3, 3}, {9e-7, 8e-6}},  {51, {4, 4}, {1.7e-6, 1.3e-5}}};
  for (const auto& [taps, tile, most] : cases) {
    const testing::Errors errors = errors_of(taps, tile);
    EXPECT_LT(errors.rms, most.rms) << taps;
    EXPECT_LT(errors.worst, most.worst) << taps;
    EXPECT_LE(most.worst, std::stod(std::string(lines::error_of(tile)))) << taps;
  }
}

/// Kernels, on two threads, of every layer; the pieces of lines are tiles.
TEST(LinePoints, KernelsComputeWhatTheReferenceDoes) {
  for (const Case& c : fitting) {
    const Graph points = by_lines(convolution(c));
    SCOPED_TRACE(print(points));
    const std::vector<Tensor> inputs = testing::noise_inputs(points);
    const Tensor wanted = evaluate_graph(points, inputs).value()[0];
    Session session(Device::cpu, {.threads = 2});
    for (const bool apart : {false, true}) {
      auto program = session.compile(points, {.disable_fusion = apart}).value();
      const Outputs found = program.run({{"x", inputs[0]}}).value();
      const auto a = found[0].as<float>(), b = wanted.as<float>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-4) << i;
    }
  }
}

/// A layer that every model of times finds faster so, on the device; not where order is kept.
TEST(LinePoints, ProgramsWithAndWithoutAgree) {
  Graph graph;
  std::mt19937 generator(5);
  const Type type{f32, {64, 64, 25}};
  const Value x = graph.input("x", f32, {1, 64, 4000});
  const Value w = graph.constant(testing::noise(type, -0.1, 0.1, generator));
  graph.output("y", relu(conv(x, w, {.pad_low = {12}, .pad_high = {12}})));
  Session session(Device::cpu);
  auto fast = session.compile(graph).value();
  auto exact = session.compile(graph, {.exact = true}).value();
  EXPECT_NE(fast.stage_text("mir").value().find("line_points("), std::string::npos);
  EXPECT_EQ(exact.stage_text("mir").value().find("line_points("), std::string::npos);
  const Tensor image = testing::noise({f32, {1, 64, 4000}}, -1, 1, generator);
  const Outputs a = fast.run({{"x", image}}).value(), b = exact.run({{"x", image}}).value();
  for (std::size_t i = 0; i < a[0].as<float>().size(); ++i)
    ASSERT_NEAR(a[0].as<float>()[i], b[0].as<float>()[i], 1e-4) << i;
}

}  // namespace
}  // namespace rlx
