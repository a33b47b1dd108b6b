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

std::vector<const StaticProgram*> CompiledGraph::Impl::programs() const {
  if (bound) return {&*bound};
  std::vector<const StaticProgram*> list;
  if (last_stage) {
    for (const Stage* part : last_stage->parts()) list.push_back(&part->program());
  }
  return list;
}

MemoryReport CompiledGraph::query_memory() const {
  MemoryReport all;
  for (const StaticProgram* program : impl_->programs()) {
    const plan::Plan& plan = program->executable->plan();
    all.weights_bytes += program->executable->weights_bytes();
    all.arena_bytes += plan.arena_bytes;
    all.arena_lower_bound_bytes += plan.arena_lower_bound_bytes;
    all.scratch_bytes += program->executable->scratch_bytes();
  }
  return all;
}

CompileReport CompiledGraph::report() const {
  const std::vector<const StaticProgram*> programs = impl_->programs();
  CompileReport all{.stages = std::max(static_cast<int>(programs.size()), 1)};
  for (const StaticProgram* program : programs) {
    all.compile_ms += program->report.compile_ms;
    all.kernels += program->report.kernels;
    all.generated_kernels += program->report.generated_kernels;
    all.cached_kernels += program->report.cached_kernels;
    all.threads = std::max(all.threads, program->report.threads);
  }
  return all;
}

Result<std::string> CompiledGraph::stage_text(std::string_view stage) const try {
  const std::vector<const StaticProgram*> programs = impl_->programs();
  if (stage == "hir") return print(*impl_->graph);
  if (stage != "mir" && stage != "lir")
    return error(ErrorKind::usage, "There is no stage ({}): hir, mir and lir are there.", stage);
  if (programs.empty())
    return bad_input("The stage ({}) needs bound shapes: give the dims.", stage);
  std::string text;
  for (const StaticProgram* program : programs)
    text +=
        stage == "mir" ? print(*program->mir_graph) : plan::to_text(program->executable->plan());
  return text;
} catch (...) {
  return error_in_flight();
}

namespace {

void add_profiles(const plan::Plan& plan, const codegen::Machine& machine,
                  std::vector<KernelProfile>& profiles) {
  for (const plan::Step& step : plan.steps) {
    const loop::Kernel* kernel = step.kind == plan::Step::Kind::kernel
                                     ? &plan.kernels[static_cast<std::size_t>(step.index)]
                                     : nullptr;
    profiles.push_back(
        {.name = step.name,
         .region = step.region,
         .shape = kernel ? loop::extents_text(*kernel) : std::string(),
         .threads = step.threads,
         .products = kernel && step.flops > 0 ? cost::products_together(*kernel, machine) : 1,
         .flops = step.flops,
         .bytes = step.bytes,
         .predicted_us = step.predicted_ns * 1e-3});
  }
}

}  // namespace

Result<std::vector<KernelProfile>> CompiledGraph::profile(std::span<const NamedInput> inputs,
                                                          int runs) try {
  RLX_TRY(impl_->begin_run());
  RLX_ASSIGN(const std::vector<double> times, impl_->time_steps(inputs, runs));
  const CurrentClock clock(impl_->backend->model(), impl_->programs());
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  const codegen::Machine machine = codegen::machine_of(target);
  std::vector<KernelProfile> profiles;
  const auto add = [&](const StaticProgram& program) {
    add_profiles(clock.timed(program.executable->plan()), machine, profiles);
  };
  if (impl_->bound) {
    add(*impl_->bound);
  } else {
    for (const Stage* part : impl_->last_stage->parts()) {
      add(part->program());
      for (const Stage::HostNode& node : part->host_nodes())
        profiles.push_back({.name = "host",
                            .region = node.op,
                            .bytes = node.bytes,
                            .predicted_us = node.predicted_ns * 1e-3});
    }
  }
  for (std::size_t i = 0; i < profiles.size(); ++i) profiles[i].median_us = times[i];
  return profiles;
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
