// Which regions can be one kernel, whatever it costs, and what work that adds.
#pragma once

#include "plan/region_graph.hpp"

namespace rlx::plan {

/// The consumer can follow the producer in its kernel: an epilogue of a contraction or window, or
/// more of a nest.
bool fits_after(const RegionGraph& graph, const Region& producer, const Region& consumer);

/// The producer is a map over the points of the consumer, a contraction's or window's epilogue, and
/// can be evaluated there.
bool fits_before(const RegionGraph& graph, const Region& producer, const Region& consumer);

/// Two nests over the same points.
bool fits_beside(const RegionGraph& graph, const Region& a, const Region& b);

/// A map of a few ops with one value, which all its readers can evaluate where they read it,
/// through whatever view.
bool may_recompute(const RegionGraph& graph, std::int32_t region);

/// At how many points of `reader` the values of the region are read.
double points_read(const RegionGraph& graph, std::int32_t region, const Region& reader);

/// What a register of points of a map takes one thread.
double register_ns(const RegionGraph& graph, const Region& map, const FusionPolicy& policy);

/// What a map takes longer in the kernel that reduces its rows: alone it walks over them as over
/// one row, there the last register of each is not full. 0 where the region is no such map, or has
/// to walk over rows anyway.
double short_rows_ns(const RegionGraph& graph, const Region& map, const Region& reduction,
                     const FusionPolicy& policy);

}  // namespace rlx::plan
