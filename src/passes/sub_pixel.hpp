// Larger images without zeros between the elements of the smaller ones, and without weaving.
#pragma once

#include "passes/choose_form.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Transposed convolutions with strides, and the maps behind them, as plain ones over channels-last
/// images whose channels are the phases of the result. Phases of several axes may be computed in
/// parts, so that nothing has to be woven, and so may those of a convolution whose channels become
/// places (depth to space). All are together, and the latter are left alone, where nobody is asked
/// (null).
Result<Graph> sub_pixel(Graph graph, const ChooseForms& choose);

}  // namespace rlx::passes
