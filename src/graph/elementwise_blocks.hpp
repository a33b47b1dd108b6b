// Elementwise expressions on f32 and small integers, a block of elements at a time.
#pragma once

#include <span>

#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"

namespace rlx {

/// Evaluates the expression at every point of args.out(0), operands broadcast; load k reads the
/// k-th operand that is there. False where it holds a dtype or an op that is not known here.
/// Results are those of apply_scalar, bit by bit but for the bits of NaNs.
bool evaluate_in_blocks(std::span<const ScalarNode> nodes, ScalarId result, const EvalArgs& args);

}  // namespace rlx
