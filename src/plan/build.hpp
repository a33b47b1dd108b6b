// From regions to a plan: kernels, buffers, weights, steps, arena.
#pragma once

#include "codegen/code.hpp"
#include "cost/machine_model.hpp"
#include "plan/plan.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

struct BuildOptions {
  codegen::Target target;
  cost::MachineModel model;  ///< decides the threads of the steps
  int threads = 1;           ///< at most
  FusionPolicy fusion;
  bool is_body = false;  ///< of a loop: outputs are written where slots say
};

/// The plan of a MIR graph whose types are all static. Errors: unsupported where an op can neither
/// be generated nor evaluated.
Result<Plan> build_plan(const FlatGraph& graph, const BuildOptions& options);

}  // namespace rlx::plan
