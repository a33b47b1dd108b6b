// The plan of a program as an Explanation: plain data that the command prints.
#include <algorithm>

#include "base/error.hpp"
#include "plan/plan_io.hpp"
#include "rlx/cost.hpp"
#include "runtime/compiled_graph.hpp"
#include "runtime/current_clock.hpp"

namespace rlx {
namespace {

std::string_view storage_name(plan::Storage storage) {
  switch (storage) {
    case plan::Storage::arena: return "arena";
    case plan::Storage::input: return "input";
    case plan::Storage::weight: return "weight";
    case plan::Storage::state: return "state";
    case plan::Storage::slot: return "slot";
    case plan::Storage::worker: return "worker";
  }
  return "";
}

Explanation::Buffer explain_buffer(const plan::BufferPlan& buffer) {
  return {.name = buffer.name,
          .dtype = std::string(name_of(buffer.dtype)),
          .storage = std::string(storage_name(buffer.storage)),
          .bytes = buffer.bytes(),
          .offset = buffer.offset,
          .first_kernel = buffer.first_step,
          .last_kernel = buffer.last_step};
}

/// What a generated kernel reads and writes. One that writes over a dying operand has its result's
/// buffer, whose life starts here, at the operand's place.
void note_buffers(const plan::Plan& plan, const plan::Step& step, std::int32_t index,
                  Explanation::Kernel& kernel) {
  const loop::Kernel& code = plan.kernels[static_cast<std::size_t>(step.index)];
  const auto at = [&](std::int32_t buffer) -> const plan::BufferPlan& {
    return plan.buffers[static_cast<std::size_t>(buffer)];
  };
  const auto starts_here = [&](const plan::BufferPlan& buffer) {
    return buffer.storage == plan::Storage::arena && buffer.first_step == index;
  };
  for (std::size_t i = 0; i < step.buffers.size(); ++i) {
    const plan::BufferPlan& buffer = at(step.buffers[i]);
    const bool in_place =
        std::any_of(step.buffers.begin(), step.buffers.end(), [&](std::int32_t other) {
          return other != step.buffers[i] && starts_here(at(other)) &&
                 buffer.storage == plan::Storage::arena && at(other).offset == buffer.offset;
        });
    const bool written = starts_here(buffer) || (code.buffers[i].written && !in_place);
    (written ? kernel.writes : kernel.reads).push_back(step.buffers[i]);
  }
}

constexpr std::int32_t inside_a_loop = -2;  // where lives of buffers begin with the loop's

/// `index`: of the plan's steps.
Explanation::Kernel explain_step(const plan::Plan& plan, const plan::Step& step,
                                 std::int32_t index) {
  Explanation::Kernel kernel{.name = step.name,
                             .region = step.region,
                             .threads = step.threads,
                             .flops = step.flops,
                             .bytes = step.bytes,
                             .predicted_us = step.predicted_ns * 1e-3,
                             .bound = step.bound};
  const auto note = [](std::vector<int>& list, std::int32_t buffer) {
    if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
  };
  if (step.kind == plan::Step::Kind::host) {
    const plan::HostCall& call = plan.host_calls[static_cast<std::size_t>(step.index)];
    for (const std::int32_t buffer : call.inputs) {
      if (buffer >= 0) note(kernel.reads, buffer);
    }
    for (const std::int32_t buffer : call.outputs) note(kernel.writes, buffer);
    kernel.reason =
        call.work.items > 0
            ? "a kernel of the device's own"
            : "no generated kernel takes this op: its reference evaluation runs on one thread";
    return kernel;
  }
  if (step.kind == plan::Step::Kind::loop) {
    const plan::LoopPlan& loop = plan.loops[static_cast<std::size_t>(step.index)];
    for (const plan::LoopPlan::Carry& carry : loop.carries) {
      note(kernel.reads, carry.initial);
      note(kernel.writes, carry.result);
    }
    for (const plan::LoopPlan::Slice& slice : loop.slices)
      note(slice.written ? kernel.writes : kernel.reads, slice.whole);
    kernel.reason = fmt::format("a loop of ({}) steps", loop.steps.size());
    kernel.assumes_iterations = loop.trips < 0;
    kernel.iterations = plan::iterations_of(loop);
    for (const plan::Step& inner : loop.steps)
      kernel.inside.push_back(explain_step(plan, inner, inside_a_loop));
    return kernel;
  }
  if (step.kind == plan::Step::Kind::experts) {
    const plan::GroupedPlan& grouped = plan.grouped[static_cast<std::size_t>(step.index)];
    for (const std::int32_t buffer : {grouped.x, grouped.w, grouped.chosen})
      note(kernel.reads, buffer);
    note(kernel.writes, grouped.result);
    kernel.reason =
        fmt::format("rows put together by expert, generated kernels for up to ({}) rows",
                    grouped.heights.front().rows);
    return kernel;
  }
  note_buffers(plan, step, index, kernel);
  kernel.reason = "generated";
  return kernel;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void move_buffers(Explanation::Kernel& kernel, int by) {
  for (std::vector<int>* list : {&kernel.reads, &kernel.writes}) {
    for (int& buffer : *list) buffer += by;
  }
  for (Explanation::Kernel& inner : kernel.inside) move_buffers(inner, by);
}

/// Kernels and buffers behind those of the parts before. Parts keep their memory to themselves: it
/// lies behind that of the parts before.
void add_part(const StaticProgram& program, const CurrentClock& clock, Explanation& all) {
  const plan::Plan plan = clock.timed(program.executable->plan());
  const auto first_buffer = static_cast<int>(all.buffers.size());
  const auto first_kernel = static_cast<int>(all.kernels.size());
  for (const plan::BufferPlan& buffer : plan.buffers) {
    Explanation::Buffer shown = explain_buffer(buffer);
    if (shown.first_kernel >= 0) shown.first_kernel += first_kernel;
    if (shown.last_kernel >= 0) shown.last_kernel += first_kernel;
    if (buffer.storage == plan::Storage::arena) shown.offset += all.memory.arena_bytes;
    all.buffers.push_back(std::move(shown));
  }
  if (plan.error_buffer >= 0)
    all.buffers[static_cast<std::size_t>(first_buffer + plan.error_buffer)].storage = "flag";
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Explanation::Kernel kernel = explain_step(plan, plan.steps[i], static_cast<std::int32_t>(i));
    move_buffers(kernel, first_buffer);
    all.kernels.push_back(std::move(kernel));
  }
  all.predicted_ms += plan.predicted_ns * 1e-6;
  append(all.questions, program.questions);
  append(all.questions, plan.questions);
  all.planning_ms += plan.planning_ms;
  append(all.claims, program.claims);
  all.static_io = all.static_io + profile_graph_io(*program.hir_graph);
  all.planned_io = all.planned_io + plan::profile_plan_io(plan);
  all.memory.arena_bytes += plan.arena_bytes;
}

/// What is evaluated between two parts.
void add_host_node(const Stage::HostNode& node, Explanation& all) {
  all.kernels.push_back({.name = "host",
                         .region = node.op,
                         .bytes = node.bytes,
                         .predicted_us = node.predicted_ns * 1e-3,
                         .bound = "launch",
                         .reason = "the data decides its dims: its reference evaluation runs "
                                   "between two parts of the program"});
  all.predicted_ms += node.predicted_ns * 1e-6;
  all.planned_io = all.planned_io + GraphIoProfile{1, 1, 0, static_cast<std::int64_t>(node.bytes)};
}

}  // namespace

GraphIoProfile profile_plan_io(const CompiledGraph& program) {
  const Result<Explanation> explanation = program.explain();
  return explanation.ok() ? explanation->planned_io : GraphIoProfile();
}

Result<Explanation> CompiledGraph::explain() const {
  if (!impl_->bound && !impl_->last_stage)
    return bad_input("An explanation needs bound shapes: give the dims, or run the program once.");
  Explanation explanation;
  const CurrentClock clock(impl_->backend->model(), impl_->programs());
  explanation.clock_ghz = clock.ghz();
  if (impl_->bound) {
    add_part(*impl_->bound, clock, explanation);
  } else {
    for (const Stage* part : impl_->last_stage->parts()) {
      add_part(part->program(), clock, explanation);
      for (const Stage::HostNode& node : part->host_nodes()) add_host_node(node, explanation);
    }
  }
  explanation.memory = query_memory();
  if (impl_->choice) {
    explanation.devices = *impl_->choice;
  } else {
    RLX_ASSIGN(explanation.devices,
               choose_device(*impl_->programs().front()->hir_graph, impl_->session->policy()));
  }
  // The plan tells more than the graph did when the device was chosen.
  for (DeviceChoice::Candidate& candidate : explanation.devices.candidates) {
    if (candidate.device == explanation.devices.device)
      candidate.predicted_ns = explanation.predicted_ms * 1e6;
  }
  return explanation;
}

}  // namespace rlx
