// How the code of a recurrence is cut: for its emitter, and for who predicts its time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codegen/machine.hpp"

namespace rlx::codegen {

struct RecurrencePlan {
  RecurrencePlan(const loop::Recurrence& r, const Machine& machine)
      : is_step(r.step_buffer >= 0),
        panels((r.units + r.panel_width - 1) / r.panel_width),
        rows(rows_of(r.batch, machine.registers == 32 ? 4 : 2)),
        blocks((r.batch + rows - 1) / rows),
        sides(!is_step && r.directions == 2 && panels == 1 && rows <= 2 ? 2 : 1),
        items(is_step ? r.directions * panels : r.directions / sides * blocks) {}

  /// Several sums of each product where few products would wait for each other's additions.
  static std::int64_t chains(std::int64_t products) {
    return products >= 8 ? 1 : products >= 4 ? 2 : 4;
  }

  bool is_step;         ///< of a call: it makes one step, not all
  std::int64_t panels;  ///< of units
  std::int64_t rows;    ///< of the batch that share what is read of R
  std::int64_t blocks;  ///< of so many rows, the last one of fewer
  /// Directions of one item. Short steps of both directions fill each other's waits.
  std::int64_t sides;
  std::int64_t items;  ///< work items: panels of a step, blocks of a walk

 private:
  /// As many as the registers hold products of, an even split if any.
  static std::int64_t rows_of(std::int64_t batch, std::int64_t most) {
    if (batch <= most) return batch;
    for (std::int64_t rows = most; rows > 1; --rows) {
      if (batch % rows == 0) return rows;
    }
    return most;
  }
};

}  // namespace rlx::codegen
