// Chains: a contraction whose rows only another contraction reads, as one region (attention); the
// three steps of a convolution by Winograd's points.
#pragma once

#include "plan/regions.hpp"

namespace rlx::plan {

/// Moves a contraction's region into `before` of the contraction that alone reads its rows: same
/// batch and rows, all columns of the first are the k of the second. The rows then never reach the
/// arena. The same for rows of Winograd's tiles that are to be made by rows.
void chain_contractions(const FlatGraph& graph, const FusionPolicy& policy, Regions& regions);

}  // namespace rlx::plan
