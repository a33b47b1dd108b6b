// Long steps, whose members take work from each other at the end: cores are not equally fast, and
// those of a virtual machine change within a run.
#include <algorithm>

#include "backends/cpu/executable.hpp"

namespace rlx::cpu {
namespace {

/// Grains [first, last).
struct Grains {
  std::uint64_t first = 0, last = 0;
  explicit Grains(std::uint64_t bits) : first(bits >> 32), last(bits & 0xffffffff) {}
  Grains(std::uint64_t first, std::uint64_t last) : first(first), last(last) {}
  std::uint64_t bits() const { return first << 32 | last; }
  bool empty() const { return first >= last; }
  /// What is taken at once: half of what is left, so that calls are few and the last ones short.
  std::uint64_t half() const { return (last - first + 1) / 2; }
};

/// Takes half of what is left: from the front for its owner, whose memory goes on there.
Grains take(std::atomic<std::uint64_t>& range, bool from_front) {
  std::uint64_t bits = range.load(std::memory_order_relaxed);
  while (true) {
    const Grains left(bits);
    if (left.empty()) return left;
    const std::uint64_t count = left.half();
    const Grains taken =
        from_front ? Grains(left.first, left.first + count) : Grains(left.last - count, left.last);
    const Grains rest =
        from_front ? Grains(taken.last, left.last) : Grains(left.first, taken.first);
    if (range.compare_exchange_weak(bits, rest.bits(), std::memory_order_relaxed)) return taken;
  }
}

}  // namespace

void CpuExecutable::let_share(const plan::Step& step, BoundStep& bound) {
  // A look at another's range takes 0.1 to 0.3 us; kernels of the library prepare each call.
  constexpr double shortest_ns = 10e3, shortest_own_ns = 40e3;
  constexpr std::int64_t least = 3, most = 16;  // grains of a member
  if ((!bound.function && !bound.own) || step.threads == 1) return;
  const double grain_ns = bound.own ? shortest_own_ns : shortest_ns;
  const auto wanted = static_cast<std::int64_t>(step.predicted_ns / grain_ns);
  if (wanted < least) return;
  bound.grains = std::min(bound.work_items, std::min(wanted, most) * step.threads);
  bound.ranges = ranges_count_;
  ranges_count_ += static_cast<std::uint32_t>(step.threads);
}

// Steps of several threads lie between barriers: whoever is late in the step before finds nothing
// taken from what it still needs.
void CpuExecutable::run_share(const BoundStep& step, int worker, int sharing) {
  const auto part = [&](std::int64_t all, std::int64_t index, std::int64_t count) {
    return all * index / count;
  };
  const auto run = [&](const Grains& grains) {
    run_items(step, worker,
              part(step.work_items, static_cast<std::int64_t>(grains.first), step.grains),
              part(step.work_items, static_cast<std::int64_t>(grains.last), step.grains));
  };
  Range* const ranges = ranges_.get() + step.ranges;
  std::atomic<std::uint64_t>& own = ranges[worker].left;
  own.store(Grains(static_cast<std::uint64_t>(part(step.grains, worker, sharing)),
                   static_cast<std::uint64_t>(part(step.grains, worker + 1, sharing)))
                .bits(),
            std::memory_order_relaxed);
  for (Grains next = take(own, true); !next.empty(); next = take(own, true)) {
    if (is_cancelled()) [[unlikely]]
      return own.store(0, std::memory_order_relaxed);
    run(next);
  }
  for (int i = 1; i < sharing; ++i) {
    std::atomic<std::uint64_t>& other = ranges[(worker + i) % sharing].left;
    for (Grains next = take(other, false); !next.empty(); next = take(other, false)) {
      if (is_cancelled()) [[unlikely]]
        return;
      run(next);
    }
  }
}

}  // namespace rlx::cpu
