// Iteration domains and window accesses.
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

loop::Access window_access(const Located& x, const Window& window, const Region& region,
                           const Domain& domain, KernelBuffers& buffers, double fill) {
  const std::size_t spatial = window.extents.size(), rank = region.dims.size();
  std::vector<std::int64_t> strides(rank, 0);
  strides[0] = x.view.strides[0];
  strides[rank - 1] = x.view.strides[rank - 1];
  loop::Access access{
      .buffer = buffers.number(x.buffer, false), .offset = x.view.offset, .fill = fill};
  for (std::size_t i = 0; i < spatial; ++i)
    strides[i + 1] = x.view.strides[i + 1] * window.strides[i];
  access.strides = domain.map(strides);
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t stride = x.view.strides[i + 1];
    access.offset -= window.pad_low[i] * stride;
    access.strides[rank + i] = stride * window.dilations[i];
    const std::int64_t last = (region.dims[i + 1] - 1) * window.strides[i] +
                              (window.extents[i] - 1) * window.dilations[i] - window.pad_low[i];
    if (window.pad_low[i] == 0 && last < x.view.dims[i + 1]) continue;
    loop::Guard guard{-window.pad_low[i], x.view.dims[i + 1],
                      std::vector<std::int64_t>(domain.extents.size(), 0)};
    guard.coefficients[i + 1] = window.strides[i];
    guard.coefficients[rank + i] = window.dilations[i];
    access.guards.push_back(std::move(guard));
  }
  return access;
}

}  // namespace rlx::plan
