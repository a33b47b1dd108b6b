// A plain fast Fourier transform of any length in double.
#include "ops/fft.hpp"

#include <cmath>
#include <numbers>

namespace rlx {
namespace {

// Larger prime factors cost their square; Bluestein's form is faster beyond this.
constexpr std::int64_t largest_radix = 31;

std::int64_t smallest_factor(std::int64_t n) {
  for (std::int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

bool has_large_factor(std::int64_t n) {
  while (n > 1) {
    const std::int64_t p = smallest_factor(n);
    if (p > largest_radix) return true;
    n /= p;
  }
  return false;
}

// Sine and cosine of 2 pi k / n for 0 <= 8 k <= n.
std::complex<double> first_octant(std::int64_t k, std::int64_t n) {
  const double angle = 2 * std::numbers::pi * (static_cast<double>(k) / static_cast<double>(n));
  return {std::cos(angle), std::sin(angle)};
}

// cos + i sin of 2 pi k / n for 0 <= k < n, folded by the symmetries of the circle.
std::complex<double> on_circle(std::int64_t k, std::int64_t n) {
  if (2 * k > n) return std::conj(on_circle(n - k, n));
  if (4 * k > n) {
    // Half a turn minus the angle: k' = n/2 - k, kept whole by doubling n.
    const std::complex<double> w = on_circle(n - 2 * k, 2 * n);
    return {-w.real(), w.imag()};
  }
  if (8 * k > n) {
    // A quarter turn minus the angle: k' = n/4 - k.
    const std::complex<double> w = first_octant(n - 4 * k, 4 * n);
    return {w.imag(), w.real()};
  }
  return first_octant(k, n);
}

}  // namespace

std::complex<double> root_of_unity(std::int64_t k, std::int64_t n) {
  return std::conj(on_circle(((k % n) + n) % n, n));
}

FourierTransform::FourierTransform(std::int64_t n) : n_(n) {
  if (!has_large_factor(n)) {
    for (std::int64_t k = 0; k < n; ++k) roots_.push_back(root_of_unity(k, n));
    return;
  }
  std::int64_t size = 1;
  while (size < 2 * n - 1) size *= 2;
  inner_.emplace_back(size);
  // k^2 modulo 2 n, step by step: (k + 1)^2 = k^2 + 2 k + 1.
  std::int64_t square = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    chirp_.push_back(root_of_unity(square, 2 * n));
    square = (square + 2 * k + 1) % (2 * n);
  }
  std::vector<Complex> periodic(size, 0);
  for (std::int64_t k = 0; k < n; ++k)
    periodic[k] = periodic[(size - k) % size] = std::conj(chirp_[k]);
  chirp_transform_ = inner_[0].run(std::move(periodic), false);
}

std::vector<std::complex<double>> FourierTransform::run(std::vector<Complex> x,
                                                        bool inverse) const {
  // The inverse is the conjugate of the forward transform of the conjugate.
  if (inverse) {
    for (Complex& value : x) value = std::conj(value);
  }
  std::vector<Complex> result;
  if (chirp_.empty()) {
    result.resize(n_);
    split(x.data(), 1, result.data(), n_);
  } else {
    result = by_convolution(x);
  }
  if (inverse) {
    for (Complex& value : result) value = std::conj(value);
  }
  return result;
}

// Decimation in time: p transforms of n / p points, joined by butterflies of p points.
void FourierTransform::split(const Complex* in, std::int64_t stride, Complex* out,
                             std::int64_t n) const {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  const std::int64_t p = smallest_factor(n), m = n / p, step = n_ / n;
  for (std::int64_t r = 0; r < p; ++r) split(in + r * stride, stride * p, out + r * m, m);
  std::vector<Complex> parts(p);
  for (std::int64_t k = 0; k < m; ++k) {
    for (std::int64_t r = 0; r < p; ++r) parts[r] = out[r * m + k] * roots_[r * k * step];
    for (std::int64_t q = 0; q < p; ++q) {
      Complex sum = 0;
      for (std::int64_t r = 0; r < p; ++r) sum += parts[r] * roots_[r * q % p * (n_ / p)];
      out[q * m + k] = sum;
    }
  }
}

// Bluestein: j k = (j^2 + k^2 - (k - j)^2) / 2 turns the transform into a convolution with a chirp.
std::vector<std::complex<double>> FourierTransform::by_convolution(
    const std::vector<Complex>& x) const {
  const FourierTransform& inner = inner_[0];
  std::vector<Complex> padded(inner.length(), 0);
  for (std::int64_t k = 0; k < n_; ++k) padded[k] = x[k] * chirp_[k];
  std::vector<Complex> spectrum = inner.run(std::move(padded), false);
  for (std::int64_t k = 0; k < inner.length(); ++k) spectrum[k] *= chirp_transform_[k];
  const std::vector<Complex> convolved = inner.run(std::move(spectrum), true);
  std::vector<Complex> result(n_);
  for (std::int64_t k = 0; k < n_; ++k)
    result[k] = convolved[k] * chirp_[k] / static_cast<double>(inner.length());
  return result;
}

double fft_scale(FftNorm norm, bool inverse, std::int64_t n) {
  const auto points = static_cast<double>(n);
  if (norm == FftNorm::ortho) return 1 / std::sqrt(points);
  if (norm == FftNorm::backward && inverse) return 1 / points;
  if (norm == FftNorm::forward && !inverse) return 1 / points;
  return 1;
}

}  // namespace rlx
