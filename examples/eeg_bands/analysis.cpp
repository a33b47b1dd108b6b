// One graph gives everything: Welch's densities, the bands' powers, the strongest rhythms.
#include "eeg_bands/analysis.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <rlx/signal.hpp>

namespace eeg_bands {
namespace {

constexpr double segment_s = 4, rhythm_low = 1, rhythm_high = 45;

rlx::Error bad_input(const std::string& message) { return {rlx::ErrorKind::bad_input, message}; }

rlx::Value constant_of(rlx::Graph& graph, rlx::Dims dims, const std::vector<double>& values) {
  const std::span<const double> all(values);
  return rlx::cast(graph.constant(rlx::Tensor::of<double>(std::move(dims), all)), rlx::f32);
}

/// [bins, bands]: the integral of a density over each band.
rlx::Value integrals(rlx::Graph& graph, const Report& report) {
  std::vector<double> weights;
  for (std::int64_t bin = 0; bin < report.bins; ++bin) {
    const double hz = report.hz_of(bin);
    for (const Band& band : bands)
      weights.push_back(hz >= band.low && hz < band.high ? report.hz_of(1) : 0);
  }
  return constant_of(graph, {report.bins, static_cast<std::int64_t>(band_count)}, weights);
}

/// The strongest bin of power times frequency, [channels, 2]: (bin, that product).
rlx::Value rhythms(rlx::Value signal, const Report& report) {
  rlx::Graph& graph = signal.graph();
  const std::int64_t n = report.segment, channels = signal.shape()[0].value();
  rlx::Value frames = rlx::frame(signal, n, n / 2);
  const std::int64_t segments = frames.shape()[1].value();
  frames = frames - rlx::mean(frames, {2}, true);
  frames = frames * rlx::cast(graph.constant(rlx::window(rlx::Window::hann, n)), rlx::f32);
  frames = rlx::reshape(frames, {channels * segments, n});
  const rlx::Value spectrum = rlx::block_fft(rlx::pad(frames, {0, 0}, {0, n}));
  // Amplitudes times the root of the frequency; nothing outside of where rhythms are.
  std::vector<double> weights(static_cast<std::size_t>(2 * n), 0);
  for (std::int64_t bin = 0; bin <= n / 2; ++bin) {
    const double hz = report.hz_of(bin);
    if (hz < rhythm_low || hz > rhythm_high) continue;
    weights[static_cast<std::size_t>(bin)] = weights[static_cast<std::size_t>(n + bin)] =
        std::sqrt(hz);
  }
  return rlx::welch_peaks(spectrum * constant_of(graph, {2 * n}, weights),
                          {.k = 1, .n_segments = segments});
}

rlx::Status measure(const rlx::Tensor& samples, Report& report) {
  rlx::Graph graph;
  const auto channels = static_cast<std::int64_t>(report.channels.size());
  const rlx::Value signal = graph.input("signal", rlx::f32, {channels, samples.dims()[1]});
  const rlx::Value density =
      rlx::welch(signal, {.sample_rate = static_cast<double>(report.sample_rate),
                          .length = report.segment,
                          .overlap = report.segment - report.segment / 2});
  graph.output("density", density);
  graph.output("powers", rlx::matmul(density, integrals(graph, report)));
  graph.output("rhythms", rhythms(signal, report));
  auto program = rlx::Session(rlx::Device::cpu).compile(graph);
  if (!program.ok()) return program.error();
  auto outputs = program->run({{"signal", samples}});
  if (!outputs.ok()) return outputs.error();
  const rlx::Tensor all = (*outputs)["density"], powers = (*outputs)["powers"],
                    peaks = (*outputs)["rhythms"];
  for (std::size_t c = 0; c < report.channels.size(); ++c) {
    ChannelReport& channel = report.channels[c];
    const auto bins = static_cast<std::size_t>(report.bins);
    const auto line = all.as<float>().subspan(c * bins, bins);
    channel.density.assign(line.begin(), line.end());
    for (std::size_t b = 0; b < band_count; ++b)
      channel.power[b] = powers.as<float>()[c * band_count + b];
    channel.rhythm_hz = report.hz_of(std::lround(peaks.as<float>()[2 * c]));
  }
  return {};
}

/// The rate that most channels have.
double common_rate(const rlx::Recording& recording) {
  std::map<double, int> counts;
  for (const auto& channel : recording.channels) ++counts[channel.sample_rate];
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : most->first;
}

}  // namespace

double ChannelReport::total() const { return std::accumulate(power.begin(), power.end(), 0.0); }

double Report::hz_of(std::int64_t bin) const {
  return static_cast<double>(bin) * static_cast<double>(sample_rate) / static_cast<double>(segment);
}

rlx::Result<Report> analyse(const std::string& file) {
  const auto recording = rlx::read_edf(file);
  if (!recording.ok()) return recording.error();
  const double rate = common_rate(*recording);
  if (rate < 4 || rate != std::round(rate))
    return bad_input("The recording (" + file + ") has no channels of a whole rate.");
  Report report;
  report.sample_rate = std::lround(rate);
  report.segment = static_cast<std::int64_t>(segment_s) * report.sample_rate;
  report.bins = report.segment / 2 + 1;
  std::vector<float> values;
  std::int64_t samples = 0;
  for (const auto& channel : recording->channels) {
    if (channel.sample_rate != rate) continue;
    if (report.unit.empty()) report.unit = channel.unit;
    report.channels.push_back({.label = channel.label});
    samples = channel.samples.elements();
    const auto line = channel.samples.as<float>();
    values.insert(values.end(), line.begin(), line.end());
  }
  report.seconds = static_cast<double>(samples) / rate;
  if (samples < report.segment)
    return bad_input("The recording (" + file + ") is shorter than 4 s.");
  const rlx::Tensor all = rlx::Tensor::of<float>(
      {static_cast<std::int64_t>(report.channels.size()), samples}, std::span<const float>(values));
  const rlx::Status status = measure(all, report);
  if (!status.ok()) return status.error();
  return report;
}

}  // namespace eeg_bands
