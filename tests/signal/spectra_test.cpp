// Kernels that never store a spectrum, beside the same in single ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

/// Sines under a slow envelope, silent at the end of the last row.
std::vector<float> signal(std::int64_t rows, std::int64_t samples) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * samples; ++i) {
    const auto t = static_cast<double>(i);
    values.push_back(static_cast<float>(std::sin(t * 0.3) + 0.3 * std::cos(t * 1.1) + 0.01 * t));
  }
  std::fill(values.end() - samples / 3, values.end(), 0.0f);
  return values;
}

std::vector<float> filters(std::int64_t bands, std::int64_t bins) {
  std::vector<float> values(static_cast<std::size_t>(bands * bins), 0.0f);
  for (std::int64_t band = 0; band + 1 < bands; ++band) {  // the last one is empty
    for (std::int64_t k = band; k < std::min(band + 3, bins); ++k)
      values[static_cast<std::size_t>(band * bins + k)] = 1.0f / static_cast<float>(1 + k);
  }
  return values;
}

Value power_in_ops(Value x, Value weights, std::int64_t length, std::int64_t hop, bool mean_off) {
  Graph& graph = x.graph();
  Value frames = graph.add_one(op::Frame{.length = length, .hop = hop}, {x});
  if (mean_off) frames = frames - mean(frames, {frames.rank() - 1}, true);
  const Value bins = graph.add_one(op::Rfft{}, {frames * weights});
  const Value re = graph.add_one(op::Real{}, {bins}), im = graph.add_one(op::Imag{}, {bins});
  return re * re + im * im;
}

void expect_near(const Outputs& outputs, double tolerance) {
  const auto got = outputs["kernel"].as<float>(), expected = outputs["ops"].as<float>();
  ASSERT_EQ(got.size(), expected.size());
  float most = 0;
  for (const float value : expected) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * most) << i;
}

TEST(Spectra, BandLevelsAreThoseOfSingleOps) {
  for (const std::int64_t length : {25, 64, 400}) {
    const std::int64_t bins = length / 2 + 1, bands = 5, samples = 3000;
    Graph graph;
    const Value x = graph.input("x", f32, {2, samples});
    const Value weights = cast(graph.constant(window(Window::hann, length)), f32);
    const Value mel = graph.input("filters", f32, {bands, bins});
    graph.output("kernel",
                 graph.add_one(op::BandLevels{.length = length, .hop = 37}, {x, weights, mel}));
    const Value power = power_in_ops(x, weights, length, 37, false);
    graph.output("ops",
                 log(max(matmul(power, transpose(mel, {1, 0})), graph.constant(f32, 1e-10))) *
                     graph.constant(f32, 1 / std::log(10.0)));
    CompiledGraph program = Session(Device::cpu).compile(graph).value();
    expect_near(program.run({{"x", signal(2, samples)}, {"filters", filters(bands, bins)}}).value(),
                1e-4);
  }
}

/// One level by its definition.
double level_of(const float* signal, std::int64_t samples, std::int64_t start,
                std::span<const double> weights, const float* filter) {
  const auto length = static_cast<std::int64_t>(weights.size());
  double energy = 0;
  for (std::int64_t k = 0; k <= length / 2; ++k) {
    if (filter[k] == 0) continue;
    std::complex<double> bin = 0;
    for (std::int64_t j = 0; j < length; ++j) {
      std::int64_t at = std::abs(start + j);
      if (at >= samples) at = 2 * (samples - 1) - at;
      const double turn = static_cast<double>(j * k % length) / static_cast<double>(length);
      bin += weights[static_cast<std::size_t>(j)] * static_cast<double>(signal[at]) *
             std::polar(1.0, -2 * std::numbers::pi * turn);
    }
    energy += static_cast<double>(filter[k]) * std::norm(bin);
  }
  return std::log10(std::max(energy, 1e-10));
}

// Hops of whole vectors share samples between frames, others do not; groups at the ends of each row
// see reflected samples.
TEST(Spectra, ReflectedFramesAreThoseOfTheDefinition) {
  const std::pair<std::int64_t, std::int64_t> frames[] = {
      {64, 32}, {400, 160}, {128, 48}, {256, 64}, {96, 37}, {35, 16}, {64, 64}};
  for (const auto& [length, hop] : frames) {
    const std::int64_t bins = length / 2 + 1, bands = 18, samples = 70 * hop + 5,
                       before = length / 2, behind = length / 2 - 3, rows = 2;
    Graph graph;
    const Value x = graph.input("x", f32, {rows, samples});
    const Tensor hann = window(Window::hann, length);
    const Value mel = graph.input("filters", f32, {bands, bins});
    graph.output(
        "y", graph.add_one(
                 op::BandLevels{.length = length, .hop = hop, .before = before, .behind = behind},
                 {x, cast(graph.constant(hann), f32), mel}));
    std::vector<float> signals;
    for (std::int64_t i = 0; i < rows * samples; ++i)
      signals.push_back(static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f);
    const std::vector<float> weights = filters(bands, bins);
    CompiledGraph program = Session(Device::cpu).compile(graph).value();
    const Outputs outputs = program.run({{"x", signals}, {"filters", weights}}).value();
    const auto got = outputs["y"].as<float>();
    const std::int64_t count = (samples + before + behind - length) / hop + 1;
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), rows * count * bands);
    const std::span<const double> own(reinterpret_cast<const double*>(hann.data()),
                                      static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < rows * count * bands; i += 7) {
      const std::int64_t row = i / bands / count, frame = i / bands % count, band = i % bands;
      ASSERT_NEAR(got[static_cast<std::size_t>(i)],
                  level_of(signals.data() + row * samples, samples, frame * hop - before, own,
                           weights.data() + band * bins),
                  1e-3)
          << length << " points, row " << row << ", frame " << frame << ", band " << band;
    }
  }
}

// What stands in a sample reaches the levels of its frames alone, and their maxima.
TEST(Spectra, LevelsOfWhatIsNoNumberAreNone) {
  const std::int64_t length = 64, hop = 16, samples = 64 + 16 * 99, bins = 33, bands = 18;
  for (const double offset : {0.0, 1e-6}) {
    Graph graph;
    const Value x = graph.input("x", f32, {samples});
    const Value weights = cast(graph.constant(window(Window::hann, length)), f32);
    const Value mel = graph.input("filters", f32, {bands, bins});
    const Values found =
        graph.add(op::BandLevels{.length = length, .hop = hop, .offset = offset, .maxima = true},
                  Values{x, weights, mel});
    graph.output("levels", found[0]);
    graph.output("maxima", found[1]);
    std::vector<float> values = signal(1, 2 * samples), ones(18 * 33, 1.0f);
    values.resize(static_cast<std::size_t>(samples));  // without the silence at the end
    constexpr float infinity = std::numeric_limits<float>::infinity();
    values[40 * hop] = std::numeric_limits<float>::quiet_NaN();
    values[60 * hop] = 1e25f;  // its power is infinite
    if (offset > 0) std::fill(ones.begin() + 33, ones.begin() + 66, -1.0f);
    CompiledGraph program = Session(Device::cpu).compile(graph).value();
    const Outputs outputs = program.run({{"x", values}, {"filters", ones}}).value();
    const auto levels = outputs["levels"].as<float>(), maxima = outputs["maxima"].as<float>();
    ASSERT_EQ(levels.size(), 100U * 18);
    ASSERT_EQ(maxima.size(), 100U);
    // Where a frame begins its window is zero.
    const auto within = [&](std::int64_t frame, std::int64_t at) {
      return at * hop > frame * hop && at * hop < frame * hop + length;
    };
    for (std::int64_t frame = 0; frame < 100; ++frame) {
      const float* const own = levels.data() + frame * bands;
      const float most = maxima[static_cast<std::size_t>(frame)];
      if (within(frame, 40) || frame == 40) {
        EXPECT_TRUE(std::isnan(own[0]) && std::isnan(own[17]) && std::isnan(most)) << frame;
      } else if (offset > 0) {
        EXPECT_TRUE(std::isnan(own[1]) && std::isnan(most)) << frame;
        EXPECT_EQ(own[0] == infinity, within(frame, 60)) << frame;
      } else if (within(frame, 60)) {
        EXPECT_TRUE(own[0] == infinity && own[17] == infinity && most == infinity) << frame;
      } else {
        EXPECT_EQ(most, *std::max_element(own, own + bands)) << frame;
        EXPECT_LT(most, 10) << frame;
      }
    }
  }
}

// Of signals whose last group has fewer frames than lanes, of frames that reach beyond the ends,
// of an odd length and of dense filters.
TEST(Spectra, MaximaAreThoseOfTheLevels) {
  for (const std::int64_t length : {25, 64}) {
    for (const DType dtype : {f32, f64}) {
      Graph graph;
      const Value x = graph.input("x", f32, {3, 700});
      const Value weights = cast(graph.constant(window(Window::hann, length)), dtype);
      const Value mel = graph.input("filters", f32, {21, length / 2 + 1});
      const Values found = graph.add(
          op::BandLevels{.length = length, .hop = 16, .before = 20, .behind = 9, .maxima = true},
          Values{cast(x, dtype), weights, cast(mel, dtype)});
      graph.output("kernel", cast(found[1], f32));
      graph.output("ops", cast(max_over(found[0], {2}), f32));
      std::vector<float> dense(static_cast<std::size_t>(21 * (length / 2 + 1)), 0.25f);
      CompiledGraph program = Session(Device::cpu).compile(graph).value();
      expect_near(program.run({{"x", signal(3, 700)}, {"filters", dense}}).value(), 0);
    }
  }
}

TEST(Spectra, MeanPowerIsThatOfSingleOps) {
  for (const std::int64_t length : {25, 64, 256}) {
    for (const bool mean_off : {false, true}) {
      Graph graph;
      const Value x = graph.input("x", f32, {3, 2000});
      const Value weights = cast(graph.constant(window(Window::hamming, length)), f32);
      graph.output("kernel", graph.add_one(op::MeanPower{.length = length,
                                                         .hop = length / 2,
                                                         .take_mean_off = mean_off},
                                           {x, weights}));
      graph.output("ops", mean(power_in_ops(x, weights, length, length / 2, mean_off), {1}));
      CompiledGraph program = Session(Device::cpu).compile(graph).value();
      expect_near(program.run({{"x", signal(3, 2000)}}).value(), 1e-5);
    }
  }
}

TEST(Spectra, WindowsOfNoUseAreErrors) {
  EXPECT_THROW(window(Window::hann, 0), Exception);
  EXPECT_THROW(window(Window::gaussian, 8), Exception);
  Graph graph;
  const Value x = graph.input("x", f32, {100});
  EXPECT_THROW(welch(x, {.length = 64, .overlap = 64}), Exception);
  EXPECT_THROW(welch(x, {.length = 256}), Exception);
}

}  // namespace
}  // namespace rlx
