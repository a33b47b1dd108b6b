// Narrow floats: every bit pattern survives the way through float, and rounding is to nearest even.
#include "base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rlx {
namespace {

template <class T, class Bits>
void check_round_trip(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const T value = T::from_bits(static_cast<Bits>(i));
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(T(wide)))) << i;
    } else {
      EXPECT_EQ(T(wide).bits, value.bits) << i;
    }
  }
}

/// Midpoints of neighbours go to the even one; anything beside them to the nearer.
template <class T, class Bits>
void check_rounding(unsigned largest_finite) {
  for (unsigned i = 0; i < largest_finite; ++i) {
    const float low = to_float(T::from_bits(static_cast<Bits>(i)));
    const float high = to_float(T::from_bits(static_cast<Bits>(i + 1)));
    const float middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    EXPECT_EQ(T(middle).bits, i % 2 ? i + 1 : i) << i;
    EXPECT_EQ(T(std::nextafterf(middle, low)).bits, i) << i;
    EXPECT_EQ(T(std::nextafterf(middle, high)).bits, i + 1) << i;
  }
}

TEST(Half, EveryPatternRoundTrips) { check_round_trip<Half, std::uint16_t>(65536); }
TEST(BFloat16, EveryPatternRoundTrips) { check_round_trip<BFloat16, std::uint16_t>(65536); }
TEST(Float8E4M3FN, EveryPatternRoundTrips) { check_round_trip<Float8E4M3FN, std::uint8_t>(256); }
TEST(Float8E5M2, EveryPatternRoundTrips) { check_round_trip<Float8E5M2, std::uint8_t>(256); }

TEST(Half, RoundsToNearestEven) { check_rounding<Half, std::uint16_t>(0x7bff); }
TEST(BFloat16, RoundsToNearestEven) { check_rounding<BFloat16, std::uint16_t>(0x7f7f); }
TEST(Float8E4M3FN, RoundsToNearestEven) { check_rounding<Float8E4M3FN, std::uint8_t>(0x7e); }
TEST(Float8E5M2, RoundsToNearestEven) { check_rounding<Float8E5M2, std::uint8_t>(0x7b); }

TEST(Half, KnownValues) {
  static_assert(Half(1.0f).bits == 0x3c00);
  static_assert(to_float(Half::from_bits(0xc000)) == -2.0f);
  EXPECT_EQ(Half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float(Half::from_bits(1)), std::ldexp(1.0f, -24));
  EXPECT_EQ(Half(std::ldexp(1.0f, -25)).bits, 0);
  EXPECT_EQ(Half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

TEST(Float8, OverflowAndSigns) {
  EXPECT_EQ(to_float(Float8E4M3FN(448.0f)), 448.0f);
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3FN(480.0f))));
  EXPECT_EQ(to_float(Float8E5M2(-57344.0f)), -57344.0f);
  EXPECT_TRUE(std::isinf(to_float(Float8E5M2(65536.0f))));
  EXPECT_TRUE(std::signbit(to_float(BFloat16(-0.0f))));
}

}  // namespace
}  // namespace rlx
