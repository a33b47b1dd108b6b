// Transposed convolutions without zeros between the elements of their operand.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Transposed convolutions with strides, and the maps behind them, as plain ones over channels-last
/// images whose channels are the phases of the result.
Result<Graph> sub_pixel(Graph graph);

}  // namespace rlx::passes
