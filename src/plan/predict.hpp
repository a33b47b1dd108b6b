// Predicted times of a plan: where each step's data lies when it starts, what the step takes on
// every number of threads, and which number is best.
#pragma once

#include "cost/kernel_cost.hpp"
#include "plan/plan.hpp"

namespace rlx::plan {

/// Bytes of each buffer of each step by the level that they come from, when the plan runs again and
/// again: result[step][i] is that of steps[step].buffers[i].
std::vector<std::vector<cost::Residency>> residencies(const Plan& plan,
                                                      const cost::MachineModel& model);

/// Sets the number of threads of every step, 1 to `most`, so that the whole run is predicted to
/// take least time, and the predicted times of steps and plan. Barriers follow from the threads.
void choose_threads(Plan& plan, const cost::MachineModel& model, int most);

/// The predicted times for the numbers of threads that the plan has.
void predict_times(Plan& plan, const cost::MachineModel& model);

}  // namespace rlx::plan
