// Cosine transforms and the analytic signal, by real Fourier transforms.
#include <cmath>
#include <numbers>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

constexpr double pi = std::numbers::pi;

/// cos and sin of `angle(k)` for k in [0, count), as constants.
struct Turns {
  Value cos, sin;
};
template <class Angle>
Turns turns(Value like, std::int64_t count, Angle angle) {
  std::vector<double> c, s;
  for (std::int64_t k = 0; k < count; ++k) {
    const double a = angle(static_cast<double>(k));
    c.push_back(std::cos(a));
    s.push_back(std::sin(a));
  }
  return {constant_like(like, {count}, c), constant_like(like, {count}, s)};
}

/// a0 b0 a1 b1 ...; a may be one longer.
Value interleaved(Value a, Value b) {
  const std::int64_t na = a.shape().back().value(), nb = b.shape().back().value();
  const std::int64_t axis = a.rank();
  b = widened(b, 0, na - nb);
  const Value pairs = concat({unsqueeze(a, {axis}), unsqueeze(b, {axis})}, axis);
  return part_of_axis(reshape(pairs, leading(a, 1, {Dim(2 * na)})), -1, 0, na + nb);
}

/// x0 x2 x4 ... or x1 x3 ...
Value every_other(Value x, std::int64_t first) {
  const auto rank = static_cast<std::size_t>(x.rank());
  Axes starts(rank, 0), limits, steps(rank, 1);
  for (const Dim& dim : x.shape()) limits.push_back(dim.is_static() ? dim.value() : op::slice_end);
  starts.back() = first;
  steps.back() = 2;
  return slice(x, starts, limits, steps);
}

/// y[k] = x[0] + (-1)^k x[N-1] + 2 sum x[n] cos(pi k n / (N-1)): a transform of the even extension.
Value dct_1(Value x, std::int64_t n) {
  const Value even = concat({x, reversed(part_of_axis(x, -1, 1, n - 1))}, x.rank() - 1);
  return apply(op::Real{}, {apply(op::Rfft{}, {even})});
}

/// y[k] = 2 sum x[n] cos(pi k (2n+1) / 2N). With v = x0 x2 ... x3 x1 and V = rfft(v), turned by
/// -pi k / 2N: y[k] is twice the real part of V[k], y[N-k] twice the imaginary one, negated.
Value dct_2(Value x, std::int64_t n) {
  if (n == 1) return x * constant_like(x, 2);
  const std::int64_t axis = x.rank() - 1;
  const Value v = concat({every_other(x, 0), reversed(every_other(x, 1))}, axis);
  const Parts parts = spectrum_parts(v, n, true);
  const auto [c, s] =
      turns(x, n / 2 + 1, [&](double k) { return pi * k / (2 * static_cast<double>(n)); });
  const Value two = constant_like(x, 2);
  const Value low = two * (parts.re * c + parts.im * s);
  const Value high = two * (parts.re * s - parts.im * c);
  if (n == 2) return low;
  return concat({low, reversed(part_of_axis(high, -1, 1, (n + 1) / 2))}, axis);
}

/// y[n] = x[0] + 2 sum x[k] cos(pi k (2n+1) / 2N): dct_2 backwards.
Value dct_3(Value x, std::int64_t n) {
  if (n == 1) return x;
  const std::int64_t bins = n / 2 + 1;
  const Value a = part_of_axis(x, -1, 0, bins);
  // x[N - k], where x[N] is 0.
  const Value b = widened(reversed(part_of_axis(x, -1, n - bins + 1, n)), 1, 0);
  const auto [c, s] =
      turns(x, bins, [&](double k) { return pi * k / (2 * static_cast<double>(n)); });
  const Value bins_of_v = complex_of({a * c + b * s, a * s - b * c});
  const Value v = apply(op::Irfft{.length = n, .norm = FftNorm::none}, {bins_of_v});
  const std::int64_t evens = (n + 1) / 2;
  return interleaved(part_of_axis(v, -1, 0, evens), reversed(part_of_axis(v, -1, evens, n)));
}

/// y[k] = 2 sum x[n] cos(pi (2k+1)(2n+1) / 4N), N even: one complex transform of N/2 points.
Value dct_4_even(Value x, std::int64_t n) {
  const auto points = static_cast<double>(n);
  const Value re = every_other(x, 0), im = reversed(every_other(x, 1));
  const auto [c, s] = turns(x, n / 2, [&](double k) { return pi * k / points; });
  const Value spectrum = apply(op::Fft{}, {complex_of({re * c + im * s, im * c - re * s})});
  const Value a = apply(op::Real{}, {spectrum}), b = apply(op::Imag{}, {spectrum});
  const auto [c2, s2] = turns(x, n / 2, [&](double k) { return pi * (4 * k + 1) / (4 * points); });
  const Value two = constant_like(x, 2);
  return interleaved(two * (a * c2 + b * s2), reversed(two * (a * s2 - b * c2)));
}

/// N odd: x turned by half a step, transformed with N zeros behind it.
Value dct_4_odd(Value x, std::int64_t n) {
  const auto points = static_cast<double>(n);
  const auto [c, s] = turns(x, n, [&](double k) { return pi * k / (2 * points); });
  const Value zeros_behind = widened(complex_of({x * c, -(x * s)}), 0, n);
  const Value spectrum = part_of_axis(apply(op::Fft{}, {zeros_behind}), -1, 0, n);
  const auto [c2, s2] = turns(x, n, [&](double k) { return pi * (2 * k + 1) / (4 * points); });
  return constant_like(x, 2) *
         (apply(op::Real{}, {spectrum}) * c2 + apply(op::Imag{}, {spectrum}) * s2);
}

Value unscaled(Value x, int type, std::int64_t n) {
  switch (type) {
    case 1: return dct_1(x, n);
    case 2: return dct_2(x, n);
    case 3: return dct_3(x, n);
    default: return n % 2 == 0 ? dct_4_even(x, n) : dct_4_odd(x, n);
  }
}

/// What orthonormal transforms multiply single elements with, before and after the unscaled one.
Value with_ends(Value x, std::int64_t n, double first, double last, double others) {
  std::vector<double> factors(static_cast<std::size_t>(n), others);
  factors.back() *= last;
  factors.front() = others * first;
  return x * constant_like(x, {n}, factors);
}

Value cosine_transform(Value x, int type, FftNorm norm, bool inverse) {
  require_signal(x, "dct");
  const std::int64_t n = static_samples(x, "dct");
  if (type < 1 || type > 4)
    throw Exception(bad_input("There is no cosine transform of type ({}).", type));
  if (n < (type == 1 ? 2 : 1))
    throw Exception(bad_input("A cosine transform of ({}) points is none.", n));
  const double period = type == 1 ? 2 * static_cast<double>(n - 1) : 2 * static_cast<double>(n);
  if (inverse && type == 2) {
    type = 3;
  } else if (inverse && type == 3) {
    type = 2;
  }
  if (norm == FftNorm::ortho) {
    const double root = 1 / std::sqrt(period), two = std::numbers::sqrt2;
    if (type == 1) {
      const Value y = dct_1(with_ends(x, n, two, two, 1), n);
      return with_ends(y, n, 1 / two, 1 / two, root);
    }
    if (type == 2) return with_ends(dct_2(x, n), n, 1 / two, 1, root);
    if (type == 3) return dct_3(with_ends(x, n, two, 1, root), n);
    return unscaled(x, 4, n) * constant_like(x, root);
  }
  const bool scales = inverse ? norm == FftNorm::backward : norm == FftNorm::forward;
  const Value y = unscaled(x, type, n);
  return scales ? y * constant_like(x, 1 / period) : y;
}

}  // namespace

Value dct(Value x, int type, FftNorm norm) { return cosine_transform(x, type, norm, false); }
Value idct(Value x, int type, FftNorm norm) { return cosine_transform(x, type, norm, true); }

Value hilbert(Value signal) {
  require_signal(signal, "hilbert");
  const std::int64_t n = static_samples(signal, "hilbert");
  if (n < 1) throw Exception(bad_input("The signal {} has no samples.", signal.type().text()));
  // The imaginary part has the signal's bins turned by -90 degrees, without DC and Nyquist.
  const Parts parts = spectrum_parts(signal, n, true);
  std::vector<double> turned(static_cast<std::size_t>(n / 2 + 1), 1);
  turned.front() = 0;
  if (n % 2 == 0) turned.back() = 0;
  const Value mask = constant_like(signal, {n / 2 + 1}, turned);
  const Value bins = complex_of({parts.im * mask, -(parts.re * mask)});
  return complex_of({signal, apply(op::Irfft{.length = n}, {bins})});
}

}  // namespace rlx
