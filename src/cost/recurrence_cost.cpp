// The work of recurrent layers: the products of every step, and the cell behind them.
#include "cost/recurrence_cost.hpp"

#include <algorithm>
#include <cmath>

#include "codegen/llvm/recurrence_plan.hpp"
#include "cost/kernel_work.hpp"
#include "cost/touched.hpp"

namespace rlx::cost {
namespace {

/// Where a step finds its data: what is left of R since the step before, all else near.
std::vector<Residency> residencies_of_step(const loop::Kernel& step, const MachineModel& team) {
  const auto& r = std::get<loop::Recurrence>(step.body);
  std::vector<Residency> found(step.buffers.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double bytes = touched_bytes(step, i);
    const bool is_r = static_cast<std::int32_t>(i) == r.r_buffer;
    add_found(found[i], is_r ? bytes : 0, bytes, team, 0);
  }
  return found;
}

}  // namespace

bool pays_in_steps(const loop::Kernel& walk, const MachineModel& model, int threads) {
  loop::Kernel step = walk;
  auto& r = std::get<loop::Recurrence>(step.body);
  if (r.steps == 1 || r.late_input >= 0) return false;
  r.step_buffer = static_cast<std::int32_t>(step.buffers.size());
  step.buffers.push_back({i64, 1, false});
  double one_walk = HUGE_VAL, one_step = HUGE_VAL;
  for (int workers = 1; workers <= std::max(threads, 1); ++workers) {
    one_walk = std::min(one_walk, predict(walk, {}, model, workers).ns);
    const double waits = workers > 1 ? loop_barriers * model.barrier : 0;
    const auto found = residencies_of_step(step, with_caches_of_team(model, workers));
    const double ns = predict(step, found, model, workers).ns;
    one_step = std::min(one_step, ns + model.loop_trip + waits);
  }
  constexpr double least_gain = 1.25;  // barriers take what the host makes of them
  return least_gain * one_step * static_cast<double>(r.steps) < one_walk;
}

bool pays_as_products(std::int64_t steps, std::int64_t directions, std::int64_t r_bytes,
                      const MachineModel& model) {
  constexpr std::int64_t worth_sharing = 512 * 1024;
  if (steps == 1) return r_bytes >= worth_sharing;
  const double room = static_cast<double>(model.cache_bytes[1]) * model.overlap.room[1];
  return directions > 1 && static_cast<double>(r_bytes) > room;
}

void add_recurrence(KernelWork& work, const loop::Recurrence& r, const MachineModel& model) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const codegen::RecurrencePlan plan(r, model.machine);
  const double panels = d(plan.panels), rows = d(plan.rows), sides = d(plan.sides);
  const double steps = plan.is_step ? 1 : d(r.steps);
  const double walks = d(r.directions) * d(plan.blocks) * steps;
  work.items = Items(plan.items);
  // Products: a column of R is read once for the rows of a block.
  const std::int64_t products = r.gates * plan.rows;
  const double sums = d(products), chains = d(codegen::RecurrencePlan::chains(products));
  const double multiply = sums / model.fma_per_cycle;
  const double loads = (d(r.gates) + rows) / model.loads_per_cycle;
  const double latency = model.fma_latency / chains / sides;
  const double step = std::max({multiply, loads, latency}) * model.cycle;
  work.compute += walks * panels * d(r.units) * step;
  double cell = 0, flops = 0;
  for (const ScalarNode& node : r.nodes) {
    cell += node.op == ScalarOp::load ? model.cycle : node_ns(node, r.nodes, model);
    flops += 1;
  }
  work.compute += walks * panels * rows * cell;
  work.overhead +=
      walks * ((plan.is_step ? 0 : model.recurrent_step) + panels * model.loop) / sides;
  work.overhead += d(plan.items) * model.item;
  work.flops +=
      d(r.directions) * d(r.batch) * steps * d(r.units) * (2 * d(r.gates) * d(r.units) + flops);
  if (plan.is_step) return;
  // R is read anew at every step.
  const double r_bytes = d(r.gates) * d(r.units) * panels * d(r.panel_width) * 4;
  if (r_bytes <= 0.8 * d(model.cache_bytes[0])) return;
  Residency found;
  add_found(found, r_bytes, (walks - d(r.directions)) * r_bytes, model,
            r_bytes > 0.7 * d(model.cache_bytes[1]) ? 2 : 1);
  for (std::size_t level = 1; level < level_count; ++level)
    work.read[level] += model.overlap.recurrent[level] * found.bytes[level];
}

}  // namespace rlx::cost
