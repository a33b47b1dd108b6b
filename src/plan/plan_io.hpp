// The IO profile of a plan: exact launches, syncs and bytes.
#pragma once

#include "plan/plan.hpp"
#include "rlx/cost.hpp"

namespace rlx::plan {

/// Every step is a launch, a host call also a sync point, each as often as the loop around it goes
/// round; traffic is what the steps touch, host output the bytes of the output buffers. Saturates.
GraphIoProfile profile_plan_io(const Plan& plan);

}  // namespace rlx::plan
