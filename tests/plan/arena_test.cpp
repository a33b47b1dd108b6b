// The memory planner: plans are valid, close to the lower bound on nets, and the same every time.
#include "plan/arena.hpp"

#include <gtest/gtest.h>

#include <random>

namespace rlx::plan {
namespace {

void expect_valid(const std::vector<Interval>& intervals, const ArenaPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), intervals.size());
  EXPECT_GE(plan.bytes_total, plan.bytes_lower_bound);
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_GE(plan.offsets[i], 0);
    EXPECT_EQ(plan.offsets[i] % intervals[i].alignment, 0);
    EXPECT_LE(plan.offsets[i] + intervals[i].bytes, plan.bytes_total);
    for (std::size_t j = 0; j < i; ++j) {
      const bool share_step =
          intervals[i].first <= intervals[j].last && intervals[j].first <= intervals[i].last;
      const bool share_bytes = plan.offsets[i] < plan.offsets[j] + intervals[j].bytes &&
                               plan.offsets[j] < plan.offsets[i] + intervals[i].bytes;
      EXPECT_FALSE(share_step && share_bytes && intervals[i].bytes > 0 && intervals[j].bytes > 0)
          << i << " " << j;
    }
  }
}

/// bytes_total over the lower bound.
double waste(const std::vector<Interval>& intervals) {
  auto plan = plan_arena(intervals);
  EXPECT_TRUE(plan.ok());
  expect_valid(intervals, *plan);
  const double ratio = static_cast<double>(plan->bytes_total) /
                       static_cast<double>(std::max<std::int64_t>(plan->bytes_lower_bound, 1));
  ::testing::Test::RecordProperty("waste", std::to_string(ratio));
  return ratio;
}

/// A residual net whose images shrink while channels grow.
std::vector<Interval> residual_net() {
  std::vector<Interval> intervals;
  std::int32_t step = 0;
  std::int64_t bytes = 64 * 112 * 112 * 4;
  for (int stage = 0; stage < 4; ++stage, bytes /= 2) {
    for (int block = 0; block < 4; ++block, step += 4) {
      intervals.push_back({bytes, step, step + 4});          // the block's input, kept for the sum
      intervals.push_back({bytes / 4, step + 1, step + 2});  // bottleneck
      intervals.push_back({bytes / 4, step + 2, step + 3});
      intervals.push_back({bytes, step + 3, step + 4});
    }
  }
  return intervals;
}

std::vector<Interval> transformer(int layers, std::int64_t tokens, std::int64_t width) {
  std::vector<Interval> intervals;
  const std::int64_t row = tokens * width * 4;
  std::int32_t step = 0;
  for (int layer = 0; layer < layers; ++layer, step += 8) {
    intervals.push_back({row, step, step + 4});                           // residual
    intervals.push_back({3 * row, step + 1, step + 3});                   // q, k, v
    intervals.push_back({12 * tokens * tokens * 4, step + 2, step + 3});  // scores
    intervals.push_back({row, step + 3, step + 4});                       // context
    intervals.push_back({row, step + 4, step + 7});                       // second residual
    intervals.push_back({4 * row, step + 5, step + 6});                   // hidden
    intervals.push_back({row, step + 6, step + 7});
    intervals.push_back({row, step + 7, step + 8});
  }
  return intervals;
}

/// Long skip connections from the way down to the way up.
std::vector<Interval> u_net() {
  std::vector<Interval> intervals;
  const int depth = 6;
  std::int64_t bytes = 1 << 22;
  for (std::int32_t level = 0; level < depth; ++level, bytes /= 2) {
    const std::int32_t down = level * 3, up = depth * 6 - level * 3;
    intervals.push_back({bytes, down, up});
    intervals.push_back({bytes, down, down + 1});
    intervals.push_back({bytes / 4, down + 1, down + 3});
    intervals.push_back({bytes, up - 2, up});
    intervals.push_back({2 * bytes, up - 1, up + 1});
  }
  return intervals;
}

/// Four branches of different sizes between two joins, many times.
std::vector<Interval> inception() {
  std::vector<Interval> intervals;
  std::mt19937 random(5);
  std::int32_t step = 0;
  for (int block = 0; block < 12; ++block, step += 10) {
    const std::int64_t unit = 30'000 + static_cast<std::int64_t>(random() % 50'000);
    intervals.push_back({unit * 10, step, step + 8});
    for (std::int32_t branch = 0; branch < 4; ++branch) {
      const std::int64_t bytes = unit * (1 + branch + static_cast<std::int64_t>(random() % 3));
      intervals.push_back({bytes, step + 1 + branch, step + 2 + branch});
      intervals.push_back({bytes * 2, step + 2 + branch, step + 9});
    }
    intervals.push_back({unit * 24, step + 9, step + 10});
  }
  return intervals;
}

std::vector<Interval> noise(std::uint32_t seed, int count, std::int32_t steps, std::int32_t life) {
  std::mt19937 random(seed);
  std::vector<Interval> intervals;
  for (int i = 0; i < count; ++i) {
    const auto first = static_cast<std::int32_t>(random() % steps);
    const auto last = first + static_cast<std::int32_t>(random() % life);
    intervals.push_back({static_cast<std::int64_t>(random() % 100'000), first, last,
                         std::int64_t{1} << random() % 9});
  }
  return intervals;
}

TEST(Arena, nets_waste_at_most_five_percent) {
  EXPECT_LE(waste(residual_net()), 1.05);
  EXPECT_LE(waste(transformer(12, 128, 384)), 1.05);
  EXPECT_LE(waste(transformer(6, 300, 256)), 1.05);
  EXPECT_LE(waste(u_net()), 1.05);
  EXPECT_LE(waste(inception()), 1.05);
}

TEST(Arena, a_chain_needs_its_two_largest_neighbours) {
  std::vector<Interval> intervals;
  for (std::int32_t i = 0; i < 50; ++i) intervals.push_back({1000 + 64 * (i * 7 % 13), i, i + 1});
  EXPECT_EQ(waste(intervals), 1.0);
}

// First fit by start needs 4 here: the long one in the middle splits the free bytes.
TEST(Arena, finds_the_bound_where_first_fit_does_not) {
  const std::vector<Interval> intervals = {{64, 0, 1},  {64, 0, 5}, {64, 0, 1},
                                           {128, 2, 5}, {64, 6, 7}, {128, 6, 9}};
  const auto plan = plan_arena(intervals).value();
  expect_valid(intervals, plan);
  EXPECT_EQ(plan.bytes_lower_bound, 192);
  EXPECT_EQ(plan.bytes_total, 192);
}

TEST(Arena, random_intervals_are_packed_validly) {
  double worst = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const auto intervals = noise(seed, 1 + static_cast<int>(seed * 3), 60, 1 + seed % 20);
    const auto plan = plan_arena(intervals).value();
    expect_valid(intervals, plan);
    if (plan.bytes_lower_bound > 0) {
      worst = std::max(worst, static_cast<double>(plan.bytes_total) /
                                  static_cast<double>(plan.bytes_lower_bound));
    }
  }
  EXPECT_LE(worst, 1.2);
}

TEST(Arena, middles_are_brought_together_where_there_is_room) {
  // A small one takes turns with a large one, beside which a third lives on: its middle is theirs.
  const std::vector<Interval> intervals = {{4096, 0, 1}, {1024, 2, 3}, {2048, 0, 3}, {512, 4, 5}};
  auto plan = plan_arena(intervals).value();
  align_middles(intervals, plan);
  expect_valid(intervals, plan);
  const auto middle = [&](std::size_t i) { return plan.offsets[i] + intervals[i].bytes / 2; };
  EXPECT_EQ(middle(1), middle(0));
  // One that takes turns with all has one of their middles.
  EXPECT_TRUE(middle(3) == middle(0) || middle(3) == middle(2));
  EXPECT_EQ(plan.bytes_total, 6144);
}

TEST(Arena, middles_move_nothing_onto_others) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const auto intervals = noise(seed, 1 + static_cast<int>(seed * 5), 60, 1 + seed % 20);
    auto plan = plan_arena(intervals).value();
    const std::int64_t total = plan.bytes_total;
    align_middles(intervals, plan);
    expect_valid(intervals, plan);
    EXPECT_EQ(plan.bytes_total, total);
  }
}

TEST(Arena, the_same_intervals_give_the_same_plan) {
  const auto intervals = noise(11, 200, 80, 15);
  const auto a = plan_arena(intervals).value(), b = plan_arena(intervals).value();
  EXPECT_EQ(a.offsets, b.offsets);
  EXPECT_EQ(a.bytes_total, b.bytes_total);
}

TEST(Arena, empty_buffers_and_none_at_all) {
  EXPECT_EQ(plan_arena({}).value().bytes_total, 0);
  const std::vector<Interval> intervals = {{0, 0, 5}, {0, 0, 3}, {10, 1, 2}};
  const auto plan = plan_arena(intervals).value();
  EXPECT_EQ(plan.offsets, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(plan.bytes_total, 64);
}

TEST(Arena, extreme_steps) {
  const std::vector<Interval> intervals = {
      {100, 0, INT32_MAX}, {200, INT32_MAX, INT32_MAX}, {300, INT32_MIN, 0}};
  const auto plan = plan_arena(intervals).value();
  expect_valid(intervals, plan);
  EXPECT_EQ(plan.bytes_lower_bound, 448);
  EXPECT_EQ(plan.bytes_total, 448);
}

TEST(Arena, nonsense_is_refused) {
  const auto message = [](Interval interval) {
    auto plan = plan_arena(std::span(&interval, 1));
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_EQ(message({-1, 0, 1}), "The size of a buffer (-1 bytes) is out of range.");
  EXPECT_EQ(message({1, 3, 1}), "A buffer ends at a step (1) before it begins (3).");
  EXPECT_EQ(message({1, 0, 1, 48}), "The alignment (48) of a buffer is no power of two.");
  const std::vector<Interval> large(3, {std::int64_t{1} << 59, 0, 1});
  EXPECT_EQ(plan_arena(large).error().message, "The buffers are too large together.");
}

}  // namespace
}  // namespace rlx::plan
