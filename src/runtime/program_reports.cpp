// What a program tells of itself: memory, text of its stages, times of its kernels.
#include <algorithm>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "codegen/host_target.hpp"
#include "codegen/machine.hpp"
#include "cost/kernel_cost.hpp"
#include "runtime/compiled_graph.hpp"
#include "runtime/current_clock.hpp"

namespace rlx {
namespace {
const StaticProgram* current_program(const CompiledGraph::Impl& impl) {
  if (impl.bound) return &*impl.bound;
  return impl.last_stage ? &impl.last_stage->program() : nullptr;
}
}  // namespace

MemoryReport CompiledGraph::query_memory() const {
  const StaticProgram* program = current_program(*impl_);
  if (!program) return {};
  const plan::Plan& plan = program->executable->plan();
  return {program->executable->weights_bytes(), plan.arena_bytes, plan.arena_lower_bound_bytes,
          program->executable->scratch_bytes()};
}

const CompileReport& CompiledGraph::report() const {
  static const CompileReport none;
  const StaticProgram* program = current_program(*impl_);
  return program ? program->report : none;
}

Result<std::string> CompiledGraph::stage_text(std::string_view stage) const try {
  const StaticProgram* program = current_program(*impl_);
  if (stage == "hir") return print(*impl_->graph);
  if (stage != "mir" && stage != "lir")
    return error(ErrorKind::usage, "There is no stage ({}): hir, mir and lir are there.", stage);
  if (!program) return bad_input("The stage ({}) needs bound shapes: give the dims.", stage);
  if (stage == "mir") return print(*program->mir_graph);
  return plan::to_text(program->executable->plan());
} catch (...) {
  return error_in_flight();
}

Result<std::vector<KernelProfile>> CompiledGraph::profile(int runs) try {
  RLX_ASSIGN(StaticProgram* const program, impl_->need_bound());
  RLX_TRY(impl_->begin_run());
  if (std::any_of(impl_->slots.begin(), impl_->slots.end(),
                  [](const void* slot) { return !slot; })) {
    return bad_input("Profiling needs a run before, with named inputs.");
  }
  RLX_ASSIGN(const std::vector<double> times, program->executable->time_steps(impl_->slots, runs));
  std::vector<KernelProfile> profiles;
  const plan::Plan plan = CurrentClock(impl_->backend->model()).timed(program->executable->plan());
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  const codegen::Machine machine = codegen::machine_of(target);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    const loop::Kernel* kernel = step.kind == plan::Step::Kind::kernel
                                     ? &plan.kernels[static_cast<std::size_t>(step.index)]
                                     : nullptr;
    profiles.push_back(
        {.name = step.name,
         .region = step.region,
         .shape = kernel ? loop::extents_text(*kernel) : std::string(),
         .threads = step.threads,
         .median_us = times[i],
         .products = kernel && step.flops > 0 ? cost::products_together(*kernel, machine) : 1,
         .flops = step.flops,
         .bytes = step.bytes,
         .predicted_us = step.predicted_ns * 1e-3});
  }
  return profiles;
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
