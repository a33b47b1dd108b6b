// Short loops for the few scalar ops that whole weights go through when they are quantised.
#pragma once

#include "graph/op_info.hpp"
#include "graph/scalar.hpp"

namespace rlx {

/// Evaluates the one op `node` over args, to the bit as apply_scalar does: abs, round and products
/// of f32, casts between f32 and i8. False where it is another op, or other dims than those of the
/// first operand and a second one that is a run of its values, each repeated.
bool evaluate_plain(const ScalarNode& node, const EvalArgs& args);

}  // namespace rlx
