// Runs that are timed together, and the mean of what they take.
#include "tools/clock.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace rlx::tools {
namespace {

TEST(Clock, ShortRunsAreTimedTogether) {
  EXPECT_EQ(runs_per_sample(25), 1);
  EXPECT_EQ(runs_per_sample(2e-3), 1);
  EXPECT_EQ(runs_per_sample(1.9e-3), 2);
  EXPECT_EQ(runs_per_sample(50e-6), 40);
  // What the clock cannot tell from nothing.
  EXPECT_EQ(runs_per_sample(0), 256);
}

TEST(Clock, TellsTheMeanOfRuns) {
  int runs = 0;
  const auto sleep = [&]() -> Status {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  };
  const Result<double> mean = milliseconds_of(5, sleep);
  ASSERT_TRUE(mean.ok());
  EXPECT_EQ(runs, 5);
  EXPECT_GE(*mean, 2);
}

TEST(Clock, ARunThatFailsEndsTheSample) {
  int runs = 0;
  const auto fail = [&]() -> Status {
    ++runs;
    return bad_input("No more.");
  };
  const Result<double> mean = milliseconds_of(5, fail);
  ASSERT_FALSE(mean.ok());
  EXPECT_EQ(mean.error().message, "No more.");
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace rlx::tools
