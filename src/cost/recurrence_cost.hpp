// Which form of a recurrent layer is predicted to be faster.
#pragma once

#include "cost/kernel_cost.hpp"

namespace rlx::cost {

/// Whether a recurrent layer's walk (a kernel whose body is a loop::Recurrence) takes longer than a
/// loop of single steps, each on the best number of threads up to `threads`. Rows of the batch
/// share what a step reads of R, and threads share R; but each step waits for the one before. False
/// where single steps cannot be generated.
bool pays_in_steps(const loop::Kernel& walk, const MachineModel& model, int threads);

/// Whether several workers make a layer faster through its body, where products of h and R are
/// shared out as any other: a single step of a long R, and directions with an R (bytes of one
/// direction) that one core's L2 does not hold, of which the body takes one after the other.
bool pays_as_products(std::int64_t steps, std::int64_t directions, std::int64_t r_bytes,
                      const MachineModel& model);

}  // namespace rlx::cost
