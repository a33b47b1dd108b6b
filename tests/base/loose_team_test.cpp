// Loose teams: helpers that come and go, pieces that are done once and seen by all, and callers
// that return before a helper has looked.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/thread_pool.hpp"

namespace rlx {
namespace {

/// Steps of pieces, as programs have them: each reads all that the step before wrote.
class Steps {
 public:
  static constexpr int steps = 40, items = 24;

  Steps() {
    cells_[0].assign(items, 1);
    for (int i = 0; i < steps; ++i) cells_[static_cast<std::size_t>(i) + 1].assign(items, 0);
  }

  /// `leaves_after`: pieces after which a helper goes by itself; 0: only when its turn is over.
  void walk(int worker, LooseTeam& team, int leaves_after) {
    int pieces = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      team.call_helpers();
      for (int item = next_[step]++; item < items; item = next_[step]++) {
        const auto& from = cells_[step];
        const std::int64_t sum = std::accumulate(from.begin(), from.end(), std::int64_t{0});
        cells_[step + 1][static_cast<std::size_t>(item)] += sum % 1009 + item;
        done_[step].fetch_add(1, std::memory_order_acq_rel);
        if (team.gives_way()) return;
        if (worker > 0 && ++pieces == leaves_after) return;
      }
      while (done_[step].load(std::memory_order_acquire) < items) {
        if (team.waits()) return;
      }
    }
  }

  std::int64_t result() const {
    return std::accumulate(cells_[steps].begin(), cells_[steps].end(), std::int64_t{0});
  }

 private:
  std::array<std::vector<std::int64_t>, steps + 1> cells_;  ///< plain: pieces order these writes
  std::array<std::atomic<int>, steps> next_ = {}, done_ = {};
};

std::int64_t result_of_one_thread() {
  ThreadPool alone(1);
  Steps steps;
  alone.run_loosely(1, [&](int worker, LooseTeam& team) { steps.walk(worker, team, 0); });
  return steps.result();
}

TEST(LooseTeam, every_piece_is_done_once_and_seen_by_the_next_step) {
  const std::int64_t wanted = result_of_one_thread();
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int run = 0; run < 60; ++run) {
      Steps steps;
      pool.run_loosely(threads,
                       [&](int worker, LooseTeam& team) { steps.walk(worker, team, run % 5); });
      ASSERT_EQ(steps.result(), wanted) << threads << " threads, run " << run;
    }
  }
}

TEST(LooseTeam, workers_have_numbers_of_their_own) {
  ThreadPool pool(4);
  std::array<std::atomic<int>, 4> inside = {};
  std::atomic<bool> twice = false, outside = false;
  for (int run = 0; run < 200; ++run) {
    std::atomic<int> left = 50;
    pool.run_loosely(3, [&](int worker, LooseTeam& team) {
      if (worker < 0 || worker > 2) outside = true;
      if (inside[static_cast<std::size_t>(worker)]++ != 0) twice = true;
      int pieces = 0;
      while (left.fetch_sub(1) > 0 && (worker == 0 || ++pieces < 3)) team.call_helpers();
      --inside[static_cast<std::size_t>(worker)];
    });
    for (const auto& count : inside) EXPECT_EQ(count, 0) << "a helper is still inside";
  }
  EXPECT_FALSE(twice);
  EXPECT_FALSE(outside);
}

// A caller that asks for help and is done at once: its body is gone when a helper gets to look.
TEST(LooseTeam, a_helper_that_comes_too_late_finds_the_offer_revoked) {
  ThreadPool pool(3, std::chrono::microseconds(0));
  for (int run = 0; run < 3000; ++run) {
    auto runs = std::make_unique<std::atomic<int>>(0);
    pool.run_loosely(3, [count = runs.get()](int worker, LooseTeam& team) {
      if (worker == 0) team.call_helpers();
      ++*count;
    });
    EXPECT_GE(*runs, 1);
    EXPECT_LE(*runs, 3);
  }
}

TEST(LooseTeam, several_callers_share_the_workers_with_usual_teams) {
  const std::int64_t wanted = result_of_one_thread();
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&, c] {
      for (int run = 0; run < 40; ++run) {
        if (c == 2) {
          std::atomic<int> members = 0;
          int size = 0;
          pool.run_team(3, [&](int worker, Team& team) {
            if (worker == 0) size = team.size();
            team.barrier();
            ++members;
          });
          wrong += members != size;
          continue;
        }
        Steps steps;
        pool.run_loosely(3, [&](int worker, LooseTeam& team) { steps.walk(worker, team, c * 3); });
        wrong += steps.result() != wanted;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LooseTeam, a_pool_can_be_told_that_it_is_crowded) {
  ThreadPool pool(2);
  EXPECT_FALSE(pool.is_crowded());
  pool.assume_crowded(std::chrono::hours(1));
  EXPECT_TRUE(pool.is_crowded());
  int size = 0;
  pool.run_team(2, [&](int worker, Team& team) {
    if (worker == 0) size = team.size();
  });
  EXPECT_EQ(size, 1) << "the worker does not sit out";
}

}  // namespace
}  // namespace rlx
