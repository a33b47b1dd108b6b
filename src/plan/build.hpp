// From regions to a plan: kernels, buffers, weights, steps, arena.
#pragma once

#include <functional>

#include "codegen/code.hpp"
#include "codegen/step_kernel.hpp"
#include "cost/kernel_cost.hpp"
#include "cost/machine_model.hpp"
#include "plan/plan.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {

struct BuildOptions {
  codegen::Target target;
  cost::MachineModel model;  ///< decides the threads of the steps
  int threads = 1;           ///< at most
  FusionPolicy fusion;
  /// The work of an op that the backend has a kernel of its own for, given the types of its
  /// operands (null: left out) and results; no items where it has none. Unset: none of any.
  std::function<codegen::StepWork(const Op&, std::span<const Type* const>, std::span<const Type>)>
      step_work;
  cost::Elsewhere elsewhere;  ///< beside the plan, where it is of a part of a program
  bool is_body = false;       ///< of a loop: outputs are written where slots say
};

/// Whether the node is a grouped matmul that becomes one step. Its types are static.
bool suits_grouped_kernels(const Graph& graph, const Node& node);

/// The plan of a MIR graph whose types are all static. Errors: unsupported where an op can neither
/// be generated nor evaluated.
Result<Plan> build_plan(const FlatGraph& graph, const BuildOptions& options);

}  // namespace rlx::plan
