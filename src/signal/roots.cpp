// Roots of unity and small number theory behind plans of Fourier transforms.
#include "signal/roots.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rlx::signal {

std::complex<long double> extended_root_of_unity(std::int64_t k, std::int64_t n) {
  k %= n;
  if (k < 0) k += n;
  // An angle of k / n turns is `eighth` eighths of a turn and rest / (8 n) turns.
  const std::int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n;
  const bool from_next = eighth % 2 == 1;
  const auto turns =
      static_cast<long double>(from_next ? n - rest : rest) / (8 * static_cast<long double>(n));
  const long double angle = 2 * std::numbers::pi_v<long double> * turns;
  const long double cosine = std::cos(angle), sine = std::sin(angle);
  // The point at that angle before or after the axis at an even number of eighths.
  const std::complex<long double> near =
      from_next ? std::complex(cosine, sine) : std::complex(cosine, -sine);
  switch ((eighth + 1) / 2 % 4) {
    case 0: return near;
    case 1: return {near.imag(), -near.real()};
    case 2: return -near;
    default: return {-near.imag(), near.real()};
  }
}

std::complex<double> root_of_unity(std::int64_t k, std::int64_t n) {
  return std::complex<double>(extended_root_of_unity(k, n));
}

std::vector<std::int64_t> prime_factors(std::int64_t n) {
  std::vector<std::int64_t> factors;
  for (std::int64_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) factors.push_back(p);
  }
  if (n > 1) factors.push_back(n);
  return factors;
}

std::int64_t power_modulo(std::int64_t base, std::int64_t exponent, std::int64_t modulus) {
  __extension__ using Wide = __int128;
  std::int64_t result = 1 % modulus;
  for (base %= modulus; exponent > 0; exponent /= 2) {
    if (exponent % 2) result = static_cast<std::int64_t>(Wide{result} * base % modulus);
    base = static_cast<std::int64_t>(Wide{base} * base % modulus);
  }
  return result;
}

std::int64_t primitive_root(std::int64_t p) {
  const std::vector<std::int64_t> factors = prime_factors(p - 1);
  for (std::int64_t g = 1;; ++g) {
    if (std::none_of(factors.begin(), factors.end(), [&](std::int64_t factor) {
          return power_modulo(g, (p - 1) / factor, p) == 1;
        }))
      return g;
  }
}

}  // namespace rlx::signal
