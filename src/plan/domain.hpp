// Iteration domains of kernels over a region's axes.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/kernel_builder.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

/// Iteration domain of a region: extents, and how strides over the region's axes become strides
/// over it.
struct Domain {
  std::vector<std::int64_t> extents;
  std::int32_t parallel_dims = 0;
  MapStrides map;
};

/// The domain of a nest: axes that stay, then axes that are reduced, then `extra` dims of windows.
Domain nest_domain(const Region& region, const std::vector<std::int64_t>& extra);

/// Points of a domain, as a number to compute costs with.
double points_of(const std::vector<std::int64_t>& extents);

/// The axes, or `count` times `value` where none are given.
Axes filled(const Axes& axes, std::size_t count, std::int64_t value);

}  // namespace rlx::plan
