// The clock that a core runs at: it moves with what its neighbours do and with what it does itself,
// and what instructions take moves with it. Memory and what cores share do not.
#pragma once

#include "cost/machine_model.hpp"

namespace rlx::cost {

/// Clocks of a core, in GHz; 0: not known how to measure.
struct Clocks {
  double light = 0;  ///< between other work
  /// While products of whole registers with operands from L1 keep it busy, for which hosts have
  /// less than the full clock where others use their power.
  double heavy = 0;

  /// Of a program that makes that share of the products that its cores' units could make.
  double of(double product_share) const;
};

/// Those of this core now, measured in about 10 ms. On cores that do not take four cycles for a
/// product (others than Intel's), they are multiples of that.
Clocks clocks_now(codegen::Isa isa);

/// The clock that the work before has left this core with, in GHz; 0: not known how to measure.
/// Looks for 0.05 ms; hosts give back what heavy work took away some ms later.
double clock_left(codegen::Isa isa);

/// That model with the core's own figures at another clock. The same model where either clock is
/// unknown (0).
MachineModel at_clock(const MachineModel& model, double ghz);

}  // namespace rlx::cost
