// Is it harmless to pad a graph's inputs along a symbol's axes?
#pragma once

#include <string>

#include "passes/passes.hpp"
#include "rlx/graph.hpp"

namespace rlx {

/// Shows that row i of every output depends on row i (and on rows before it, in running sums) of
/// the inputs alone, whatever the symbol's value: by following the symbol's axis from the inputs
/// through primitives, in the graph specialised for two sizes. Errors: bad_input that names what
/// mixes rows or is not known not to.
Status check_rows_are_independent(const Graph& graph, const std::string& symbol,
                                  const passes::Bindings& others);

}  // namespace rlx
