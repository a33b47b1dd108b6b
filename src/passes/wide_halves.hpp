// Graphs of f16 or bf16 computed in f32.
#pragma once

#include <vector>

#include "rlx/cost.hpp"
#include "rlx/graph.hpp"

namespace rlx::passes {

/// Ops on values of `half` take and give f32 instead, without rounding in between. Inputs, params
/// and outputs keep their dtypes; so do casts to `half`, what only moves stored elements, and what
/// has a state, a body or a code of its own. Appends a claim to `claims`, where given, if anything
/// changes.
Result<Graph> wide_halves(Graph graph, DType half, std::vector<Explanation::Claim>* claims);

}  // namespace rlx::passes
