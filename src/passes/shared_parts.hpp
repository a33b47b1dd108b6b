// Products over a concatenation of which some parts are the same in many rows.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// conv(concat(x, broadcast(g)), w) = conv(x, w of x) + conv(g, w of g), for f32 convolutions of
/// single places [N, C, ..] and matrix products by weights: what is broadcast along rows is
/// multiplied once. Changes the order of sums.
Result<Graph> shared_parts(Graph graph);

}  // namespace rlx::passes
