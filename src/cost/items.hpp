// The work items of a kernel, and what part of its work falls to each member of a team.
#pragma once

#include <cstdint>
#include <vector>

namespace rlx::cost {

/// Workers share a kernel out by the number of its items, in order: worker w of n takes those from
/// count * w / n on. Where items are not alike, one of them may get more work than the others.
class Items {
 public:
  Items() = default;
  /// All alike.
  explicit Items(std::int64_t count) : outer_(count) {}
  /// In order of (outer, group, inner). Groups are alike but for their sizes: `units` of work go to
  /// `groups` of them, evenly, or so many to each and to the last what is left.
  static Items evenly(std::int64_t outer, std::int64_t groups, std::int64_t inner,
                      std::int64_t units);
  static Items by_size(std::int64_t outer, std::int64_t size, std::int64_t units,
                       std::int64_t inner = 1);

  std::int64_t count() const { return outer_ * groups_ * inner_; }

  /// The part of all work that the worker with the most of it does; above 0, at most 1.
  double largest_share(int workers) const;
  /// The part of all work that the workers before this one do.
  double share_before(int worker, int workers) const;

 private:
  std::int64_t group_begin(std::int64_t group) const;
  std::int64_t units_before(std::int64_t item) const;

  std::int64_t outer_ = 1, groups_ = 1, inner_ = 1;
  std::int64_t units_ = 1, size_ = 0;  ///< size_ 0: evenly
};

}  // namespace rlx::cost
