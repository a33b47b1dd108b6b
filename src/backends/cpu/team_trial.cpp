// The rule by which a short program leaves its team.
#include "backends/cpu/team_trial.hpp"

#include <algorithm>

namespace rlx::cpu {

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
