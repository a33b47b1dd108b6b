// How work items fall on the members of a team.
#include "cost/items.hpp"

#include <algorithm>

namespace rlx::cost {

Items Items::evenly(std::int64_t outer, std::int64_t groups, std::int64_t inner,
                    std::int64_t units) {
  Items items(outer);
  items.groups_ = groups, items.inner_ = inner, items.units_ = units;
  return items;
}

Items Items::by_size(std::int64_t outer, std::int64_t size, std::int64_t units,
                     std::int64_t inner) {
  Items items = evenly(outer, (units + size - 1) / size, inner, units);
  items.size_ = size;
  return items;
}

double Items::largest_share(int workers) const {
  const std::int64_t all = count(),
                     team = std::clamp<std::int64_t>(workers, 1, std::max<std::int64_t>(all, 1));
  if (all <= 1 || team == 1) return 1;
  std::int64_t most = 0, before = 0;
  for (std::int64_t worker = 1; worker <= team; ++worker) {
    const std::int64_t until = units_before(all * worker / team);
    most = std::max(most, until - before);
    before = until;
  }
  return static_cast<double>(most) / static_cast<double>(before);
}

double Items::share_before(int worker, int workers) const {
  const std::int64_t all = count(), team = std::min<std::int64_t>(workers, all);
  if (worker <= 0) return 0;
  if (worker >= team) return 1;
  return static_cast<double>(units_before(all * worker / team)) /
         static_cast<double>(units_before(all));
}

std::int64_t Items::group_begin(std::int64_t group) const {
  return size_ > 0 ? std::min(group * size_, units_) : units_ * group / groups_;
}

/// Units of the items [0, item), each of the inner items counted as a whole group.
std::int64_t Items::units_before(std::int64_t item) const {
  const std::int64_t run = groups_ * inner_, within = item % run;
  const std::int64_t group = within / inner_, begin = group_begin(group);
  return item / run * units_ * inner_ + begin * inner_ +
         within % inner_ * (group_begin(group + 1) - begin);
}

}  // namespace rlx::cost
