// Moves intervals inside of the room that a packing leaves them.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "plan/arena.hpp"

namespace rlx::plan {
namespace {

/// The largest ones; of others the lines are too few.
constexpr std::size_t most_intervals = 256;
/// Middles of larger ones that are tried for each.
constexpr std::size_t most_middles = 8;

class Middles {
 public:
  Middles(std::span<const Interval> intervals, ArenaPlan& plan)
      : intervals_(intervals), plan_(plan) {
    for (std::size_t i = 0; i < intervals.size(); ++i)
      if (intervals[i].bytes > 0) all_.push_back(i);
    std::ranges::stable_sort(all_, std::ranges::greater{},
                             [&](std::size_t i) { return intervals[i].bytes; });
  }

  void run() {
    for (std::size_t n = 0; n < std::min(all_.size(), most_intervals); ++n) {
      const std::span<const std::size_t> larger(all_.data(), n);
      move(all_[n], larger);
    }
  }

 private:
  std::int64_t begin(std::size_t i) const { return plan_.offsets[i]; }
  std::int64_t end(std::size_t i) const { return plan_.offsets[i] + intervals_[i].bytes; }
  bool share_a_step(std::size_t i, std::size_t j) const {
    return intervals_[i].first <= intervals_[j].last && intervals_[j].first <= intervals_[i].last;
  }

  /// Bytes of an interval there that lie in another half of those that it takes turns with.
  std::int64_t apart(std::size_t i, std::int64_t offset,
                     std::span<const std::size_t> others) const {
    std::int64_t sum = 0;
    for (const std::size_t j : others) {
      const std::int64_t from = std::max(offset, begin(j)),
                         to = std::min(offset + intervals_[i].bytes, end(j));
      if (from >= to || share_a_step(i, j)) continue;
      const auto middle = [&](std::int64_t first, std::size_t of) {
        return std::clamp(first + intervals_[of].bytes / 2, from, to);
      };
      sum += std::abs(middle(offset, i) - middle(begin(j), j));
    }
    return sum;
  }

  void move(std::size_t i, std::span<const std::size_t> larger) {
    std::int64_t low = 0, high = plan_.bytes_total;
    for (const std::size_t j : all_) {
      if (j == i || !share_a_step(i, j)) continue;
      if (begin(j) < begin(i)) low = std::max(low, end(j));
      if (begin(j) > begin(i)) high = std::min(high, begin(j));
    }
    const std::int64_t size = intervals_[i].bytes, alignment = intervals_[i].alignment;
    low = (low + alignment - 1) / alignment * alignment;
    high = (high - size) / alignment * alignment;
    if (low >= high) return;
    std::int64_t best = begin(i), least = apart(i, best, larger);
    std::size_t tried = 0;
    for (const std::size_t j : larger) {
      if (least == 0 || tried == most_middles) break;
      if (share_a_step(i, j) || end(j) <= low || begin(j) >= high + size) continue;
      ++tried;
      const std::int64_t middle = begin(j) + intervals_[j].bytes / 2 - size / 2,
                         offset = std::clamp(middle / alignment * alignment, low, high),
                         bytes = apart(i, offset, larger);
      if (bytes < least) best = offset, least = bytes;
    }
    plan_.offsets[i] = best;
  }

  std::span<const Interval> intervals_;
  ArenaPlan& plan_;
  std::vector<std::size_t> all_;  ///< the largest first
};

}  // namespace

void align_middles(std::span<const Interval> intervals, ArenaPlan& plan) {
  Middles(intervals, plan).run();
}

}  // namespace rlx::plan
