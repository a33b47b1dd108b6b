// Reductions of whole images, row by row.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Reductions over several axes of values whose last axis is kept (the channels'), as reductions of
/// their rows and then of what these gave: workers that share out the rows of an image read what
/// they wrote. Only of large images. Sums add in another order. `workers`: so many share a kernel;
/// nothing changes for one. docs/adr/0055, 0064.
Result<Graph> sums_of_rows(Graph graph, int workers);

}  // namespace rlx::passes
