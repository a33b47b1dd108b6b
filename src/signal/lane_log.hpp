// Logarithms on lanes. Included as lane_vector.hpp is.
#pragma once

#include "base/lane_vector.hpp"

/// log10(1 + x) of x between sqrt(1/2) - 1 and sqrt(2) - 1 in f32: x / ln(10) + x^2 q(x), where q
/// has the least largest relative error (4.1e-9).
template <class V>
inline V log10_near_one(V x) {
  constexpr float factors[] = {-0.21714718639850616f, 0.14476479589939117f,  -0.10858049988746643f,
                               0.08686751872301102f,  -0.07213221490383148f, 0.0615900494158268f,
                               -0.05751354992389679f, 0.0560479462146759f,   -0.03310656547546387f};
  V series = V{} + factors[8];
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) series = series * x + factors[i];
  return x * (x * series + 0.43429448190325182765f);
}

/// log10 of positive normal numbers: the exponent taken off, the rest by a polynomial in f32; in
/// f64 by the series of the area tangent, which converges for mantissas between sqrt(1/2) and
/// sqrt(2).
template <class T, int lanes>
inline Vector<T, lanes> log10_of(Vector<T, lanes> x) {
  using V = Vector<T, lanes>;
  constexpr bool wide = sizeof(T) == 8;
  using Bits = std::conditional_t<wide, std::int64_t, std::int32_t>;
  using B = Vector<Bits, lanes>;
  constexpr int mantissa_bits = wide ? 52 : 23;
  constexpr Bits one = static_cast<Bits>(wide ? 1023 : 127) << mantissa_bits;
  constexpr Bits root_half = wide ? static_cast<Bits>(0x3fe6a09e667f3bcd) : Bits{0x3f3504f3};
  B bits;
  __builtin_memcpy(&bits, &x, sizeof(V));
  const B exponent = (bits - root_half) >> mantissa_bits;
  bits = bits - (exponent << mantissa_bits);
  static_assert(one > root_half);
  V mantissa;
  __builtin_memcpy(&mantissa, &bits, sizeof(V));
  const V exponents = __builtin_convertvector(exponent, V) * T(0.30102999566398119521);
  if constexpr (!wide) return exponents + log10_near_one<V>(mantissa - T(1));
  const V s = (mantissa - T(1)) / (mantissa + T(1)), square = s * s;
  constexpr int terms = 11;
  V series = V{} + T(1) / T(2 * terms + 1);
  for (int i = terms - 1; i >= 0; --i) series = series * square + T(1) / T(2 * i + 1);
  const V natural = T(2) * s * series;
  return exponents + natural * T(0.43429448190325182765);
}
