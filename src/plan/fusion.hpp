// The planner of fusions: asks the gate about pairs of regions, the greatest benefit first.
#pragma once

#include "plan/region_graph.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

/// Merges the regions of `regions`, which hold one node each, where the gate says that it pays:
/// consumers into the kernel that makes what they read, maps into the kernel that reads them;
/// then maps that are cheaper made anew than stored; then kernels over the same points that read
/// the same values. Every question is kept in `regions.questions`. Deterministic.
void fuse(const FlatGraph& flat, const FusionPolicy& policy, Regions& regions);

}  // namespace rlx::plan
