// Which form of a recurrent layer is predicted to be faster.
#pragma once

#include "cost/kernel_cost.hpp"

namespace rlx::cost {

/// Whether a recurrent layer's walk (a kernel whose body is a loop::Recurrence) takes longer than a
/// loop of single steps, each on the best number of threads up to `threads`. Rows of the batch
/// share what a step reads of R, and threads share R; but each step waits for the one before. False
/// where single steps cannot be generated.
bool pays_in_steps(const loop::Kernel& walk, const MachineModel& model, int threads);

}  // namespace rlx::cost
