// The clock that a core runs at: it moves with what its neighbours do, and what instructions take
// moves with it. Memory and what cores share do not.
#pragma once

#include "cost/machine_model.hpp"

namespace rlx::cost {

/// GHz at which this core multiplies whole registers now, measured in about 0.1 ms. On cores that
/// do not begin two products in a cycle, or do not take four cycles for one (others than Intel's),
/// it is a multiple of that. 0: not known how to measure.
double ghz_now(codegen::Isa isa);

/// That model with the core's own figures at another clock. The same model where either clock is
/// unknown (0).
MachineModel at_clock(const MachineModel& model, double ghz);

}  // namespace rlx::cost
