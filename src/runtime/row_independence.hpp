// Is it harmless to pad a graph's inputs along a symbol's axes?
#pragma once

#include <string>

#include "passes/passes.hpp"
#include "rlx/graph.hpp"

namespace rlx {

/// Shows that row i of every output depends on row i (and on rows before it, in running sums) of
/// the inputs alone, whatever the symbol's value up to `largest`: by following the symbol's axis
/// from the inputs through primitives, in the graph specialised for three sizes, the largest among
/// them, which must agree on all that rows do not reach. Errors: bad_input that names what mixes
/// rows or is not known not to, or what depends on the symbol's value.
Status check_rows_are_independent(const Graph& graph, const std::string& symbol,
                                  std::int64_t largest, const passes::Bindings& others);

}  // namespace rlx
