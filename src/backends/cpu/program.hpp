// What CPU programs share: with all of a session, and with their clones.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.hpp"
#include "codegen/code_library.hpp"
#include "codegen/step_kernel.hpp"
#include "cost/machine_model.hpp"
#include "plan/plan.hpp"
#include "plan/weights.hpp"

namespace rlx::cpu {

/// What all programs of a session share.
struct Shared {
  std::unique_ptr<codegen::CodeLibrary> library;
  std::unique_ptr<ThreadPool> pool;
  plan::WeightCache weights;
  cost::MachineModel model;  ///< what predicts times
};

/// What the clones of a program share.
struct Program {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<const plan::FlatGraph> graph;
  plan::Plan plan;
  std::vector<codegen::LoadedKernel> kernels;
  std::vector<std::unique_ptr<codegen::StepKernel>> step_kernels;  ///< by host call; null: none
  std::int64_t scratch_bytes = 0;                                  ///< of one worker
  int threads = 1;                                                 ///< the most that a step uses
  bool flush_subnormals = false;
  /// By buffer: the output whose bytes it shares (itself, or what it is taken over by), or -1.
  std::vector<std::int32_t> output_of_buffer;
};

}  // namespace rlx::cpu
