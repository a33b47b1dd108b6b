// Lifetimes and arena offsets.
#include "plan/layout_arena.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "plan/arena.hpp"
#include "plan/in_place.hpp"

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

bool has_interval(const BufferPlan& buffer) {
  return buffer.storage == Storage::arena && buffer.first_step >= 0 && buffer.within < 0;
}

std::vector<std::size_t> by_first_step(const Plan& plan) {
  std::vector<std::size_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return plan.buffers[i].first_step; });
  return order;
}

}  // namespace

void lay_out_arena(Plan& plan, int threads) {
  set_lifetimes(plan);
  // A buffer that takes over another's bytes lies where that one lies: one interval for both.
  const std::vector<std::int32_t> taken_over = find_in_place(plan);
  write_in_place(plan, taken_over);
  std::vector<std::size_t> holder(plan.buffers.size());
  std::vector<std::int32_t> last(plan.buffers.size());
  for (std::size_t i = 0; i < holder.size(); ++i) {
    holder[i] = i;
    last[i] = plan.buffers[i].last_step;
  }
  for (const std::size_t i : by_first_step(plan)) {
    plan.buffers[i].takes_over = taken_over[i];
    if (taken_over[i] < 0) continue;
    holder[i] = holder[static_cast<std::size_t>(taken_over[i])];
    last[holder[i]] = plan.buffers[i].last_step;
  }
  std::vector<Interval> intervals;
  std::vector<std::size_t> interval_of(plan.buffers.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (!has_interval(buffer) || holder[i] != i) continue;
    interval_of[i] = intervals.size();
    intervals.push_back({.bytes = buffer.bytes(), .first = buffer.first_step, .last = last[i]});
  }
  ArenaPlan arena = plan_arena(intervals).value();
  if (threads > 1) align_middles(intervals, arena);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (has_interval(plan.buffers[i]))
      plan.buffers[i].offset = arena.offsets[interval_of[holder[i]]];
  }
  // Buffers of loops lie where their body's plan put them, inside the bytes set apart for it.
  for (BufferPlan& buffer : plan.buffers) {
    if (buffer.within >= 0)
      buffer.offset += plan.buffers[static_cast<std::size_t>(buffer.within)].offset;
  }
  plan.arena_bytes = arena.bytes_total;
  plan.arena_lower_bound_bytes = arena.bytes_lower_bound;
}

}  // namespace rlx::plan
