// Iteration domains.
#include "plan/domain.hpp"

#include <algorithm>

namespace rlx::plan {

Domain nest_domain(const Region& region, const std::vector<std::int64_t>& extra) {
  std::vector<std::size_t> order;
  const auto reduces = [&](std::size_t axis) {
    return std::find(region.reduced.begin(), region.reduced.end(),
                     static_cast<std::int64_t>(axis)) != region.reduced.end();
  };
  for (std::size_t i = 0; i < region.dims.size(); ++i)
    if (!reduces(i)) order.push_back(i);
  Domain domain;
  domain.parallel_dims = static_cast<std::int32_t>(order.size());
  for (std::size_t i = 0; i < region.dims.size(); ++i)
    if (reduces(i)) order.push_back(i);
  for (const std::size_t axis : order) domain.extents.push_back(region.dims[axis]);
  domain.extents.insert(domain.extents.end(), extra.begin(), extra.end());
  const std::size_t extra_dims = extra.size();
  domain.map = [order, extra_dims](const std::vector<std::int64_t>& strides) {
    std::vector<std::int64_t> mapped;
    for (const std::size_t axis : order) mapped.push_back(strides[axis]);
    mapped.resize(mapped.size() + extra_dims, 0);
    return mapped;
  };
  return domain;
}

double points_of(const std::vector<std::int64_t>& extents) {
  return static_cast<double>(element_count(extents));
}

Axes filled(const Axes& axes, std::size_t count, std::int64_t value) {
  return axes.empty() ? Axes(count, value) : axes;
}

}  // namespace rlx::plan
