// Greedy placement by several orders, and a local search over orders.
#include "plan/arena.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.hpp"

namespace rlx::plan {
namespace {

constexpr std::int64_t bytes_limit = std::int64_t{1} << 60;

/// Neighbours looked at in all placements of a search; bounds its time.
constexpr std::int64_t work_limit = 800'000;

std::int64_t round_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Where an interval goes among the free gaps: the lowest, the tightest, or as high or low as its
/// side says, with the top at a given height. Chains need both ends: buffers that follow each other
/// then lie at the bottom and at the top in turn.
enum class Gap : std::uint8_t { lowest, tightest, sides };

class Packer {
 public:
  explicit Packer(std::span<const Interval> intervals)
      : intervals_(intervals), sizes_(intervals.size()), neighbours_(intervals.size()) {
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      sizes_[i] = round_up(intervals[i].bytes, intervals[i].alignment);
      if (sizes_[i] != 0) used_.push_back(static_cast<int>(i));
    }
    find_neighbours();
  }

  ArenaPlan run() {
    ArenaPlan plan;
    best_offsets_.assign(intervals_.size(), 0);
    if (!used_.empty()) {
      find_lower_bound();
      choose_sides();
      try_greedy_orders();
      improve();
      plan.bytes_lower_bound = lower_bound_;
      plan.bytes_total = best_total_;
    }
    plan.offsets = std::move(best_offsets_);
    return plan;
  }

 private:
  std::int64_t lifetime(int i) const {
    return std::int64_t{intervals_[i].last} - intervals_[i].first + 1;
  }

  /// Pairs that share a step: a sweep over starts.
  void find_neighbours() {
    std::vector<int> by_start = used_;
    std::ranges::stable_sort(by_start, {}, [&](int i) { return intervals_[i].first; });
    std::vector<int> live;
    for (const int i : by_start) {
      std::erase_if(live, [&](int j) { return intervals_[j].last < intervals_[i].first; });
      for (const int j : live) {
        neighbours_[i].push_back(j);
        neighbours_[j].push_back(i);
      }
      live.push_back(i);
    }
  }

  /// Also notes how many bytes are live at the fullest step of each interval.
  void find_lower_bound() {
    // Live bytes only grow where an interval starts: those steps are enough.
    std::vector<std::int64_t> steps;
    for (const int i : used_) steps.push_back(intervals_[i].first);
    std::ranges::sort(steps);
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    const auto index = [&](std::int64_t step) {
      return std::ranges::lower_bound(steps, step) - steps.begin();
    };
    std::vector<std::int64_t> live(steps.size() + 1);
    for (const int i : used_) {
      live[index(intervals_[i].first)] += sizes_[i];
      live[index(std::int64_t{intervals_[i].last} + 1)] -= sizes_[i];
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    pressure_.assign(intervals_.size(), 0);
    for (const int i : used_) {
      pressure_[i] = *std::max_element(live.begin() + index(intervals_[i].first),
                                       live.begin() + index(std::int64_t{intervals_[i].last} + 1));
    }
    lower_bound_ = *std::ranges::max_element(live);
  }

  /// Offset of one interval among those of its neighbours that are placed.
  std::int64_t find_offset(int i, Gap gap, std::int64_t top) {
    taken_.clear();
    for (const int j : neighbours_[i]) {
      if (offsets_[j] >= 0) taken_.emplace_back(offsets_[j], offsets_[j] + sizes_[j]);
    }
    work_ += static_cast<std::int64_t>(neighbours_[i].size()) + 1;
    std::ranges::sort(taken_);
    const std::int64_t size = sizes_[i], alignment = intervals_[i].alignment;
    const bool high = gap == Gap::sides && is_high_[i];
    if (high) taken_.emplace_back(top, top);
    std::int64_t end = 0, best = -1, best_slack = 0;
    for (const auto& [from, to] : taken_) {
      const std::int64_t start = round_up(end, alignment), slack = from - start - size;
      if (slack >= 0 && high) {
        best = (from - size) & ~(alignment - 1);
      } else if (slack >= 0 && (best < 0 || (gap == Gap::tightest && slack < best_slack))) {
        best = start;
        best_slack = slack;
      }
      end = std::max(end, to);
    }
    return best >= 0 ? best : round_up(end, alignment);
  }

  /// Places in this order; gives up where the total reaches `stop_at`.
  std::int64_t place(const std::vector<int>& order, Gap gap, std::int64_t stop_at,
                     std::int64_t top) {
    offsets_.assign(intervals_.size(), -1);
    std::int64_t total = 0;
    for (const int i : order) {
      const std::int64_t offset = find_offset(i, gap, top);
      total = std::max(total, offset + sizes_[i]);
      if (total >= stop_at) return total;
      offsets_[i] = offset;
    }
    return total;
  }

  /// True where the order gives less than `stop_at`; the best is kept.
  bool attempt(const std::vector<int>& order, Gap gap, std::int64_t stop_at, std::int64_t top = 0) {
    const std::int64_t total = place(order, gap, stop_at, top);
    if (total >= stop_at) return false;
    if (total < best_total_) {
      best_total_ = total;
      best_offsets_ = offsets_;
      for (std::int64_t& offset : best_offsets_) offset = std::max<std::int64_t>(offset, 0);
      best_order_ = order;
      best_gap_ = gap;
    }
    return true;
  }

  template <class Key>
  void try_order(Key key) {
    std::vector<int> order = used_;
    std::ranges::stable_sort(order, {}, key);
    for (const Gap gap : {Gap::tightest, Gap::lowest}) {
      if (best_total_ > lower_bound_) attempt(order, gap, best_total_);
    }
    // The bound itself first, then tops between it and the best so far.
    const std::int64_t distance = best_total_ - lower_bound_;
    for (std::int64_t part = 0; part < 4 && best_total_ > lower_bound_; ++part) {
      const std::int64_t top = lower_bound_ + distance * part / 4;
      if (top >= best_total_ || attempt(order, Gap::sides, best_total_, top)) break;
    }
  }

  /// Each interval goes to the side where fewer bytes are live when it starts.
  void choose_sides() {
    is_high_.assign(intervals_.size(), false);
    std::vector<int> by_start = used_;
    std::ranges::stable_sort(by_start, {}, [&](int i) { return intervals_[i].first; });
    std::vector<int> live;
    for (const int i : by_start) {
      std::int64_t low = 0, high = 0;
      std::erase_if(live, [&](int j) { return intervals_[j].last < intervals_[i].first; });
      for (const int j : live) (is_high_[j] ? high : low) += sizes_[j];
      is_high_[i] = high < low;
      live.push_back(i);
    }
  }

  void try_greedy_orders() {
    const auto size = [&](int i) { return sizes_[i]; };
    const auto first = [&](int i) { return std::int64_t{intervals_[i].first}; };
    const auto last = [&](int i) { return std::int64_t{intervals_[i].last}; };
    using Pair = std::pair<std::int64_t, std::int64_t>;
    try_order([&](int i) { return Pair(-size(i), first(i)); });
    try_order([&](int i) { return Pair(-pressure_[i], -size(i)); });
    try_order([&](int i) {
      const double area = static_cast<double>(size(i)) * static_cast<double>(lifetime(i));
      return std::pair(-area, first(i));
    });
    try_order([&](int i) { return Pair(-lifetime(i), -size(i)); });
    try_order([&](int i) { return Pair(first(i), -size(i)); });
    try_order([&](int i) { return Pair(-last(i), -size(i)); });
  }

  std::size_t random(std::size_t bound) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(random_ >> 33) % bound;
  }

  /// An interval that ends at the top is placed earlier, where it finds a better gap, or changes
  /// its side; equal totals are kept too, so that the search leaves plateaus.
  void improve() {
    std::vector<int> order = best_order_, moved;
    std::vector<std::size_t> tops;
    std::vector<std::int64_t> offsets = best_offsets_;
    while (work_ < work_limit && best_total_ > lower_bound_) {
      tops.clear();
      for (std::size_t k = 1; k < order.size(); ++k) {
        if (offsets[order[k]] + sizes_[order[k]] == best_total_) tops.push_back(k);
      }
      moved = order;
      int flipped = -1;
      if (best_gap_ == Gap::sides && random(3) == 0) {
        flipped = order[random(order.size())];
        is_high_[flipped] = !is_high_[flipped];
      } else if (tops.empty() || random(8) == 0) {
        std::swap(moved[random(moved.size())], moved[random(moved.size())]);
      } else {
        const auto from = static_cast<std::ptrdiff_t>(tops[random(tops.size())]);
        const auto to = static_cast<std::ptrdiff_t>(random(static_cast<std::size_t>(from)));
        std::rotate(moved.begin() + to, moved.begin() + from, moved.begin() + from + 1);
      }
      const Gap gap = best_gap_ != Gap::sides && random(4) == 0 ? Gap::lowest : best_gap_;
      // A top a little below the best makes room for progress where sides are used.
      const std::int64_t top =
          std::max(lower_bound_, best_total_ - 64 * static_cast<std::int64_t>(random(64)));
      if (attempt(moved, gap, best_total_ + 1, top)) {
        order = moved;
        offsets = offsets_;
      } else if (flipped >= 0) {
        is_high_[flipped] = !is_high_[flipped];
      }
    }
  }

  std::span<const Interval> intervals_;
  std::vector<std::int64_t> sizes_;           ///< rounded up
  std::vector<int> used_;                     ///< intervals that are not empty
  std::vector<std::vector<int>> neighbours_;  ///< that share a step with each
  std::vector<std::int64_t> pressure_;
  std::vector<bool> is_high_;  ///< the side of each
  std::int64_t lower_bound_ = 0, work_ = 0;
  std::uint64_t random_ = 1;

  std::vector<std::int64_t> offsets_;  ///< of the placement at work; -1: not yet
  std::vector<std::pair<std::int64_t, std::int64_t>> taken_;

  std::int64_t best_total_ = INT64_MAX - 1;
  std::vector<std::int64_t> best_offsets_;
  std::vector<int> best_order_;
  Gap best_gap_ = Gap::tightest;
};

Status check(std::span<const Interval> intervals) {
  std::int64_t total = 0;
  for (const Interval& interval : intervals) {
    if (interval.bytes < 0 || interval.bytes > bytes_limit) {
      return bad_input("The size of a buffer ({} bytes) is out of range.", interval.bytes);
    }
    if (interval.last < interval.first) {
      return bad_input("A buffer ends at a step ({}) before it begins ({}).", interval.last,
                       interval.first);
    }
    if (interval.alignment <= 0 || interval.alignment > bytes_limit ||
        !std::has_single_bit(static_cast<std::uint64_t>(interval.alignment))) {
      return bad_input("The alignment ({}) of a buffer is no power of two.", interval.alignment);
    }
    total += round_up(interval.bytes, interval.alignment);
    if (total > bytes_limit) return bad_input("The buffers are too large together.");
  }
  return {};
}

}  // namespace

Result<ArenaPlan> plan_arena(std::span<const Interval> intervals) {
  RLX_TRY(check(intervals));
  return Packer(intervals).run();
}

}  // namespace rlx::plan
