// When a worker sits out: others want its core, too, and a team that waits for it at every barrier
// is slower than a team without it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rlx::pool_detail {

/// Decides from what jobs of one worker took. Times are the steady clock's. Any thread may call it.
class SittingOut {
 public:
  using Time = std::chrono::nanoseconds;

  /// A job that ended at `now` lasted `wall` without naps; for `ran` of it the thread had a core.
  /// Two jobs that were held up soon after each other make the worker sit out, for 20 ms at first,
  /// and for twice as long each time that its next job is held up again.
  void note(Time now, Time wall, Time ran);

  /// Others had the worker's core while it gave way.
  void note_crowd(Time now) { stay_out(now + crowd_lasts); }
  void stay_out(Time until) {
    if (until_.load(std::memory_order_relaxed) < until.count())
      until_.store(until.count(), std::memory_order_relaxed);
  }

  bool is_out(Time now) const { return now.count() < until_.load(std::memory_order_relaxed); }
  /// Nothing was ever wrong: no clock has to be read to ask.
  bool is_fresh() const { return until_.load(std::memory_order_relaxed) == 0; }

  /// Shorter jobs are not looked at.
  static constexpr Time long_job = std::chrono::microseconds(100);

 private:
  static constexpr Time crowd_lasts = std::chrono::milliseconds(320);

  std::atomic<std::int64_t> until_ = 0, held_up_at_ = 0, duration_ = 0;
};

}  // namespace rlx::pool_detail
