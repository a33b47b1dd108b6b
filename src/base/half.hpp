// Narrow floats (f16, bf16, f8e4m3fn, f8e5m2) as bits with conversions from and to float:
// constexpr, round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace rlx {

namespace half_detail {

/// Rounds a float to a format of `exponent` and `mantissa` bits. `max_finite` is the largest finite
/// magnitude's bits, `overflow` what lies beyond it, `nan` the quiet NaN. Exponents must be
/// narrower than float's.
template <int exponent, int mantissa>
constexpr std::uint32_t narrow(float value, std::uint32_t max_finite, std::uint32_t overflow,
                               std::uint32_t nan) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31) << (exponent + mantissa);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;
  if (magnitude == 0x7f800000u) return sign | overflow;
  if (magnitude < 0x00800000u) return sign;  // float's subnormals are far below half the least step
  constexpr int bias = (1 << (exponent - 1)) - 1;
  const int field = static_cast<int>(magnitude >> 23) - 127 + bias;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const int shift = 23 - mantissa + (field < 1 ? 1 - field : 0);
  if (shift > 24) return sign;
  const std::uint32_t odd = (significand >> shift) & 1u;
  const std::uint32_t rounded = (significand + (1u << (shift - 1)) - 1u + odd) >> shift;
  const std::uint32_t base = field < 1 ? 0u : static_cast<std::uint32_t>(field - 1) << mantissa;
  const std::uint32_t result = base + rounded;
  return sign | (result > max_finite ? overflow : result);
}

/// The float with the value of a narrow number that is neither infinite nor NaN.
template <int exponent, int mantissa>
constexpr float widen(std::uint32_t bits) {
  const std::uint32_t sign = (bits >> (exponent + mantissa)) << 31;
  std::uint32_t field = (bits >> mantissa) & ((1u << exponent) - 1u);
  std::uint32_t fraction = bits & ((1u << mantissa) - 1u);
  constexpr std::uint32_t bias = (1u << (exponent - 1)) - 1u;
  if (field == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    field = 1;
    for (; !(fraction >> mantissa); fraction <<= 1) --field;
    fraction &= (1u << mantissa) - 1u;
  }
  return std::bit_cast<float>(sign | ((field + 127u - bias) << 23) | (fraction << (23 - mantissa)));
}

/// The fnuz formats have a bias one above: their bits are those of twice the value, less -0.
template <int exponent, int mantissa>
constexpr std::uint8_t narrow_fnuz(float value) {
  constexpr std::uint32_t nan = 0x80u;
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 << 7;
  const std::uint32_t magnitude =
      narrow<exponent, mantissa>((sign ? -value : value) * 2, 0x7fu, nan, nan);
  return static_cast<std::uint8_t>(magnitude == 0 || magnitude == nan ? magnitude
                                                                      : sign | magnitude);
}

template <int exponent, int mantissa>
constexpr float widen_fnuz(std::uint32_t bits) {
  if (bits == 0x80u) return std::bit_cast<float>(0x7fc00000u);
  return widen<exponent, mantissa>(bits) / 2;
}

}  // namespace half_detail

/// IEEE binary16.
struct Half {
  std::uint16_t bits = 0;
  constexpr Half() = default;
  constexpr explicit Half(float value)
      : bits(static_cast<std::uint16_t>(
            half_detail::narrow<5, 10>(value, 0x7bffu, 0x7c00u, 0x7e00u))) {}
  static constexpr Half from_bits(std::uint16_t bits) {
    Half result;
    result.bits = bits;
    return result;
  }
};

/// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;
  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (wide >> 16) | 0x40u
                                          : (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
  static constexpr BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 result;
    result.bits = bits;
    return result;
  }
};

/// 1-4-3 bits, no infinity, largest value 448. Whatever rounds beyond it becomes NaN; saturation is
/// the caller's.
struct Float8E4M3FN {
  std::uint8_t bits = 0;
  constexpr Float8E4M3FN() = default;
  constexpr explicit Float8E4M3FN(float value)
      : bits(static_cast<std::uint8_t>(half_detail::narrow<4, 3>(value, 0x7eu, 0x7fu, 0x7fu))) {}
  static constexpr Float8E4M3FN from_bits(std::uint8_t bits) {
    Float8E4M3FN result;
    result.bits = bits;
    return result;
  }
};

/// 1-5-2 bits with infinities, largest finite value 57344.
struct Float8E5M2 {
  std::uint8_t bits = 0;
  constexpr Float8E5M2() = default;
  constexpr explicit Float8E5M2(float value)
      : bits(static_cast<std::uint8_t>(half_detail::narrow<5, 2>(value, 0x7bu, 0x7cu, 0x7eu))) {}
  static constexpr Float8E5M2 from_bits(std::uint8_t bits) {
    Float8E5M2 result;
    result.bits = bits;
    return result;
  }
};

/// 1-4-3 bits with a bias of 8: largest value 240, one NaN (0x80), no infinity, no negative zero.
struct Float8E4M3FNUZ {
  std::uint8_t bits = 0;
  constexpr Float8E4M3FNUZ() = default;
  constexpr explicit Float8E4M3FNUZ(float value) : bits(half_detail::narrow_fnuz<4, 3>(value)) {}
  static constexpr Float8E4M3FNUZ from_bits(std::uint8_t bits) {
    Float8E4M3FNUZ result;
    result.bits = bits;
    return result;
  }
};

/// 1-5-2 bits with a bias of 16: largest value 57344, one NaN (0x80), no infinity, no negative
/// zero.
struct Float8E5M2FNUZ {
  std::uint8_t bits = 0;
  constexpr Float8E5M2FNUZ() = default;
  constexpr explicit Float8E5M2FNUZ(float value) : bits(half_detail::narrow_fnuz<5, 2>(value)) {}
  static constexpr Float8E5M2FNUZ from_bits(std::uint8_t bits) {
    Float8E5M2FNUZ result;
    result.bits = bits;
    return result;
  }
};

/// 1-2-1 bits in the low half of a byte: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Saturates; a NaN becomes -0.
struct Float4E2M1 {
  std::uint8_t bits = 0;
  constexpr Float4E2M1() = default;
  constexpr explicit Float4E2M1(float value)
      : bits(value != value
                 ? std::uint8_t{8}
                 : static_cast<std::uint8_t>(half_detail::narrow<2, 1>(value, 7u, 7u, 0u))) {}
  static constexpr Float4E2M1 from_bits(std::uint8_t bits) {
    Float4E2M1 result;
    result.bits = bits;
    return result;
  }
};

constexpr float to_float(float value) { return value; }
constexpr float to_float(Float8E4M3FNUZ value) { return half_detail::widen_fnuz<4, 3>(value.bits); }
constexpr float to_float(Float8E5M2FNUZ value) { return half_detail::widen_fnuz<5, 2>(value.bits); }
constexpr float to_float(Float4E2M1 value) { return half_detail::widen<2, 1>(value.bits & 15u); }
constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
constexpr float to_float(Half value) {
  // Without branches: the exponent moves by a product, which is exact for subnormals, too.
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const float moved = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t beyond = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits >> 15) << 31;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(moved) | beyond | sign);
}
constexpr float to_float(Float8E4M3FN value) {
  const std::uint32_t bits = value.bits;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(((bits >> 7) << 31) | 0x7fc00000u);
  return half_detail::widen<4, 3>(bits);
}
constexpr float to_float(Float8E5M2 value) {
  const std::uint32_t bits = value.bits;
  if ((bits & 0x7cu) == 0x7cu) {
    return std::bit_cast<float>(((bits >> 7) << 31) | 0x7f800000u | ((bits & 3u) << 21));
  }
  return half_detail::widen<5, 2>(bits);
}

}  // namespace rlx
