// Norms of images and of series, in shapes that kernels and workers share out well.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Computes norms, and the maps between their reductions, in another shape of the same elements:
/// * Where channels (the last axis) are taken apart into groups, as group norms do once images are
///   kept channels last, in the image's shape: each channel is reduced first and then those of a
///   group, and what a group's channels share is repeated by channel. Kernels then see rows of all
///   channels instead of a few lanes for each group.
/// * Where one long axis is reduced and `workers` share kernels, with that axis taken apart: sums
/// of
///   its parts, which sums_of_rows then gives to who made their rows.
/// Sums add in another order. The smallest values stay as they are. docs/adr/0064.
Result<Graph> recast_norms(Graph graph, int workers);

}  // namespace rlx::passes
