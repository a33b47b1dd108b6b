// Whether the team of a short program pays: what its workers fetch from each other takes four times
// as long where a host has put the cores apart, and it moves them while programs run.
#pragma once

#include <array>
#include <chrono>

#include "plan/plan.hpp"

namespace rlx::cpu {

/// Whether runs of the plan may go alone at times to see what that takes: where one takes up to
/// 1 ms (longer ones are work that pays wherever the cores are), and its team is told to gain less
/// than four times, beside which runs alone are too slow to try.
bool is_worth_a_trial(const plan::Plan& plan);

/// Decides from run to run whether a program goes with its team or on the caller alone, from what a
/// few runs of both took. Results do not depend on it. One thread at a time calls it.
class TeamTrial {
 public:
  using Time = std::chrono::nanoseconds;

  /// How the next run goes.
  struct Way {
    bool alone = false;
    bool timed = false;  ///< took() is to be told how long it was
  };
  Way next() {
    if (left_ == 0) return {(timed_ < runs_of_a_way) == alone_, true};
    --left_;
    return {alone_, false};
  }
  /// Of the run that next() asked to be timed.
  void took(Time time);

  /// Runs before the first trial, and until another one: at least, and where nothing changes.
  static constexpr int first_wait = 16, least_wait = 512, most_wait = 16384;
  /// A trial times so many runs as they went before, then so many of the other way.
  static constexpr int runs_of_a_way = 3;

 private:
  bool alone_ = false;
  int left_ = first_wait, wait_ = least_wait / 2;
  int timed_ = 0;                                           ///< runs of this trial
  std::array<Time, 2> least_ = {Time::max(), Time::max()};  ///< of the way of before, of the other
};

}  // namespace rlx::cpu
