// Loops on the CPU: iterations run the body's steps on addresses that change, and allocate nothing.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/executable.hpp"

namespace rlx::cpu {

CpuExecutable::BoundLoop CpuExecutable::bind_loop(const plan::LoopPlan& loop) {
  BoundLoop bound;
  for (const plan::Step& step : loop.steps) bound.steps.push_back(bind_step(step));
  bound.trip_count = position_of(loop.trip_count);
  bound.start = position_of(loop.start);
  bound.condition = position_of(loop.condition);
  bound.counter = position_of(loop.counter);
  bound.going_on = position_of(loop.going_on);
  for (const plan::LoopPlan::Carry& carry : loop.carries) {
    bound.carries.push_back(
        {position_of(carry.initial), position_of(carry.result), position_of(carry.spare)});
  }
  for (const plan::LoopPlan::Slice& slice : loop.slices)
    bound.wholes.push_back(position_of(slice.whole));
  return bound;
}

std::int64_t CpuExecutable::most_trips(const plan::LoopPlan& plan, const BoundLoop& loop) const {
  if (plan.trips >= 0) return plan.trips;
  if (plan.trip_count < 0) return std::numeric_limits<std::int64_t>::max();
  return *static_cast<const std::int64_t*>(pointers_[loop.trip_count]);
}

void CpuExecutable::set_slot(std::int32_t slot, void* address) {
  for (const std::uint32_t position : slot_positions_[static_cast<std::size_t>(slot)])
    pointers_[position] = address;
}

/// Iterations write a carry to its result and its spare in turn; where their number is known the
/// last one writes the result.
bool CpuExecutable::writes_result(const plan::LoopPlan& plan, std::int64_t step) {
  return plan.trips >= 0 ? (plan.trips - step) % 2 == 1 : step % 2 == 0;
}

void CpuExecutable::begin_iteration(const plan::LoopPlan& plan, const BoundLoop& loop,
                                    std::int64_t step) {
  *static_cast<std::int64_t*>(pointers_[loop.counter]) = step;
  for (std::size_t i = 0; i < plan.carries.size(); ++i) {
    const BoundLoop::Carry& carry = loop.carries[i];
    void* const result = pointers_[carry.result];
    void* const spare = pointers_[carry.spare];
    const bool to_result = writes_result(plan, step);
    void* const last = to_result ? spare : result;
    set_slot(plan.carries[i].read_slot, step == 0 ? pointers_[carry.initial] : last);
    set_slot(plan.carries[i].write_slot, to_result ? result : spare);
  }
  for (std::size_t i = 0; i < plan.slices.size(); ++i) {
    const plan::LoopPlan::Slice& slice = plan.slices[i];
    const std::int64_t position = slice.reversed ? plan.trips - 1 - step : step;
    set_slot(slice.slot,
             static_cast<std::byte*>(pointers_[loop.wholes[i]]) + position * slice.bytes);
  }
}

void CpuExecutable::finish_loop(const plan::LoopPlan& plan, const BoundLoop& loop,
                                std::int64_t steps) {
  if (steps > 0 && writes_result(plan, steps - 1)) return;
  for (std::size_t i = 0; i < plan.carries.size(); ++i) {
    const BoundLoop::Carry& carry = loop.carries[i];
    const auto result = static_cast<std::size_t>(plan.carries[i].result);
    std::memcpy(pointers_[carry.result], pointers_[steps == 0 ? carry.initial : carry.spare],
                static_cast<std::size_t>(this->plan().buffers[result].bytes()));
  }
}

/// One worker decides for all, between two barriers, and sets up the iteration that follows.
void CpuExecutable::lead_loop(const plan::LoopPlan& plan, BoundLoop& loop, std::int64_t step) {
  if (step == 0) {
    if (plan.going_on >= 0) *static_cast<std::uint8_t*>(pointers_[loop.going_on]) = 1;
    loop.trips = most_trips(plan, loop);
    loop.goes_on = plan.start < 0 || is_true(loop.start);
  } else {
    loop.goes_on = host_status_.ok() && !host_failure_ && !is_cancelled() &&
                   (plan.condition < 0 || is_true(loop.condition));
  }
  loop.goes_on = loop.goes_on && step < loop.trips;
  if (loop.goes_on) begin_iteration(plan, loop, step);
}

void CpuExecutable::run_loop(std::int32_t index, int worker, Team* team) {
  const plan::LoopPlan& plan = this->plan().loops[static_cast<std::size_t>(index)];
  BoundLoop& loop = loops_[static_cast<std::size_t>(index)];
  const auto wait = [team] {
    if (team) team->barrier();
  };
  for (std::int64_t step = 0;; ++step) {
    if (worker == 0) lead_loop(plan, loop, step);
    wait();
    if (!loop.goes_on) {
      if (worker == 0) finish_loop(plan, loop, step);
      return;
    }
    for (const BoundStep& each : loop.steps) {
      if (each.barrier_before) wait();
      if (each.conditions.empty() || holds(each)) run_step(each, worker, team);
    }
    wait();
  }
}

}  // namespace rlx::cpu
