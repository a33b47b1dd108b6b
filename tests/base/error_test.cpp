// The error helpers: propagation, formatting, and invariants that throw.
#include "base/error.hpp"

#include <gtest/gtest.h>

namespace rlx {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return bad_input("The value ({}) is odd.", value);
  return value / 2;
}

Result<int> quarter(int value) {
  RLX_ASSIGN(const int first, half(value));
  RLX_ASSIGN(const int second, half(first));
  return second;
}

Status check_even(int value) {
  RLX_TRY(half(value));
  return {};
}

TEST(Error, assign_gives_the_value_or_returns_the_error) {
  EXPECT_EQ(quarter(12).value(), 3);
  auto failed = quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "The value (3) is odd.");
  EXPECT_EQ(failed.error().kind, ErrorKind::bad_input);
}

TEST(Error, try_passes_errors_on) {
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(check_even(7).error().message, "The value (7) is odd.");
}

TEST(Error, kinds) {
  EXPECT_EQ(unsupported("a").kind, ErrorKind::unsupported);
  EXPECT_EQ(not_available("a").kind, ErrorKind::not_available);
  EXPECT_EQ(internal_error("a").kind, ErrorKind::internal);
  EXPECT_EQ(error(ErrorKind::usage, "{}{}", 1, "b").message, "1b");
}

TEST(Error, check_throws_internal_with_the_condition) {
  EXPECT_NO_THROW(RLX_CHECK(1 + 1 == 2, "unused {}", 1));
  try {
    RLX_CHECK(1 + 1 == 3, "sum is {}", 2);
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.error().kind, ErrorKind::internal);
    const std::string message = exception.what();
    EXPECT_NE(message.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(message.find("sum is 2"), std::string::npos);
  }
  EXPECT_THROW(RLX_CHECK(false), Exception);
}

}  // namespace
}  // namespace rlx
