// The text of a plan.
#include <fmt/format.h>

#include "plan/plan.hpp"

namespace rlx::plan {
namespace {

std::string buffer_line(std::size_t index, const BufferPlan& buffer) {
  constexpr std::string_view storages[] = {"arena", "input", "weight", "state", "slot", "worker"};
  std::string line = fmt::format("buffer {} {}[{}] {}", index, name_of(buffer.dtype),
                                 buffer.elements, storages[static_cast<int>(buffer.storage)]);
  if (buffer.storage == Storage::arena) {
    line +=
        fmt::format(" offset={} life={}..{}", buffer.offset, buffer.first_step, buffer.last_step);
  } else {
    line += fmt::format(" {}", buffer.index);
  }
  return line + " \"" + buffer.name + "\"\n";
}

std::string weight_line(std::size_t index, const WeightPlan& weight) {
  std::string line =
      fmt::format("weight {} {} of %{} offset={} dims=[{}] strides=[{}]", index,
                  name_of(weight.dtype), weight.view.base.node, weight.view.offset,
                  fmt::join(weight.view.dims, ","), fmt::join(weight.view.strides, ","));
  if (weight.packed)
    line += fmt::format(" packed n={} k={} panel={}", weight.layout.n, weight.layout.k,
                        weight.layout.panel_width);
  if (weight.layout.nibbles) line += " of nibbles";
  if (weight.layout.group > 1)
    line += fmt::format(" groups of {} in {}", weight.layout.group, weight.layout.inner);
  if (weight.from) line += fmt::format(" from {}", name_of(*weight.from));
  return line + "\n";
}

constexpr std::string_view name_of(Step::Kind kind) {
  constexpr std::string_view names[] = {"kernel", "host", "loop", "experts"};
  return names[static_cast<std::size_t>(kind)];
}

std::string grouped_line(std::size_t index, const GroupedPlan& grouped) {
  std::string line = fmt::format(
      "experts {} of {} rows={} k={} n={} shared={} layer={} x={} w={} chosen={} result={} "
      "heights=[",
      index, grouped.experts, grouped.rows, grouped.depth, grouped.columns, grouped.rows_per_source,
      grouped.layer, grouped.x, grouped.w, grouped.chosen, grouped.result);
  for (const GroupedPlan::Height& height : grouped.heights)
    line += fmt::format(" {}:{}", height.rows, height.kernel);
  return line + " ]\n";
}

std::string step_line(std::size_t index, const Step& step) {
  std::string line =
      fmt::format("step {} {} {} buffers=[{}] threads={} barrier={} region={}", index,
                  name_of(step.kind), step.index, fmt::join(step.buffers, ","), step.threads,
                  step.barrier_before ? 1 : 0, step.region);
  for (const Condition& condition : step.conditions) {
    line += fmt::format(" if={}{}", condition.holds_if ? "" : "!", condition.buffer);
  }
  return line + "\n";
}

std::string loop_text(std::size_t index, const LoopPlan& loop) {
  std::string text =
      fmt::format("loop {} trips={} trip_count={} start={} condition={} counter={}\n", index,
                  loop.trips, loop.trip_count, loop.start, loop.condition, loop.counter);
  for (const LoopPlan::Carry& carry : loop.carries) {
    text +=
        fmt::format("  carry initial={} result={} spare={} read_slot={} write_slot={}\n",
                    carry.initial, carry.result, carry.spare, carry.read_slot, carry.write_slot);
  }
  for (const LoopPlan::Slice& slice : loop.slices) {
    text += fmt::format("  slice whole={} slot={} bytes={}{}\n", slice.whole, slice.slot,
                        slice.bytes, slice.reversed ? " reversed" : "");
  }
  for (std::size_t i = 0; i < loop.steps.size(); ++i) text += "  " + step_line(i, loop.steps[i]);
  return text;
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("rlx plan 1\narena {} bytes, lower bound {}\n", plan.arena_bytes,
                                 plan.arena_lower_bound_bytes);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) text += buffer_line(i, plan.buffers[i]);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) text += weight_line(i, plan.weights[i]);
  text += fmt::format("inputs [{}] outputs [{}]\n", fmt::join(plan.inputs, ","),
                      fmt::join(plan.outputs, ","));
  for (std::size_t i = 0; i < plan.steps.size(); ++i) text += step_line(i, plan.steps[i]);
  for (std::size_t i = 0; i < plan.loops.size(); ++i) text += loop_text(i, plan.loops[i]);
  for (std::size_t i = 0; i < plan.grouped.size(); ++i) text += grouped_line(i, plan.grouped[i]);
  for (std::size_t i = 0; i < plan.host_calls.size(); ++i) {
    text += fmt::format("host {} {} inputs=[{}] outputs=[{}]\n", i, plan.host_calls[i].op.name(),
                        fmt::join(plan.host_calls[i].inputs, ","),
                        fmt::join(plan.host_calls[i].outputs, ","));
  }
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    text += fmt::format("kernel {}\n{}", i, loop::to_text(plan.kernels[i]));
  return text;
}

}  // namespace rlx::plan
