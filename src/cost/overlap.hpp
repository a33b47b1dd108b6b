// How the units and streams of a core hide each other's work: figures of a kind of core, fitted to
// kernels of all kinds beside their measured times, that no calibration measures.
#pragma once

#include "cost/machine_model.hpp"

namespace rlx::cost {

/// As fitted on Zen 5, unless said otherwise.
struct Overlap {
  /// Of what the other units do beside the busiest one, the part that shows.
  double beside_busiest = 0.1;
  /// Additions' times for one more element in a maximum that keeps NaN.
  double max_steps = 2.5;
  /// Of what the busiest unit does for a window: additions may have units beside those of products.
  double window = 1;
  /// Of the time of a contraction's bytes from memory, the part that is beside its instructions.
  double far_beside = 0.4;
  /// ns of a vector of a row that does not follow its forerunner.
  double vector_start = 0.35;
  /// Of the bytes that a step shares with the one before, those that somebody waits for: between
  /// two steps of the team, and between the team and one worker.
  double of_team = 0.02, of_one = 0.05;
};

/// Cores that take a register in two steps wait for their units, less for anything else: fitted on
/// Zen 4 with AVX-512.
inline Overlap overlap_of(const MachineModel& model) {
  if (model.loads_per_cycle > 1) return {};
  return {.beside_busiest = 0,
          .max_steps = 1.9,
          .window = 0.9,
          .far_beside = 0.8,
          .vector_start = 0.1,
          .of_team = 0.07,
          .of_one = 0.1};
}

}  // namespace rlx::cost
