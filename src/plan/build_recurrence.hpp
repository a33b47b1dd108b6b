// LSTM, GRU and RNN layers as two kernels: the inputs' products of all steps (a contraction), then
// the walk over the steps.
#pragma once

#include <optional>
#include <vector>

#include "codegen/code.hpp"
#include "graph/cell_function.hpp"
#include "plan/kernel_builder.hpp"

namespace rlx::plan {

/// What the three ops have in common, and the figures of one layer.
struct RecurrentLayout {
  enum class Cell : std::uint8_t { lstm, gru, rnn } cell = Cell::rnn;
  Direction direction = Direction::forward;
  std::int64_t directions = 1, steps = 1, batch = 1, inputs = 1, units = 1, gates = 1;
  double clip = 0;
  bool input_forget = false, linear_before_reset = false;
  std::vector<CellFunction> functions;  ///< of every direction

  std::int64_t columns() const { return gates * units; }
  /// Units of a panel of R: a register of them, half of one or less for the smallest layers.
  std::int64_t panel_width(const codegen::Target& target) const;
};

/// The layout of an LSTM, GRU or RNN for which kernels can be generated: f32, weights that are
/// constant, whole sequences, and the same functions in both directions. Nothing for other nodes.
std::optional<RecurrentLayout> recurrent_layout(const Graph& graph, const Node& node,
                                                const std::vector<bool>& weight_only);

/// Adds to a contraction over (direction, step, batch row, gate and unit) what it stores into
/// `target` [D,S,B,G*H]: the sum and the biases that the cell does not add itself.
void add_projection_epilogue(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                             std::int32_t target, loop::Contraction& contraction,
                             KernelBuffers& buffers);

/// R for the walk: [direction][gate][panel][k][panel_width].
WeightPlan packed_recurrence(const RecurrentLayout& layout, const View& r,
                             const codegen::Target& target);

/// The walk: `projected` [D,S,B,G*H] and `recurrence` are plan buffers, `results` those of y, h and
/// (LSTM) c.
loop::Recurrence describe_recurrence(const RecurrentLayout& layout, const Node& node,
                                     const Locate& locate, std::int32_t projected,
                                     std::int32_t recurrence,
                                     const std::vector<std::int32_t>& results,
                                     KernelBuffers& buffers);

}  // namespace rlx::plan
