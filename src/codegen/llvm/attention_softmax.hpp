// The softmax of a chain's rows, without its division: the product behind it multiplies its few
// columns by one over the row's sum instead.
#pragma once

#include "codegen/llvm/chain_plan.hpp"
#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {

BodyFunction emit_softmax_rows(Emitter& emitter, const SoftmaxRows& softmax);

}  // namespace rlx::codegen
