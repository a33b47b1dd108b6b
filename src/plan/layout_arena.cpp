// Lifetimes and arena offsets.
#include "plan/layout_arena.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/arena.hpp"

namespace rlx::plan {
namespace {

void touch(BufferPlan& buffer, std::int32_t step) {
  if (buffer.first_step < 0) buffer.first_step = step;
  buffer.first_step = std::min(buffer.first_step, step);
  buffer.last_step = std::max(buffer.last_step, step);
}

void set_lifetimes(Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    for (const std::int32_t buffer : plan.steps[i].buffers)
      touch(plan.buffers[static_cast<std::size_t>(buffer)], at);
    for (const Condition& condition : plan.steps[i].conditions)
      touch(plan.buffers[static_cast<std::size_t>(condition.buffer)], at);
  }
  const auto end = static_cast<std::int32_t>(plan.steps.size());
  for (const std::int32_t output : plan.outputs) {
    touch(plan.buffers[static_cast<std::size_t>(output)], end);
  }
  if (plan.error_buffer >= 0) {
    touch(plan.buffers[static_cast<std::size_t>(plan.error_buffer)], 0);
    touch(plan.buffers[static_cast<std::size_t>(plan.error_buffer)], end);
  }
}

// A step waits unless it and the one before both run on worker 0 alone.
void set_barriers(Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    plan.steps[i].barrier_before =
        i > 0 && (plan.steps[i].threads > 1 || plan.steps[i - 1].threads > 1);
  }
}

}  // namespace

void lay_out_arena(Plan& plan) {
  set_lifetimes(plan);
  set_barriers(plan);
  std::vector<Interval> intervals;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (buffer.storage != Storage::arena || buffer.first_step < 0) continue;
    intervals.push_back(
        {.bytes = buffer.bytes(), .first = buffer.first_step, .last = buffer.last_step});
    owners.push_back(i);
  }
  const ArenaPlan arena = plan_arena(intervals).value();
  for (std::size_t i = 0; i < owners.size(); ++i) plan.buffers[owners[i]].offset = arena.offsets[i];
  plan.arena_bytes = arena.bytes_total;
  plan.arena_lower_bound_bytes = arena.bytes_lower_bound;
}

}  // namespace rlx::plan
