// What part of a kernel's work the member of a team with the most of it does.
#include "cost/items.hpp"

#include <gtest/gtest.h>

namespace rlx::cost {
namespace {

TEST(Items, alike_fall_by_number) {
  EXPECT_DOUBLE_EQ(Items().largest_share(2), 1);
  EXPECT_DOUBLE_EQ(Items(4).largest_share(1), 1);
  EXPECT_DOUBLE_EQ(Items(4).largest_share(2), 0.5);
  EXPECT_DOUBLE_EQ(Items(5).largest_share(2), 0.6);
  EXPECT_DOUBLE_EQ(Items(3).largest_share(16), 1.0 / 3);
  EXPECT_DOUBLE_EQ(Items(0).largest_share(2), 1);
}

TEST(Items, groups_of_different_sizes_weigh_what_they_hold) {
  // Three units in two groups: one and two of them.
  const Items uneven = Items::evenly(1, 2, 1, 3);
  EXPECT_EQ(uneven.count(), 2);
  EXPECT_DOUBLE_EQ(uneven.largest_share(2), 2.0 / 3);
  // Two panels of three groups of five units (1, 2, 2): a panel each.
  EXPECT_DOUBLE_EQ(Items::evenly(2, 3, 1, 5).largest_share(2), 0.5);
  // The same groups outside of two panels: (1, 1, 2) and (2, 2, 2).
  EXPECT_DOUBLE_EQ(Items::evenly(1, 3, 2, 5).largest_share(2), 0.6);
}

TEST(Items, workers_have_what_those_before_leave) {
  const Items uneven = Items::by_size(1, 4, 10);  // 4, 4, 2
  EXPECT_DOUBLE_EQ(uneven.share_before(0, 2), 0);
  EXPECT_DOUBLE_EQ(uneven.share_before(1, 2), 0.4);
  EXPECT_DOUBLE_EQ(uneven.share_before(2, 2), 1);
  // Those without an item come last.
  EXPECT_DOUBLE_EQ(Items(1).share_before(1, 2), 1);
  EXPECT_DOUBLE_EQ(Items(0).share_before(1, 2), 1);
}

TEST(Items, the_last_block_is_what_is_left) {
  const Items items = Items::by_size(1, 64, 100);
  EXPECT_EQ(items.count(), 2);
  EXPECT_DOUBLE_EQ(items.largest_share(2), 0.64);
  // Rows of (64, 36) each: three to each of two, two to each of three.
  EXPECT_DOUBLE_EQ(Items::by_size(3, 64, 100).largest_share(3), 1.0 / 3);
  EXPECT_DOUBLE_EQ(Items::by_size(3, 64, 100).largest_share(2), (64 + 36 + 64.0) / 300);
}

}  // namespace
}  // namespace rlx::cost
