// When a worker of a team sits out.
#include "base/sitting_out.hpp"

#include <gtest/gtest.h>

namespace rlx::pool_detail {
namespace {

using namespace std::chrono_literals;

TEST(SittingOut, a_worker_that_has_its_core_stays) {
  SittingOut worker;
  for (auto now = 1ms; now < 100ms; now += 1ms) worker.note(now, 1ms, 1ms - 50us);
  EXPECT_TRUE(worker.is_fresh());
  EXPECT_FALSE(worker.is_out(50ms));
}

TEST(SittingOut, one_delay_is_forgiven_and_two_are_not) {
  SittingOut worker;
  worker.note(1000ms, 4ms, 1ms);
  EXPECT_FALSE(worker.is_out(1000ms));
  worker.note(2000ms, 4ms, 1ms);
  EXPECT_FALSE(worker.is_out(2000ms));
  worker.note(2004ms, 4ms, 1ms);
  EXPECT_TRUE(worker.is_out(2004ms));
  EXPECT_TRUE(worker.is_out(2023ms));
  EXPECT_FALSE(worker.is_out(2025ms));
}

TEST(SittingOut, a_small_share_of_a_long_job_is_no_reason) {
  SittingOut worker;
  worker.note(1000ms, 40ms, 25ms);
  worker.note(1040ms, 40ms, 25ms);
  EXPECT_FALSE(worker.is_out(1040ms));
  worker.note(1041ms, 1ms, 1ms - 900us);
  worker.note(1042ms, 1ms, 1ms - 900us);
  EXPECT_FALSE(worker.is_out(1042ms));
}

TEST(SittingOut, each_time_is_longer_up_to_a_limit) {
  SittingOut worker;
  auto now = 1000ms;
  worker.note(now, 4ms, 1ms);
  for (const auto duration : {20ms, 40ms, 80ms, 160ms, 320ms, 320ms}) {
    worker.note(now, 4ms, 1ms);
    EXPECT_TRUE(worker.is_out(now + duration - 1ms));
    now += duration;
    EXPECT_FALSE(worker.is_out(now));
  }
}

TEST(SittingOut, a_good_job_by_luck_changes_nothing_and_a_quiet_time_clears_the_record) {
  SittingOut worker;
  worker.note(1000ms, 4ms, 1ms);
  worker.note(1004ms, 4ms, 1ms);
  worker.note(1030ms, 4ms, 4ms);
  worker.note(1034ms, 4ms, 1ms);
  EXPECT_TRUE(worker.is_out(1034ms + 39ms));
  worker.note(1500ms, 4ms, 1ms);
  EXPECT_FALSE(worker.is_out(1500ms));
  worker.note(1504ms, 4ms, 1ms);
  EXPECT_TRUE(worker.is_out(1504ms + 19ms));
  EXPECT_FALSE(worker.is_out(1504ms + 20ms));
}

TEST(SittingOut, who_gave_way_to_others_stays_out_and_never_for_less_than_before) {
  SittingOut worker;
  worker.note_crowd(1000ms);
  EXPECT_FALSE(worker.is_fresh());
  EXPECT_TRUE(worker.is_out(1319ms));
  EXPECT_FALSE(worker.is_out(1320ms));
  worker.stay_out(1100ms);
  EXPECT_TRUE(worker.is_out(1319ms));
  worker.stay_out(1500ms);
  EXPECT_TRUE(worker.is_out(1499ms));
}

}  // namespace
}  // namespace rlx::pool_detail
