// Convolutions by Winograd's points: the same values, only where they may and where it is faster.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convolution_case.hpp"
#include "graph/winograd.hpp"
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

const passes::ChooseForms by_twos = always(1), by_fours = always(2);

/// The points of the convolution in that form are no convolution, and give its values.
void expect_the_values(const Case& c, const passes::ChooseForms& choice, double tolerance) {
  const Graph direct = convolution(c);
  SCOPED_TRACE(print(direct));
  const Graph points = passes::winograd(direct, choice).value();
  ASSERT_EQ(testing::count<op::Conv>(points), 0);
  ASSERT_EQ(points.type(points.outputs()[0].value), direct.type(direct.outputs()[0].value));
  testing::expect_same_values(direct, points, tolerance);
}

TEST(Winograd, GivesTheDirectSumsValues) {
  const Case cases[] = {
      {{1, 8, 8, 3}, {3, 3, 3, 5}, {.pad_low = {1, 1}, .pad_high = {1, 1}}},
      {{2, 7, 5, 4}, {3, 3, 4, 18}, {}},
      {{1, 3, 3, 2}, {3, 3, 2, 1}, {}},
      {{1, 6, 9, 2}, {3, 3, 2, 3}, {.pad_low = {0, 2}, .pad_high = {1, 0}}},
      {{1, 1, 1, 2}, {3, 3, 2, 3}, {.pad_low = {1, 1}, .pad_high = {1, 1}}},
  };
  for (const Case& c : cases) {
    for (const auto& choice : {by_twos, by_fours}) expect_the_values(c, choice, 2e-5);
  }
}

TEST(Winograd, VolumesGiveTheDirectSumsValues) {
  const auto padded = [](Axes strides, Axes low, Axes high, Axes dilations = {1, 1, 1}) {
    return op::Conv{.strides = std::move(strides),
                    .pad_low = std::move(low),
                    .pad_high = std::move(high),
                    .dilations = std::move(dilations)};
  };
  const Case cases[] = {
      {{1, 5, 8, 8, 3}, {3, 3, 3, 3, 5}, padded({1, 1, 1}, {1, 1, 1}, {1, 1, 1})},
      {{2, 4, 7, 5, 4}, {1, 3, 3, 4, 18}, {}},  // of single slices
      {{2, 4, 6, 6, 2}, {2, 3, 3, 2, 3}, padded({2, 1, 1}, {0, 1, 1}, {0, 1, 1})},
      {{1, 6, 5, 9, 2}, {3, 3, 3, 2, 3}, padded({2, 1, 1}, {3, 0, 1}, {1, 2, 1})},
      {{1, 7, 6, 6, 2}, {3, 3, 3, 2, 3}, padded({1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {3, 1, 1})},
      {{1, 2, 6, 6, 2}, {3, 3, 3, 2, 3}, padded({3, 1, 1}, {5, 1, 1}, {7, 1, 1}, {4, 1, 1})},
      {{1, 3, 9, 9, 16}, {3, 3, 3, 16, 16}, padded({2, 2, 2}, {1, 1, 1}, {1, 1, 1})},
  };
  for (const Case& c : cases) expect_the_values(c, by_twos, 4e-5);
  const auto stays = [](const Case& c) {
    return testing::count<op::Conv>(passes::winograd(convolution(c), by_twos).value()) == 1;
  };
  EXPECT_TRUE(stays({{1, 4, 8, 8, 3}, {3, 1, 3, 3, 5}, {}})) << "lines of a slice";
  EXPECT_TRUE(stays({{1, 4, 9, 9, 16}, {3, 3, 3, 16, 16}, {.strides = {1, 2, 1}}}));
  EXPECT_TRUE(stays({{1, 4, 9, 9, 3}, {3, 3, 3, 3, 3}, {.dilations = {1, 2, 2}}}));
}

TEST(Winograd, StridesOfTwoGiveTheDirectSumsValues) {
  const auto strided = [](Axes low, Axes high) {
    return op::Conv{.strides = {2, 2}, .pad_low = std::move(low), .pad_high = std::move(high)};
  };
  const Case cases[] = {
      {{1, 8, 8, 16}, {3, 3, 16, 16}, strided({1, 1}, {1, 1})},
      {{2, 7, 5, 17}, {3, 3, 17, 18}, strided({}, {})},
      {{1, 3, 3, 16}, {3, 3, 16, 16}, strided({}, {})},
      {{1, 4, 4, 16}, {3, 3, 16, 20}, strided({}, {})},  // of which no window wants the last pixels
      {{1, 6, 9, 16}, {3, 3, 16, 19}, strided({0, 2}, {1, 0})},
      {{1, 18, 12, 16}, {3, 3, 16, 16}, strided({0, 0}, {0, 0})},
      {{1, 1, 1, 16}, {3, 3, 16, 16}, strided({1, 1}, {1, 1})},
      {{1, 5, 6, 16}, {3, 3, 16, 16}, strided({9, 1}, {0, 8})},
  };
  for (const Case& c : cases) expect_the_values(c, by_twos, 2e-5);
}

TEST(Winograd, StripsGiveTheDirectSumsValues) {
  const struct {
    Case layer;
    std::int64_t strips;
  } cases[] = {
      {{{1, 119, 117, 2}, {3, 3, 2, 330}, {.pad_low = {1, 0}, .pad_high = {0, 2}}}, 5},
      {{{3, 65, 64, 1}, {3, 3, 1, 340}, {}}, 4},
      {{{1, 95, 97, 2}, {3, 3, 2, 230}, {.pad_low = {1, 1}, .pad_high = {1, 1}}}, 2},
      {{{1, 150, 149, 16},
        {3, 3, 16, 300},
        {.strides = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
       5},
  };
  for (const auto& [layer, strips] : cases) {
    const Graph direct = convolution(layer);
    SCOPED_TRACE(print(direct));
    const auto last =
        testing::one_by_one([](const auto&, const auto& forms) { return forms.size() - 1; });
    const Graph points = passes::winograd(direct, last).value();
    EXPECT_EQ(testing::count<op::WinogradImage>(points), strips);
    EXPECT_EQ(testing::count<op::WinogradFilters>(points), 1);
    ASSERT_EQ(points.type(points.outputs()[0].value), direct.type(direct.outputs()[0].value));
    testing::expect_same_values(direct, points, 2e-5);
  }
}

/// A layer in strips keeps one copy of its filters, writes its results where they belong, and makes
/// the points of one strip at a time.
TEST(Winograd, StripsShareFiltersAndMemory) {
  Graph graph;
  std::mt19937 generator(5);
  const Value x = graph.input("x", f32, {1, 160, 160, 128});
  const Value w = graph.constant(testing::noise({f32, {3, 3, 128, 128}}, -0.1, 0.1, generator));
  const op::Conv conv{.pad_low = {1, 1}, .pad_high = {1, 1}, .channels_last = true};
  graph.output("y", relu(graph.add_one(conv, {x, w})));
  Session session(Device::cpu);
  const std::string form = "write conv (0) by Winograd's F(4x4, 3x3)";
  const auto program = [&](const std::string& strips) {
    CompileOptions options;
    options.answers[form + strips] = true;
    return session.compile(graph, options).value();
  };
  CompiledGraph whole = program(""), strips = program(" in strips");
  const MemoryReport memory = strips.query_memory(), of_whole = whole.query_memory();
  EXPECT_EQ(memory.weights_bytes, of_whole.weights_bytes);
  EXPECT_LT(memory.arena_bytes, 0.6 * static_cast<double>(of_whole.arena_bytes));
  const Explanation explained = strips.explain().value();
  for (const Explanation::Kernel& kernel : explained.kernels)
    EXPECT_NE(kernel.name, "copy") << kernel.region;
  const Tensor image = testing::noise({f32, {1, 160, 160, 128}}, -1, 1, generator);
  const Outputs a = whole.run({{"x", image}}).value(), b = strips.run({{"x", image}}).value();
  const auto of_a = a[0].as<float>(), of_b = b[0].as<float>();
  EXPECT_TRUE(std::ranges::equal(of_a, of_b));
}

/// Attributes and dims that do not fit each other are errors, however large they are.
TEST(Winograd, TransformsOfOtherShapesAreErrors) {
  const auto made = [](const Op& op, const Type& type) {
    Graph graph;
    const Value x = graph.input("x", type.dtype, type.shape);
    return graph.try_add(op, std::vector{x.id()}, "", "").ok();
  };
  EXPECT_TRUE(made(op::WinogradImage{4}, {f32, {1, 10, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{4}, {f32, {1, 9, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{4}, {f32, {1, 2, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{4}, {f32, {10, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{4}, {i16, {1, 10, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{0}, {f32, {1, 10, 6, 3}}));
  EXPECT_TRUE(made(op::WinogradImage{2, 2}, {f32, {1, 9, 5, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{2, 2}, {f32, {1, 10, 5, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{2, 2}, {f32, {1, 9, 1, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{2, 2}, {i16, {1, 9, 5, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{4, 2}, {f32, {1, 17, 9, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{2, 3}, {f32, {1, 6, 6, 3}}));
  EXPECT_FALSE(made(op::WinogradImage{2, 0}, {f32, {1, 6, 6, 3}}));
  const auto image = [](Axes low, Axes high) {
    return op::WinogradImage{.outputs = 4, .low = std::move(low), .high = std::move(high)};
  };
  EXPECT_TRUE(made(image({1, 1}, {2, 0}), {f32, {1, 7, 5, 3}}));
  EXPECT_FALSE(made(image({1, 1}, {1, 0}), {f32, {1, 7, 5, 3}}));
  EXPECT_FALSE(made(image({-1, 0}, {1, 0}), {f32, {1, 10, 6, 3}}));
  EXPECT_TRUE(made(image({8, 0}, {0, 0}), {f32, {1, 2, 6, 3}}));
  EXPECT_FALSE(made(image({0}, {0, 0}), {f32, {1, 10, 6, 3}}));
  EXPECT_FALSE(
      made(image({0, 0}, {std::numeric_limits<std::int64_t>::max(), 0}), {f32, {1, 10, 6, 3}}));
  const Type points{f32, {16, 6, 3}};
  EXPECT_TRUE(made(op::WinogradOutputs{2, 3, 1}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 4, 1}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 0, 1}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 1, -1}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{4, 3, 1}, points));
  EXPECT_TRUE(made(op::WinogradOutputs{2, 3, 1, 1, {1, 0}}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 3, 1, 1, {2, 0}}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 3, 1, 1, {0, -1}}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 3, 1, 1, {0}}, points));
  EXPECT_FALSE(made(op::WinogradOutputs{2, 3, 1}, {f32, {16, 0, 3}}));
  constexpr std::int64_t huge = std::int64_t{1} << 32;  // whose square is 0
  EXPECT_FALSE(made(op::WinogradOutputs{2, huge, huge}, points));
}

TEST(Winograd, LeavesWhatItDoesNotFit) {
  const Dims image{1, 8, 8, 4}, filter{3, 3, 4, 4};
  const Case cases[] = {
      {image, filter, {.strides = {2, 2}}},  // too few channels
      {{1, 8, 8, 16}, {3, 3, 16, 16}, {.strides = {3, 3}}},
      {image, filter, {.strides = {1, 2}}},
      {image, filter, {.strides = {2, 1}}},
      {image, filter, {.dilations = {2, 2}}},
      {image, {3, 3, 2, 4}, {.groups = 2}},
      {image, {5, 5, 4, 4}, {}},
      {image, {3, 1, 4, 4}, {}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(testing::count<op::Conv>(passes::winograd(convolution(c), by_twos).value()), 1);
}

TEST(Winograd, LeavesFiltersThatRunsMake) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 8, 8, 4}), w = graph.input("w", f32, {3, 3, 4, 4});
  graph.output("y", graph.add_one(op::Conv{.channels_last = true}, {x, w}));
  EXPECT_EQ(testing::count<op::Conv>(passes::winograd(graph, by_twos).value()), 1);
}

/// conv(cast(x - zero), cast(w)) of bytes in words, as byte_operands makes it.
Graph integer_convolution(const Case& c, DType image, DType filter) {
  Graph graph;
  std::mt19937 generator(7);
  Value x = graph.input("x", image, Shape(c.image.begin(), c.image.end()));
  if (image != i16) x = cast(x, i16) - graph.constant(i16, image == u8 ? 255 : -3);
  const Type type{filter, Shape(c.filter.begin(), c.filter.end())};
  const double most = filter == u8 ? 255 : 127;
  const Value w = graph.constant(testing::noise(type, filter == u8 ? 0 : -128, most, generator));
  op::Conv conv = c.conv;
  conv.channels_last = true;
  const Value sums = graph.add_one(conv, {cast(x, i32), cast(cast(w, i16), i32)});
  graph.output("y", cast(sums, f32));
  return graph;
}

TEST(Winograd, IntegersAreExact) {
  const Case cases[] = {
      {{1, 8, 8, 3}, {3, 3, 3, 5}, {.pad_low = {1, 1}, .pad_high = {1, 1}}},
      {{2, 7, 5, 4}, {3, 3, 4, 18}, {}},
      {{1, 6, 9, 2}, {3, 3, 2, 3}, {.pad_low = {0, 2}, .pad_high = {1, 0}}},
  };
  for (const Case& c : cases) {
    for (const auto& [image, filter] : {std::pair{u8, i8}, std::pair{i8, u8}}) {
      const Graph direct = integer_convolution(c, image, filter);
      const Graph points = passes::winograd(direct, by_twos).value();
      ASSERT_EQ(testing::count<op::Conv>(points), 0);
      testing::expect_same_values(direct, points, 0, 0, {.low = -128, .high = 255});
    }
  }
}

TEST(Winograd, LeavesIntegersThatMightOverflow) {
  const auto stays = [](const Case& c, DType image, DType filter) {
    const Graph direct = integer_convolution(c, image, filter);
    return testing::count<op::Conv>(passes::winograd(direct, by_twos).value()) == 1;
  };
  EXPECT_TRUE(stays({{1, 8, 8, 3}, {3, 3, 3, 5}, {}}, i16, i8));
  // 4 * 255 * 9 * 128 for each channel.
  EXPECT_FALSE(stays({{1, 4, 4, 1827}, {3, 3, 1827, 1}, {}}, u8, i8));
  EXPECT_TRUE(stays({{1, 4, 4, 1828}, {3, 3, 1828, 1}, {}}, u8, i8));
  EXPECT_TRUE(stays({{1, 4, 4, 1000}, {3, 3, 1000, 1}, {}}, u8, u8));
}

TEST(Winograd, AsksWhichIsFaster) {
  // Tiles of integers are small: the points of larger ones are no integers.
  const Case layer{{1, 8, 8, 3}, {3, 3, 3, 5}, {}};
  for (const auto& [direct, count] :
       {std::pair{convolution(layer), std::size_t{3}},
        std::pair{integer_convolution(layer, u8, i8), std::size_t{2}}}) {
    int asked = 0;
    const auto never = testing::one_by_one([&](const Node& node, const auto& forms) {
      ++asked;
      EXPECT_TRUE(node.op.is<op::Conv>());
      EXPECT_EQ(forms.size(), count);
      for (const auto& form : forms)
        EXPECT_EQ(testing::count<op::Conv>(form.graph().value()), &form == forms.data() ? 1 : 0)
            << form.what;
      return std::size_t{0};
    });
    EXPECT_EQ(testing::count<op::Conv>(passes::winograd(direct, never).value()), 1);
    EXPECT_EQ(asked, 1);
  }
}

/// The direct sum in f64: x [H, W, C], w [K, C, 3, 3], no padding.
std::vector<double> direct_sum(const Tensor& x, const Tensor& w, std::int64_t stride) {
  const auto height = x.dims()[1], width = x.dims()[2], in = x.dims()[3], out = w.dims()[0];
  const auto image = x.as<float>(), filter = w.as<float>();
  std::vector<double> sums;
  for (std::int64_t i = 0; i + 2 < height; i += stride) {
    for (std::int64_t j = 0; j + 2 < width; j += stride) {
      for (std::int64_t k = 0; k < out; ++k) {
        double sum = 0;
        for (std::int64_t tap = 0; tap < 9; ++tap) {
          for (std::int64_t c = 0; c < in; ++c) {
            const std::int64_t pixel = (i + tap / 3) * width + j + tap % 3;
            sum += static_cast<double>(image[static_cast<std::size_t>(pixel * in + c)]) *
                   static_cast<double>(filter[static_cast<std::size_t>((k * in + c) * 9 + tap)]);
          }
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

using testing::Errors;

/// Of a layer whose convolution is written in form `form` (0: as it is).
Errors errors_of(std::size_t form, std::int64_t stride = 1) {
  std::mt19937 generator(11);
  Tensor image = testing::noise({f32, {1, 14, 14, 256}}, -1, 1, generator);
  auto* const pixels = reinterpret_cast<float*>(image.mutable_data());
  std::transform(pixels, pixels + image.elements(), pixels,
                 [](float value) { return std::max(value, 0.0f); });
  const Tensor filter = testing::noise({f32, {16, 256, 3, 3}}, -1, 1, generator);
  Graph graph;
  const Value x = graph.input("x", f32, {1, 14, 14, 256});
  const Value w = transpose(graph.constant(filter), {2, 3, 1, 0});
  graph.output("y",
               graph.add_one(op::Conv{.strides = {stride, stride}, .channels_last = true}, {x, w}));
  Session session(Device::cpu);
  auto program =
      session.compile(passes::winograd(graph, always(form)).value(), {.exact = true}).value();
  const Outputs outputs = program.run({{"x", image}}).value();
  const std::vector<double> expected = direct_sum(image, filter, stride);
  return testing::errors_of(outputs[0].as<float>(), expected);
}

// F(4x4, 3x3) at 0, +-1, +-2 and infinity has errors of rms 2.6e-6, 4e-5 at worst.
TEST(Winograd, ErrorsAreAsStated) {
  const Errors direct = errors_of(0), twos = errors_of(1), fours = errors_of(2);
  EXPECT_LT(direct.rms, 8e-7);
  EXPECT_LT(direct.worst, 6e-6);
  EXPECT_LT(twos.rms, 6e-7);
  EXPECT_LT(twos.worst, 3e-6);
  EXPECT_LT(fours.rms, 1.4e-6);
  EXPECT_LT(fours.worst, 1.4e-5);
  const Errors strided = errors_of(1, 2);
  EXPECT_LT(strided.rms, 6e-7);
  EXPECT_LT(strided.worst, 3e-6);
}

/// A layer that every model of times finds faster by points, on the device.
TEST(Winograd, ProgramsWithAndWithoutAgree) {
  Graph graph;
  std::mt19937 generator(5);
  const Type type{f32, {96, 96, 3, 3}};
  const Value x = graph.input("x", f32, {1, 96, 31, 30});
  const Value w = graph.constant(testing::noise(type, -0.1, 0.1, generator));
  graph.output("y", relu(conv(x, w, {.pad_low = {1, 1}, .pad_high = {1, 1}})));
  Session session(Device::cpu);
  auto fast = session.compile(graph).value();
  auto exact = session.compile(graph, {.exact = true}).value();
  EXPECT_EQ(fast.stage_text("mir").value().find("conv("), std::string::npos);
  EXPECT_NE(exact.stage_text("mir").value().find("conv("), std::string::npos);
  const auto of_memory = [](const CompiledGraph& program) {
    std::string text;
    const Explanation explained = program.explain().value();
    for (const Explanation::Claim& claim : explained.claims)
      if (claim.op == "memory") text += claim.reason;
    return text;
  };
  // 96 * 96 * 4 bytes for each of 36 or 16 points, and of 9 taps.
  const bool fours = fast.stage_text("mir").value().find("f32[36,96,96]") != std::string::npos;
  const std::string wanted =
      fours ? "are 1.3 MB, and would be 0.3 MB" : "are 0.6 MB, and would be 0.3 MB";
  EXPECT_NE(of_memory(fast).find(wanted), std::string::npos) << of_memory(fast);
  EXPECT_NE(of_memory(fast).find("a run of one takes up to"), std::string::npos);
  EXPECT_EQ(of_memory(exact), "");
  const Tensor image = testing::noise({f32, {1, 96, 31, 30}}, -1, 1, generator);
  const Outputs a = fast.run({{"x", image}}).value(), b = exact.run({{"x", image}}).value();
  for (std::size_t i = 0; i < a[0].as<float>().size(); ++i)
    ASSERT_NEAR(a[0].as<float>()[i], b[0].as<float>()[i], 2e-5) << i;
}

}  // namespace
}  // namespace rlx
