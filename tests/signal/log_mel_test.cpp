// log_mel's derivative beside finite differences, and welch_peaks' kernel beside its reference.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"
#include "signal/kernels.hpp"

namespace rlx {
namespace {

constexpr std::int64_t frames = 3, points = 16, bins = points / 2 + 1, mels = 4;

Tensor values(Dims dims, double low, double high, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> list;
  for (std::int64_t i = 0; i < element_count(dims); ++i) list.push_back(uniform(generator));
  return Tensor::of<double>(dims, std::span<const double>(list));
}

/// A clip whose last frame lies below the floor, whose filters read some bins twice, one none.
struct Clip {
  Tensor spectrum, filters, gradient;
};
Clip clip(double quiet) {
  Clip made{values({1, frames, 2 * points}, -1, 1, 1), values({mels, bins}, 0, 1, 2),
            values({1, frames, mels}, -1, 1, 3)};
  std::vector<double> list(made.spectrum.as<double>().begin(), made.spectrum.as<double>().end());
  for (std::size_t i = 2 * 2 * points; i < list.size(); ++i) list[i] *= quiet;
  // One band of the first frame 10^-9 of the others': below the frame's floor too.
  std::vector<double> weights(made.filters.as<double>().begin(), made.filters.as<double>().end());
  for (std::size_t k = 0; k < bins; ++k) weights[k] *= 1e-9;
  made.spectrum = Tensor::of<double>(made.spectrum.dims(), std::span<const double>(list));
  made.filters = Tensor::of<double>(made.filters.dims(), std::span<const double>(weights));
  return made;
}

double weighted_result(const Tensor& spectrum, const Clip& c, op::LogMelFloor floor) {
  const auto result = evaluate(op::LogMel{floor}, std::vector<Tensor>{spectrum, c.filters}).value();
  const auto y = result[0].as<double>(), g = c.gradient.as<double>();
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
  return sum;
}

TEST(LogMelBackward, IsTheDerivativeFloorsIncluded) {
  for (const double quiet : {1.0, 1e-5, 1e-12}) {
    for (const auto floor :
         {op::LogMelFloor::none, op::LogMelFloor::frame, op::LogMelFloor::clip}) {
      const Clip c = clip(quiet);
      const auto derivative = evaluate(op::LogMelBackward{floor},
                                       std::vector<Tensor>{c.spectrum, c.filters, c.gradient})
                                  .value();
      const auto got = derivative[0].as<double>(), at = c.spectrum.as<double>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double step = 1e-6 * std::abs(at[i]);
        std::vector<double> moved(at.begin(), at.end());
        const auto value = [&](double x) {
          moved[i] = x;
          return weighted_result(
              Tensor::of<double>(c.spectrum.dims(), std::span<const double>(moved)), c, floor);
        };
        const double difference = (value(at[i] + step) - value(at[i] - step)) / (2 * step);
        ASSERT_NEAR(got[i] * std::abs(at[i]), difference * std::abs(at[i]), 2e-8)
            << "number " << i << ", quiet " << quiet << ", floor " << static_cast<int>(floor);
      }
    }
  }
}

TEST(LogMelBackward, PlacesThatShareTheMaximumShareWhatTheFloorHandsOn) {
  // Two equal frames and a silent one: what the silent one is given goes to both in equal shares.
  std::vector<double> spectrum(3 * 8, 0.0), filters(1 * 3, 0.0);
  spectrum[0] = spectrum[8] = 2;
  filters[0] = 1;
  const auto result =
      evaluate(op::LogMelBackward{op::LogMelFloor::clip},
               std::vector<Tensor>{Tensor::of<double>({3, 8}, std::span<const double>(spectrum)),
                                   Tensor::of<double>({1, 3}, std::span<const double>(filters)),
                                   Tensor::of<double>({3, 1}, {0.0, 0.0, 1.0})})
          .value();
  const auto got = result[0].as<double>();
  const double share = 0.25 / 2 / std::log(10.0) / 4 * 2 * 2;
  EXPECT_NEAR(got[0], share, 1e-12);
  EXPECT_NEAR(got[8], share, 1e-12);
  EXPECT_EQ(got[16], 0);
}

TEST(LogMelBackward, RunsInPrograms) {
  const Clip c = clip(1e-5);
  Graph graph;
  const Value spectrum = graph.input("s", f64, {1, frames, 2 * points}),
              gradient = graph.input("g", f64, {1, frames, mels});
  graph.output(
      "y", graph.add_one(op::LogMelBackward{}, {spectrum, graph.constant(c.filters), gradient}));
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const Outputs outputs =
      program.run_typed(std::vector<NamedInput>{{"s", c.spectrum}, {"g", c.gradient}}).value();
  const auto expected =
      evaluate(op::LogMelBackward{}, std::vector<Tensor>{c.spectrum, c.filters, c.gradient})
          .value();
  const auto a = outputs["y"].as<double>(), b = expected[0].as<double>();
  for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9 * (1 + std::abs(b[i])));
}

TEST(WelchPeaks, KernelGivesWhatTheReferenceGives) {
  std::mt19937 generator(4);
  std::uniform_int_distribution<int> few(0, 3);  // many ties
  for (const std::int64_t width : {4, 18, 64, 514}) {
    for (const std::int64_t segments : {1, 3}) {
      std::vector<float> list;
      for (std::int64_t i = 0; i < 6 * width; ++i)
        list.push_back(static_cast<float>(few(generator)));
      const Tensor x = Tensor::of<float>({6, width}, std::span<const float>(list));
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{2}, width / 4 + 1}) {
        const Op op = op::WelchPeaks{.k = k, .n_segments = segments};
        const auto expected = evaluate(op, std::vector<Tensor>{x}).value();
        const Type in{f32, {6, width}}, out{f32, {6 / segments, 2 * k}};
        const auto kernel = signal::line_kernel(op, std::span(&in, 1), out, codegen::Isa::portable);
        ASSERT_NE(kernel, nullptr);
        Tensor got(f32, out.dims()), scratch(u8, {kernel->scratch_bytes() + 64});
        void* const buffers[] = {const_cast<std::byte*>(x.data()), got.mutable_data()};
        kernel->run(buffers, 0, kernel->work_items(), scratch.mutable_data());
        const auto a = got.as<float>(), b = expected[0].as<float>();
        EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << width << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace rlx
