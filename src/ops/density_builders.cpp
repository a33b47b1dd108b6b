// Spectral densities as scipy.signal means them: Welch's estimate, cross densities, coherence,
// spectrograms, periodograms.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

/// The options checked, with the window and what each bin is multiplied with.
struct DensityPlan {
  std::int64_t length, hop, n_fft, bins;
  Tensor weights;
  std::vector<double> factors;  ///< [bins]
  double unit;                  ///< the factor of a bin that stands for itself alone
};

DensityPlan plan_of(const WelchOptions& options, std::int64_t length, std::int64_t overlap) {
  const std::int64_t n_fft = options.n_fft == 0 ? length : options.n_fft;
  if (length < 1 || overlap < 0 || overlap >= length)
    throw Exception(bad_input("Segments of ({}) points cannot overlap by ({}).", length, overlap));
  if (n_fft < length)
    throw Exception(bad_input("A transform of ({}) points cuts segments of ({}).", n_fft, length));
  if (!(options.sample_rate > 0))
    throw Exception(bad_input("The sample rate ({}) is not positive.", options.sample_rate));
  DensityPlan plan{length,
                   length - overlap,
                   n_fft,
                   options.onesided ? n_fft / 2 + 1 : n_fft,
                   window(options.window, length, true, options.window_parameter),
                   {},
                   0};
  double sum = 0, energy = 0;
  for (const double weight : plan.weights.as<double>()) {
    sum += weight;
    energy += weight * weight;
  }
  const double unit = options.scaling == SpectrumScaling::density
                          ? 1 / (options.sample_rate * energy)
                          : 1 / (sum * sum);
  plan.unit = unit;
  // One-sided: bins other than DC and Nyquist stand for their mirror images too.
  plan.factors.assign(static_cast<std::size_t>(plan.bins), options.onesided ? 2 * unit : unit);
  plan.factors.front() = unit;
  if (n_fft % 2 == 0 && options.onesided) plan.factors.back() = unit;
  return plan;
}

DensityPlan plan_of(const WelchOptions& options) {
  return plan_of(options, options.length, options.overlap);
}

Parts segment_parts(Value lines, const WelchOptions& options, const DensityPlan& plan) {
  lines = detrended(lines, options.detrend, plan.length);
  return spectrum_parts(lines * constant_like(lines, plan.weights), plan.n_fft, options.onesided);
}

Value times_factors(Value power, const DensityPlan& plan) {
  return power * constant_like(power, {plan.bins}, plan.factors);
}

/// scipy.signal's _median_bias: the median of n chi-squared values over their mean.
double median_bias(std::int64_t count) {
  double bias = 1;
  for (std::int64_t k = 2; k <= count - 1; k += 2)
    bias += 1 / static_cast<double>(k + 1) - 1 / static_cast<double>(k);
  return bias;
}

/// [..., segments, bins] -> [..., bins].
Value averaged(Value x, Average average) {
  const std::int64_t axis = x.rank() - 2;
  if (average == Average::mean) return mean(x, {axis});
  const Dim& count = x.shape()[static_cast<std::size_t>(axis)];
  if (!count.is_static()) {
    throw Exception(
        bad_input("The number ({}) of segments of a median must be a number.", count.text()));
  }
  const std::int64_t n = count.value();
  const Value sorted = apply(op::Sort{.axis = axis}, {x});
  const Value middle = mean(part_of_axis(sorted, axis, (n - 1) / 2, n / 2 + 1), {axis});
  return middle * constant_like(x, 1 / median_bias(n));
}

Parts cross_of(const Parts& x, const Parts& y) {
  return {x.re * y.re + x.im * y.im, x.re * y.im - x.im * y.re};
}

/// The two parts of the cross density, in f64: products of signals that have little in common
/// cancel, so that the rounding of f32 would be a large part of what is left.
Parts cross_density(Value x, Value y, const WelchOptions& options) {
  const DensityPlan plan = plan_of(options);
  x = cast(x, f64);
  y = cast(y, f64);
  const Parts products = cross_of(segment_parts(frame(x, plan.length, plan.hop), options, plan),
                                  segment_parts(frame(y, plan.length, plan.hop), options, plan));
  return {times_factors(averaged(products.re, options.average), plan),
          times_factors(averaged(products.im, options.average), plan)};
}

/// Angles between -pi and pi along the last axis: a step of more than half a turn goes the other
/// way round, and so do all angles behind it (numpy.unwrap).
Value unwrapped(Value angles, std::int64_t count) {
  if (count < 2) return angles;
  const Value half = constant_like(angles, std::numbers::pi);
  const Value steps = part_of_axis(angles, -1, 1, count) - part_of_axis(angles, -1, 0, count - 1);
  const Value turns =
      cast(less(steps, -half), angles.dtype()) - cast(greater(steps, half), angles.dtype());
  const Value sums = apply(op::Cumulative{.axis = turns.rank() - 1}, {widened(turns, 1, 0)});
  return angles + sums * constant_like(angles, 2 * std::numbers::pi);
}

}  // namespace

Value welch(Value signal, const WelchOptions& options) {
  require_signal(signal, "welch");
  const DensityPlan plan = plan_of(options);
  const bool is_plain = options.onesided && options.average == Average::mean &&
                        options.detrend != Detrend::linear && plan.n_fft == plan.length;
  if (is_plain) {
    // One op, which need not store the segments.
    const op::MeanPower mean_power{.length = plan.length,
                                   .hop = plan.hop,
                                   .take_mean_off = options.detrend == Detrend::constant};
    return times_factors(apply(mean_power, {signal, constant_like(signal, plan.weights)}), plan);
  }
  const Value frames = frame(signal, plan.length, plan.hop);
  const Value power = power_of(segment_parts(frames, options, plan));
  return times_factors(averaged(power, options.average), plan);
}

Value csd(Value x, Value y, const WelchOptions& options) {
  require_signal(x, "csd");
  require_signal(y, "csd");
  const Parts parts = cross_density(x, y, options);
  return complex_of({cast(parts.re, x.dtype()), cast(parts.im, x.dtype())});
}

Value coherence(Value x, Value y, const WelchOptions& options) {
  require_signal(x, "coherence");
  require_signal(y, "coherence");
  const Value cross = power_of(cross_density(x, y, options));
  const Value whole = welch(cast(x, f64), options) * welch(cast(y, f64), options);
  return cast(cross / whole, x.dtype());
}

Value spectrogram(Value signal, const WelchOptions& options, SpectrogramMode mode) {
  require_signal(signal, "spectrogram");
  const DensityPlan plan = plan_of(options);
  const Parts parts = segment_parts(frame(signal, plan.length, plan.hop), options, plan);
  const Value scale = constant_like(signal, std::sqrt(plan.unit));
  switch (mode) {
    case SpectrogramMode::psd: return swapped(times_factors(power_of(parts), plan));
    case SpectrogramMode::complex: return swapped(complex_of({parts.re * scale, parts.im * scale}));
    case SpectrogramMode::magnitude: return swapped(sqrt(power_of(parts)) * scale);
    case SpectrogramMode::angle: return swapped(apply(op::Atan2{}, {parts.im, parts.re}));
    case SpectrogramMode::phase:
      return swapped(unwrapped(apply(op::Atan2{}, {parts.im, parts.re}), plan.bins));
  }
  throw Exception(bad_input("The mode ({}) of a spectrogram is none.", static_cast<int>(mode)));
}

Value psd(Value signal, const WelchOptions& options) {
  require_signal(signal, "psd");
  const DensityPlan plan = plan_of(options, static_samples(signal, "psd"), 0);
  return times_factors(power_of(segment_parts(signal, options, plan)), plan);
}

Value periodogram(Value signal, double sample_rate, Detrend detrend, SpectrumScaling scaling) {
  WelchOptions options;
  options.sample_rate = sample_rate;
  options.window = Window::boxcar;
  options.detrend = detrend;
  options.scaling = scaling;
  return psd(signal, options);
}

}  // namespace rlx
