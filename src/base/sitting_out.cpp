// The rule by which a worker sits out.
#include "base/sitting_out.hpp"

#include <algorithm>

namespace rlx::pool_detail {
namespace {

using Time = SittingOut::Time;

/// Less than a time slice is an interrupt, or a hypervisor that serves others.
constexpr Time least_delay = std::chrono::milliseconds(1);
constexpr Time shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(320);
/// One delay may be chance; a neighbour comes back within some time slices.
constexpr Time soon = std::chrono::milliseconds(100);

}  // namespace

void SittingOut::note(Time now, Time wall, Time ran) {
  const Time delay = wall - ran;
  // A team with a thread that has most of its core is still faster than one without it.
  if (delay < least_delay || delay * 5 < wall * 2) return;
  const Time duration(duration_.load(std::memory_order_relaxed));
  const Time before(held_up_at_.exchange(now.count(), std::memory_order_relaxed));
  // Good jobs between do not count: short ones fit into a time slice by luck.
  if (before.count() == 0 || now - before > 2 * duration + soon) {
    duration_.store(0, std::memory_order_relaxed);
    return;
  }
  const Time next = std::clamp(duration * 2, shortest, longest);
  duration_.store(next.count(), std::memory_order_relaxed);
  until_.store((now + next).count(), std::memory_order_relaxed);
}

}  // namespace rlx::pool_detail
