// Windows, Welch's estimate and log-mel features, composed of ops.
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/apply.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

/// Sums of cosines, with alternating signs, by SciPy's coefficients.
double cosine_sum(std::initializer_list<double> coefficients, double turn) {
  double sum = 0, sign = 1;
  int k = 0;
  for (const double coefficient : coefficients) {
    sum += sign * coefficient * std::cos(2 * std::numbers::pi * k++ * turn);
    sign = -sign;
  }
  return sum;
}

/// The modified Bessel function of the first kind and order 0, by its power series.
double bessel_0(double x) {
  double term = 1, sum = 1;
  for (int k = 1; term > sum * 1e-18; ++k) {
    term *= x / (2 * k) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

double window_value(Window kind, double j, double last, double parameter) {
  const double turn = j / last, from_middle = j - last / 2;
  switch (kind) {
    case Window::boxcar: return 1;
    case Window::hann: return cosine_sum({0.5, 0.5}, turn);
    case Window::hamming: return cosine_sum({0.54, 0.46}, turn);
    case Window::blackman: return cosine_sum({0.42, 0.5, 0.08}, turn);
    case Window::flat_top:
      return cosine_sum({0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368}, turn);
    case Window::kaiser: {
      const double side = 2 * turn - 1;
      return bessel_0(parameter * std::sqrt(std::max(0.0, 1 - side * side))) / bessel_0(parameter);
    }
    case Window::gaussian:
      return std::exp(-from_middle * from_middle / (2 * parameter * parameter));
  }
  return 0;
}

Value of_dtype(Value like, const Tensor& values) {
  const Value constant = like.graph().constant(values);
  return like.dtype() == f64 ? constant : cast(constant, like.dtype());
}

}  // namespace

Tensor window(Window kind, std::int64_t length, bool periodic, double parameter) {
  if (length < 1) throw Exception(bad_input("A window of ({}) points is none.", length));
  if (kind == Window::gaussian && parameter <= 0)
    throw Exception(bad_input("The deviation ({}) of a Gaussian must be positive.", parameter));
  std::vector<double> values;
  const auto last = static_cast<double>(periodic ? length : length - 1);
  for (std::int64_t j = 0; j < length; ++j)
    values.push_back(length == 1 ? 1 : window_value(kind, static_cast<double>(j), last, parameter));
  return Tensor::of<double>({length}, std::span<const double>(values));
}

Value log_mel_features(Value signal, Value filters, std::int64_t n_fft, std::int64_t hop,
                       op::LogMelFloor floor) {
  // One hop less at the end: the frame that is dropped is not made.
  Axes before(static_cast<std::size_t>(signal.rank()), 0), behind = before;
  before.back() = n_fft / 2;
  behind.back() = n_fft / 2 - hop;
  const Value padded =
      apply(op::Pad{.low = before, .high = behind, .mode = PadMode::reflect}, {signal});
  Value level = apply(op::BandLevels{.length = n_fft, .hop = hop},
                      {padded, of_dtype(signal, window(Window::hann, n_fft)), filters});
  const std::int64_t frames = level.rank() - 2;
  const auto number = [&](double value) { return level.graph().constant(level.dtype(), value); };
  if (floor != op::LogMelFloor::none) {
    Axes axes{frames + 1};
    if (floor == op::LogMelFloor::clip) axes = {frames, frames + 1};
    level = max(level, max_over(level, axes, true) - number(8));
  }
  return (level + number(4)) * number(0.25);
}

Value welch(Value signal, const WelchOptions& options) {
  const std::int64_t n = options.length, hop = n - options.overlap;
  if (n < 1 || options.overlap < 0 || hop < 1)
    throw Exception(
        bad_input("Segments of ({}) points cannot overlap by ({}).", n, options.overlap));
  const Tensor weights = window(options.window, n, true, options.window_parameter);
  double sum = 0, energy = 0;
  for (const double weight : weights.as<double>()) {
    sum += weight;
    energy += weight * weight;
  }
  const double unit = options.scaling == SpectrumScaling::density
                          ? 1 / (options.sample_rate * energy)
                          : 1 / (sum * sum);
  // One-sided: bins other than DC and Nyquist stand for their mirror images too.
  std::vector<double> factors(static_cast<std::size_t>(n / 2 + 1), 2 * unit);
  factors.front() = unit;
  if (n % 2 == 0) factors.back() = unit;
  const Value power =
      apply(op::MeanPower{.length = n, .hop = hop, .take_mean_off = options.detrend},
            {signal, of_dtype(signal, weights)});
  return power *
         of_dtype(signal, Tensor::of<double>({n / 2 + 1}, std::span<const double>(factors)));
}

}  // namespace rlx
