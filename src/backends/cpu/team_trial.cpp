// The rule by which a short program leaves its team.
#include "backends/cpu/team_trial.hpp"

#include <algorithm>

namespace rlx::cpu {

bool is_worth_a_trial(const plan::Plan& plan) {
  constexpr double most_ns = 1e6, sure_gain = 4;
  double alone_ns = 0;
  for (const plan::Step& step : plan.steps) alone_ns += step.threads * step.predicted_ns;
  return plan.predicted_ns <= most_ns && alone_ns <= sure_gain * plan.predicted_ns;
}

void TeamTrial::took(Time time) {
  Time& least = least_[timed_ < runs_of_a_way ? 0 : 1];
  least = std::min(least, time);
  if (++timed_ < 2 * runs_of_a_way) return;
  // A small gain is none: runs differ by as much.
  const auto [before, other] = least_;
  const bool changes = other * 10 < before * 9;
  wait_ = changes ? least_wait : std::min(2 * wait_, most_wait);
  alone_ = alone_ != changes;
  left_ = wait_;
  timed_ = 0;
  least_.fill(Time::max());
}

}  // namespace rlx::cpu
