// The work of recurrent layers: the products of every step, and the cell behind them.
#include <algorithm>
#include <cmath>

#include "cost/kernel_work.hpp"

namespace rlx::cost {

void add_recurrence(KernelWork& work, const loop::Recurrence& r, const MachineModel& model) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const double panels = std::ceil(d(r.units) / d(r.panel_width));
  const std::int64_t most = model.machine.registers == 32 ? 4 : 2;
  std::int64_t rows = std::min(r.batch, most);
  for (std::int64_t even = rows; even > 1 && r.batch > most; --even) {
    if (r.batch % even == 0) {
      rows = even;
      break;
    }
  }
  const double sides = r.directions == 2 && panels == 1 && rows <= 2 ? 2 : 1;
  const double blocks = std::ceil(d(r.batch) / d(rows));
  work.items = d(r.directions) / sides * blocks;
  const double walks = d(r.directions) * blocks * d(r.steps);
  // Products: a column of R is read once for the rows of a block.
  const double sums = d(r.gates) * d(rows);
  const double chains = sums >= 8 ? 1 : sums >= 4 ? 2 : 4;
  const double multiply = sums / model.fma_per_cycle;
  const double loads = (d(r.gates) + d(rows)) / model.loads_per_cycle;
  const double latency = model.fma_latency / chains / sides;
  const double step = std::max({multiply, loads, latency}) * model.cycle;
  work.compute += walks * panels * d(r.units) * step;
  double cell = 0, flops = 0;
  for (const ScalarNode& node : r.nodes) {
    cell += node.op == ScalarOp::load ? model.cycle : node_ns(node, r.nodes, model);
    flops += 1;
  }
  work.compute += walks * panels * d(rows) * cell;
  work.overhead += walks * (model.recurrent_step + panels * model.loop) / sides;
  work.overhead += work.items * model.item;
  work.flops += d(r.directions) * d(r.batch) * d(r.steps) * d(r.units) *
                (2 * d(r.gates) * d(r.units) + flops);
  // R is read anew at every step.
  const double r_bytes = d(r.gates) * d(r.units) * panels * d(r.panel_width) * 4;
  const double again = panel_time[1] * (walks - d(r.directions)) * r_bytes;
  if (r_bytes > 0.8 * d(model.cache_bytes[0])) {
    work.read[r_bytes > 0.7 * d(model.cache_bytes[1]) ? 2 : 1] += again;
  }
}

}  // namespace rlx::cost
