// Frames, overlap-add, short-time Fourier transforms and their inverse.
#include <algorithm>
#include <cmath>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

/// The options with their defaults filled in, checked.
struct StftPlan {
  std::int64_t n_fft, hop, length;
  std::int64_t points;          ///< of a frame: those that the window covers
  std::int64_t margin;          ///< samples put at either end
  std::vector<double> weights;  ///< [points]
  double scale = 1;
  double sum = 0, energy = 0;
};

StftPlan plan_of(const StftOptions& options) {
  StftPlan plan{};
  plan.n_fft = options.n_fft;
  plan.length = options.length == 0 ? options.n_fft : options.length;
  plan.hop = options.hop == 0 ? std::max<std::int64_t>(plan.length / 4, 1) : options.hop;
  if (plan.n_fft < 1 || plan.length < 1 || plan.length > plan.n_fft || plan.hop < 1) {
    throw Exception(bad_input(
        "A short-time transform of ({}) points with a window of ({}), ({}) apart, is none.",
        plan.n_fft, plan.length, plan.hop));
  }
  const Tensor shape =
      window(options.window, plan.length, options.periodic, options.window_parameter);
  plan.points = options.window_first ? plan.length : plan.n_fft;
  plan.margin = options.centre ? plan.points / 2 : 0;
  plan.weights.assign(static_cast<std::size_t>(plan.points), 0);
  const auto values = shape.as<double>();
  std::copy(values.begin(), values.end(),
            plan.weights.begin() + static_cast<std::ptrdiff_t>((plan.points - plan.length) / 2));
  for (const double weight : values) {
    plan.sum += weight;
    plan.energy += weight * weight;
  }
  switch (options.scaling) {
    case StftScaling::none: break;
    case StftScaling::spectrum: plan.scale = 1 / plan.sum; break;
    case StftScaling::density: plan.scale = 1 / std::sqrt(options.sample_rate * plan.energy); break;
    case StftScaling::orthonormal:
      plan.scale = 1 / std::sqrt(static_cast<double>(plan.n_fft));
      break;
  }
  return plan;
}

std::vector<double> scaled(std::vector<double> values, double scale) {
  for (double& value : values) value *= scale;
  return values;
}

/// The parts of each frame's spectrum, [..., frames, bins].
Parts short_time_parts(Value signal, const StftOptions& options) {
  require_signal(signal, "stft");
  const StftPlan plan = plan_of(options);
  signal = extended(signal, plan.margin, plan.margin, options.extension);
  if (options.whole) {
    const std::int64_t rest = static_samples(signal, "an stft of whole frames") - plan.points;
    const std::int64_t steps = rest <= 0 ? 0 : (rest + plan.hop - 1) / plan.hop;
    signal = widened(signal, 0, steps * plan.hop - rest);
  }
  const Value frames = frame(signal, plan.points, plan.hop);
  const Value weights = constant_like(signal, {plan.points}, scaled(plan.weights, plan.scale));
  return spectrum_parts(frames * weights, plan.n_fft, options.onesided);
}

/// 1 / (sum of the squared windows over each sample); 1 where no window reaches.
std::vector<double> normaliser(const StftPlan& plan, std::int64_t frames) {
  const auto samples = static_cast<std::size_t>((frames - 1) * plan.hop + plan.points);
  std::vector<double> norm(samples, 0);
  for (std::int64_t k = 0; k < frames; ++k) {
    double* at = norm.data() + k * plan.hop;
    for (const double weight : plan.weights) *at++ += weight * weight;
  }
  for (double& value : norm) value = value > 1e-10 ? 1 / value : 1;
  return norm;
}

/// Real frames [..., frames, points] of what stft gave.
Value frames_of(Value spectrum, const StftPlan& plan, bool onesided) {
  const std::int64_t bins = onesided ? plan.n_fft / 2 + 1 : plan.n_fft;
  const bool is_spectrum =
      spectrum && spectrum.rank() >= 2 && is_complex(spectrum.dtype()) &&
      spectrum.shape()[static_cast<std::size_t>(spectrum.rank() - 2)] == Dim(bins);
  if (!is_spectrum) {
    throw Exception(bad_input("The spectrum ({}) of istft is not complex [..., {}, frames].",
                              spectrum ? spectrum.type().text() : "none", bins));
  }
  spectrum = swapped(spectrum);
  const Value frames = onesided ? apply(op::Irfft{.length = plan.n_fft}, {spectrum})
                                : apply(op::Real{}, {apply(op::Fft{.inverse = true}, {spectrum})});
  return part_of_axis(frames, -1, 0, plan.points);
}

}  // namespace

Value frame(Value signal, std::int64_t length, std::int64_t hop) {
  return apply(op::Frame{.length = length, .hop = hop}, {signal});
}

Value overlap_add(Value frames, std::int64_t hop) {
  if (!frames || frames.rank() < 2 || !frames.shape().back().is_static() || hop < 1) {
    throw Exception(bad_input("The frames ({}), ({}) apart, are not [..., frames, length].",
                              frames ? frames.type().text() : "none", hop));
  }
  const std::int64_t length = frames.shape().back().value(), axis = frames.rank() - 2;
  const Dim count = frames.shape()[static_cast<std::size_t>(axis)];
  // Each frame is a few blocks of one hop; block k of frame f belongs to block f + k of the sum.
  const std::int64_t blocks = std::max<std::int64_t>((length + hop - 1) / hop, 1);
  frames = widened(frames, 0, blocks * hop - length);
  Value total;
  for (std::int64_t k = 0; k < blocks; ++k) {
    Axes low(static_cast<std::size_t>(frames.rank()), 0), high = low;
    low[static_cast<std::size_t>(axis)] = k;
    high[static_cast<std::size_t>(axis)] = blocks - 1 - k;
    const Value shifted = pad(part_of_axis(frames, -1, k * hop, (k + 1) * hop), low, high);
    total = total ? total + shifted : shifted;
  }
  const Dim samples = (count + Dim(blocks - 1)) * Dim(hop);
  total = reshape(total, leading(frames, 2, {samples}));
  return widened(total, 0, length - blocks * hop);
}

bool nonzero_overlap_add(const Tensor& window, std::int64_t hop, double tolerance) {
  const auto weights = window.as<double>();
  if (hop < 1 || weights.empty()) return false;
  std::vector<double> sums(static_cast<std::size_t>(hop), 0);
  for (std::size_t j = 0; j < weights.size(); ++j) sums[j % sums.size()] += weights[j] * weights[j];
  return *std::min_element(sums.begin(), sums.end()) > tolerance;
}

StftOptions scipy_stft(std::int64_t length, std::int64_t overlap, Window window,
                       double window_parameter) {
  StftOptions options;
  options.n_fft = options.length = length;
  options.hop = length - overlap;
  if (length < 1 || overlap < 0 || overlap >= length)
    throw Exception(bad_input("Segments of ({}) points cannot overlap by ({}).", length, overlap));
  options.window = window;
  options.window_parameter = window_parameter;
  options.extension = Extension::zeros;
  options.window_first = options.whole = true;
  options.scaling = StftScaling::spectrum;
  return options;
}

Value stft(Value signal, const StftOptions& options) {
  return swapped(complex_of(short_time_parts(signal, options)));
}

Value spectrogram(Value signal, const StftOptions& options, double power) {
  const Value squared = power_of(short_time_parts(signal, options));
  Value result = squared;
  if (power == 1) {
    result = sqrt(squared);
  } else if (power != 2) {
    result = pow(squared, constant_like(squared, power / 2));
  }
  return swapped(result);
}

Value istft(Value spectrum, const StftOptions& options, std::optional<std::int64_t> samples) {
  const StftPlan plan = plan_of(options);
  const Tensor weights = Tensor::of<double>({plan.points}, std::span<const double>(plan.weights));
  if (!nonzero_overlap_add(weights, plan.hop)) {
    throw Exception(
        bad_input("The window of ({}) points, ({}) apart, leaves samples uncovered: no inverse "
                  "exists (NOLA).",
                  plan.length, plan.hop));
  }
  const Value frames = frames_of(spectrum, plan, options.onesided);
  const Dim& count = frames.shape()[static_cast<std::size_t>(frames.rank() - 2)];
  if (!count.is_static()) {
    throw Exception(
        bad_input("The number ({}) of frames of istft must be a number.", count.text()));
  }
  const Value weighed =
      frames * constant_like(frames, {plan.points}, scaled(plan.weights, 1 / plan.scale));
  Value signal = overlap_add(weighed, plan.hop);
  const std::vector<double> norm = normaliser(plan, count.value());
  const auto whole = static_cast<std::int64_t>(norm.size());
  signal = signal * constant_like(signal, {whole}, norm);
  const std::int64_t wanted = samples.value_or(whole - 2 * plan.margin);
  if (wanted < 1) throw Exception(bad_input("An istft of ({}) samples is none.", wanted));
  return widened(signal, -plan.margin, wanted + plan.margin - whole);
}

}  // namespace rlx
