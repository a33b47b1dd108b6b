// Ops that only copy, as concatenations of views, which are written in place.
#pragma once

#include "passes/rewriter.hpp"

namespace rlx::passes {

/// pad by reflection, edges or wrapping = concat(view of x, x, view of x), axis by axis.
Result<bool> canonical_pad(Rewriter& rewriter, std::int32_t index, const Node& node,
                           const op::Pad& pad);

/// scatter_nd(x, the indices of a box, updates) = concat(x before, updates, x behind), axis by
/// axis.
Result<bool> canonical_scatter(Rewriter& rewriter, std::int32_t index, const Node& node,
                               const op::ScatterNd& scatter);

/// scatter_elements(x, i [n, 1, ...] broadcast along whole rows, updates) = scatter_nd(x, i [n, 1],
/// updates): sums over the neighbours of a graph move rows, not elements.
Result<bool> canonical_scatter_rows(Rewriter& rewriter, std::int32_t index, const Node& node,
                                    const op::ScatterElements& scatter);

}  // namespace rlx::passes
