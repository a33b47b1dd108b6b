// Spectra of frames found again in graphs as users and exporters write them, and what must stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;

/// The recognised graph; its values on noise must be those of `graph`.
Graph recognised(const Graph& graph) {
  Graph found = passes::recognise(graph).value();
  testing::expect_same_values(graph, found, 2e-5, 2e-5, {0.1, 2, 5});
  return found;
}

constexpr std::int64_t length = 16, hop = 5, bins = length / 2 + 1, bands = 3;

/// What the variants of one graph change.
struct Variant {
  bool by_power = false;       ///< pow(x, 2) for x * x
  bool clamped = false;        ///< clamp for max
  bool filters_first = false;  ///< filters [bands, bins]
  FftNorm norm = FftNorm::backward;
  double least = 1e-6;
  bool add_least = false;  ///< energy + least for the maximum
  bool spectrum_is_output = false;
  bool wrong_part = false;  ///< re^2 + re^2
  std::int64_t window_axes = 1;
};

Graph log_bands(const Variant& v) {
  Graph g;
  const Value x = g.input("x", f32, {2, 60});
  Value window = g.input("window", f32, {length});
  if (v.window_axes == 3) window = reshape(window, {1, 1, length});
  const Value filters =
      g.input("filters", f32, v.filters_first ? Shape{bands, bins} : Shape{bins, bands});
  const Value frames = g.add_one(op::Frame{.length = length, .hop = hop}, {x});
  const Value spectrum = g.add_one(op::Rfft{.norm = v.norm}, {window * frames});
  const Value re = g.add_one(op::Real{}, {spectrum}),
              im = v.wrong_part ? re : g.add_one(op::Imag{}, {spectrum});
  const auto squared = [&](Value part) {
    return v.by_power ? pow(part, g.constant(f32, 2)) : part * part;
  };
  const Value power = squared(im) + squared(re);
  const Value energy = g.add_one(
      op::DotGeneral{.a_contract = {2}, .b_contract = {v.filters_first ? 1 : 0}}, {power, filters});
  const Value least = g.constant(f32, v.least);
  const Value held = v.add_least ? energy + least
                     : v.clamped ? g.add_one(op::Clamp{}, {energy, least})
                                 : max(energy, least);
  g.output("y", log(held));
  if (v.spectrum_is_output) g.output("re", re);
  return g;
}

TEST(RecogniseSpectra, BandLevelsHoweverTheyAreWritten) {
  for (const Variant& v :
       {Variant{}, Variant{.by_power = true}, Variant{.clamped = true},
        Variant{.filters_first = true}, Variant{.window_axes = 3}, Variant{.add_least = true}}) {
    const Graph found = recognised(log_bands(v));
    EXPECT_EQ(count<op::BandLevels>(found), 1);
    EXPECT_EQ(count<op::Rfft>(found), 0);
  }
}

TEST(RecogniseSpectra, WhatIsNearlyTheSameStays) {
  for (const Variant& v : {Variant{.norm = FftNorm::ortho}, Variant{.least = 0},
                           Variant{.least = 0, .add_least = true},
                           Variant{.spectrum_is_output = true}, Variant{.wrong_part = true}}) {
    const Graph found = recognised(log_bands(v));
    EXPECT_EQ(count<op::BandLevels>(found), 0);
    EXPECT_EQ(count<op::Rfft>(found), 1);
  }
}

enum class Swapped { spectrum, parts, power };
/// As librosa and torch have it: bins before frames, the filters as the product's first operand.
Graph bands_before_frames(bool batched, Swapped swapped, bool matrix_for_all, bool wrong_axis) {
  Graph g;
  const Value x = g.input("x", f32, batched ? Shape{2, 85} : Shape{85});
  const Value window = g.input("window", f32, {length});
  // Nine frames, as many as bins: nothing but the axis tells them apart.
  const Value frames = g.add_one(op::Frame{.length = length, .hop = 8}, {x});
  EXPECT_EQ(frames.shape()[frames.shape().size() - 2], Dim(bins));
  const auto swap = [&](Value v, Swapped at) {
    if (at != swapped || wrong_axis) return v;
    return transpose(v, batched ? Axes{0, 2, 1} : Axes{1, 0});
  };
  const Value spectrum = swap(g.add_one(op::Rfft{}, {frames * window}), Swapped::spectrum);
  const Value re = swap(g.add_one(op::Real{}, {spectrum}), Swapped::parts),
              im = swap(g.add_one(op::Imag{}, {spectrum}), Swapped::parts);
  const Value power = swap(re * re + im * im, Swapped::power);
  Value filters = g.input("filters", f32, {bands, bins});
  if (batched && matrix_for_all) filters = broadcast(filters, {2, bands, bins});
  g.output("y", log(matmul(filters, power) + g.constant(f32, 1e-6)));
  return g;
}

TEST(RecogniseSpectra, BandsBeforeFrames) {
  for (const bool batched : {false, true}) {
    for (const Swapped swapped : {Swapped::spectrum, Swapped::parts, Swapped::power}) {
      const Graph found = recognised(bands_before_frames(batched, swapped, true, false));
      EXPECT_EQ(count<op::BandLevels>(found), 1);
      EXPECT_EQ(count<op::Rfft>(found), 0);
    }
    // Sums over frames.
    const Graph other = recognised(bands_before_frames(batched, Swapped::power, true, true));
    EXPECT_EQ(count<op::BandLevels>(other), 0);
  }
  const Graph found = recognised(bands_before_frames(true, Swapped::power, false, false));
  EXPECT_EQ(count<op::BandLevels>(found), 1);
}

/// As the ONNX reader makes STFT: frames with an axis of 1 behind, parts side by side at the end.
Graph onnx_stft(bool sum_of_squares, bool contiguous_parts) {
  Graph g;
  const Value x = g.input("x", f32, {1, 60});
  const Value window = reshape(g.input("window", f32, {length}), {length, 1});
  const Value filters = g.input("filters", f32, {bins, bands});
  const Value frames = g.add_one(op::Frame{.length = length, .hop = hop}, {x});
  const std::int64_t count = frames.shape()[1].value();
  const Value weighted = unsqueeze(frames, {3}) * window;
  const Value spectrum = g.add_one(op::Rfft{.axis = 2}, {reshape(weighted, {1, count, length})});
  const Value both = concat({unsqueeze(g.add_one(op::Real{}, {spectrum}), {3}),
                             unsqueeze(g.add_one(op::Imag{}, {spectrum}), {3})},
                            3);
  Value power;
  if (sum_of_squares) {
    power = sum(both * both, {3});
  } else {
    const auto part = [&](std::int64_t k) {
      const Value half = slice(both, {0, 0, 0, k}, {1, count, bins, k + 1});
      return reshape(half, {1, count, bins});
    };
    const Value re = part(0), im = part(contiguous_parts ? 1 : 0);
    power = re * re + im * im;
  }
  const Value least = g.constant(f32, 1e-5);
  g.output("y", log(max(matmul(power, filters), least)));
  return g;
}

TEST(RecogniseSpectra, OnnxStft) {
  EXPECT_EQ(count<op::BandLevels>(recognised(onnx_stft(true, true))), 1);
  EXPECT_EQ(count<op::BandLevels>(recognised(onnx_stft(false, true))), 1);
  EXPECT_EQ(count<op::BandLevels>(recognised(onnx_stft(false, false))), 0);
}

Graph welch_in_ops(bool detrend, std::int64_t axis, bool off_mean_of_all) {
  Graph g;
  const Value x = g.input("x", f32, {2, 60}), window = g.input("window", f32, {length});
  Value frames = g.add_one(op::Frame{.length = length, .hop = hop}, {x});
  if (detrend) {
    const Axes axes = off_mean_of_all ? Axes{1, 2} : Axes{2};
    frames = frames - mean(frames, axes, true);
  }
  const Value spectrum = g.add_one(op::Rfft{}, {frames * window});
  const Value re = g.add_one(op::Real{}, {spectrum}), im = g.add_one(op::Imag{}, {spectrum});
  g.output("y", mean(re * re + im * im, {axis}));
  return g;
}

TEST(RecogniseSpectra, WelchWithoutStoredSegments) {
  EXPECT_EQ(count<op::MeanPower>(recognised(welch_in_ops(false, 1, false))), 1);
  EXPECT_EQ(count<op::MeanPower>(recognised(welch_in_ops(true, 1, false))), 1);
  EXPECT_EQ(count<op::MeanPower>(recognised(welch_in_ops(true, 1, true))), 0);
  EXPECT_EQ(count<op::MeanPower>(recognised(welch_in_ops(false, 2, false))), 0);
  EXPECT_EQ(count<op::MeanPower>(recognised(welch_in_ops(false, 0, false))), 0);
}

TEST(RecogniseSpectra, RunsAsOneKernelOfTheDevice) {
  Graph graph = onnx_stft(true, true);
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const std::string mir = program.stage_text("mir").value();
  EXPECT_NE(mir.find("band_levels"), std::string::npos) << mir;
  EXPECT_EQ(mir.find("rfft"), std::string::npos) << mir;
  // The gate was asked, and says why.
  const Explanation explanation = program.explain().value();
  const auto asked =
      std::find_if(explanation.questions.begin(), explanation.questions.end(),
                   [](const FusionQuestion& question) { return question.kind == "composite"; });
  ASSERT_NE(asked, explanation.questions.end());
  EXPECT_EQ(asked->what, "keep band_levels as one kernel");
  EXPECT_TRUE(asked->fused);
  EXPECT_EQ(asked->after.kernel_launches, 1);
  EXPECT_GT(asked->before.kernel_launches, 2);
  EXPECT_GT(asked->before.device_traffic_bytes, asked->after.device_traffic_bytes);
}

}  // namespace
}  // namespace rlx
