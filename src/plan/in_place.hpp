// Which results may be written over an operand that dies in the same step.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace rlx::plan {

/// By buffer: the buffer whose bytes it takes over, or -1. Lifetimes must be set. A result takes
/// over an operand where both lie in the arena with elements of one dtype, the step is the
/// operand's last and the result's first, and every load of the operand has the access of the one
/// store of the result: then each point is read before it is written, by the worker that writes it.
/// Kernels that are not generated name the operand that they may write over.
std::vector<std::int32_t> find_in_place(const Plan& plan);

/// Lets nests store into the operand itself: the code generator then computes no point twice. The
/// result stays in the step's list, so that its life is told.
void write_in_place(Plan& plan, const std::vector<std::int32_t>& taken_over);

}  // namespace rlx::plan
