// Results of f32 signals beside those of the same numbers in f64, where f32 alone loses digits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

using Build = std::function<Value(Value, Value)>;

/// Noise that an f32 holds, on a level, with a trend.
std::vector<double> noise(std::int64_t samples, std::uint64_t state, double level, double trend) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < samples; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 48) / 65536 - 0.5;
    const double slope = trend * static_cast<double>(i) / static_cast<double>(samples);
    values.push_back(double{static_cast<float>(level + slope + uniform)});
  }
  return values;
}

std::vector<double> result(DType dtype, const std::vector<double>& x, const std::vector<double>& y,
                           const Build& build) {
  Graph graph;
  const auto samples = static_cast<std::int64_t>(x.size());
  const Value a = graph.input("a", f64, {samples}), b = graph.input("b", f64, {samples});
  const Value z = build(cast(a, dtype), cast(b, dtype));
  const bool complex = is_complex(z.dtype());
  EXPECT_EQ(complex ? z.dtype() == c64 : z.dtype() == f32, dtype == f32);
  const Value re = complex ? graph.add_one(op::Real{}, {z}) : z;
  const Value im = complex ? graph.add_one(op::Imag{}, {z}) : z - z;
  graph.output("re", cast(re, f64));
  graph.output("im", cast(im, f64));
  CompiledGraph program = Session(Device::cpu, {.threads = 1}).compile(graph).value();
  const Tensor first = Tensor::of<double>({samples}, std::span<const double>(x)),
               second = Tensor::of<double>({samples}, std::span<const double>(y));
  const std::vector<NamedInput> inputs{{"a", first}, {"b", second}};
  const Outputs outputs = program.run_typed(inputs).value();
  const auto real = outputs["re"].as<double>(), imaginary = outputs["im"].as<double>();
  std::vector<double> all(real.begin(), real.end());
  all.insert(all.end(), imaginary.begin(), imaginary.end());
  return all;
}

void expect_near(std::int64_t samples, double level, double trend, const Build& build,
                 double tolerance = 1e-6) {
  const std::vector<double> x = noise(samples, 1, level, trend),
                            y = noise(samples, 2, level, trend);
  const std::vector<double> exact = result(f64, x, y, build), got = result(f32, x, y, build);
  ASSERT_EQ(got.size(), exact.size());
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_FALSE(std::isnan(got[i]));
    most = std::max(most, std::abs(got[i] - exact[i]));
    largest = std::max(largest, std::abs(exact[i]));
  }
  EXPECT_LT(most, tolerance * largest);
}

TEST(Precision, CrossDensitiesOfUnrelatedSignals) {
  for (const Average average : {Average::mean, Average::median}) {
    for (const Detrend detrend : {Detrend::none, Detrend::constant, Detrend::linear}) {
      const WelchOptions options{
          .length = 64, .overlap = 32, .detrend = detrend, .average = average};
      expect_near(4000, 0, 0, [&](Value x, Value y) { return csd(x, y, options); });
      expect_near(4000, 3, 5, [&](Value x, Value y) { return coherence(x, y, options); });
    }
  }
}

TEST(Precision, DetrendedSignalsOnALevel) {
  for (const Detrend detrend : {Detrend::constant, Detrend::linear}) {
    const WelchOptions options{.length = 500, .overlap = 250, .detrend = detrend};
    expect_near(3000, 300, 20, [&](Value x, Value) { return welch(x, options); });
    expect_near(3000, 300, 20, [&](Value x, Value) { return spectrogram(x, options); });
  }
  expect_near(3000, 300, 20, [](Value x, Value) { return periodogram(x); });
}

TEST(Precision, MeansOfManySegments) {
  expect_near(60000, 0, 0, [](Value x, Value) {
    return welch(x, {.length = 16, .overlap = 15, .detrend = Detrend::none});
  });
}

TEST(Precision, FiltersNearTheUnitCircle) {
  expect_near(3000, 0, 0, [](Value x, Value) { return decimate(x, 13); });
  const std::array<double, 2> band{0.5, 4};
  expect_near(5000, 3, 2, [&](Value x, Value) { return sos_filter(x, butterworth(6, band, 512)); });
}

// The f64 state of an f32 stream.
TEST(Precision, StreamsOfFiltersLoseNothing) {
  const std::array<double, 1> cutoff{2};
  const std::vector<Section> sections = butterworth(8, cutoff, 512);
  const auto states = static_cast<std::int64_t>(sections.size());
  const auto chunks = [&](Value x, Value) {
    Value state = broadcast(x.graph().constant(f64, 0.0), {states, 2});
    Values parts;
    for (std::int64_t i = 0; i < 40; ++i) {
      const Filtered next = sos_filter(slice(x, {i * 50}, {i * 50 + 50}), sections, state);
      EXPECT_EQ(next.state.dtype(), f64);
      parts.push_back(next.signal);
      state = next.state;
    }
    return concat(parts, 0);
  };
  expect_near(2000, 3, 2, chunks);
}

}  // namespace
}  // namespace rlx
