// Lifetimes and arena offsets of a plan's buffers.
#pragma once

#include "plan/plan.hpp"

namespace rlx::plan {

/// Sets first_step, last_step and offset of every arena buffer, the arena's size and its lower
/// bound. `threads`: that may share steps.
void lay_out_arena(Plan& plan, int threads = 1);

}  // namespace rlx::plan
