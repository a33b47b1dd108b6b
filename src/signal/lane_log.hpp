// Logarithms on lanes. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_vector.hpp"

/// log10 of positive normal numbers: the exponent taken off, the rest by the series of the area
/// tangent, which converges for mantissas between sqrt(1/2) and sqrt(2).
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
  const V s = (mantissa - T(1)) / (mantissa + T(1)), square = s * s;
  constexpr int terms = wide ? 11 : 5;
  V series = V{} + T(1) / T(2 * terms + 1);
  for (int i = terms - 1; i >= 0; --i) series = series * square + T(1) / T(2 * i + 1);
  const V natural = T(2) * s * series;
  return __builtin_convertvector(exponent, V) * T(0.30102999566398119521) +
         natural * T(0.43429448190325182765);
}
