// LSTM, GRU and RNN layers: the inputs' products of all steps (a contraction), then the walk over
// the steps as one kernel, or a loop around a kernel that makes one step.
#pragma once

#include <vector>

#include "codegen/code.hpp"
#include "graph/recurrent_cell.hpp"
#include "plan/kernel_builder.hpp"

namespace rlx::plan {

/// A cell and the figures of one layer.
struct RecurrentLayout : RecurrentCell {
  std::int64_t steps = 1, batch = 1, inputs = 1, units = 1;

  std::int64_t columns() const { return gates * units; }
  /// Units of a panel of R: a register of them, half of one or less for the smallest layers.
  std::int64_t panel_width(const codegen::Target& target) const;
};

/// The layout of an LSTM, GRU or RNN for which kernels can be generated: f32, weights that are
/// constant, whole sequences, and the same functions in both directions. Errors: unsupported with
/// the reason, a part of a sentence.
Result<RecurrentLayout> recurrent_layout(const Graph& graph, const Node& node,
                                         const std::vector<bool>& weight_only);

/// Adds to a contraction over (direction, step, batch row, gate and unit) what it stores into
/// `target` [D,S,B,G*H]: the sum and the biases that the cell does not add itself.
void add_projection_epilogue(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                             std::int32_t target, loop::Contraction& contraction,
                             KernelBuffers& buffers);

/// R for the walk: [direction][gate][panel][k][panel_width].
WeightPlan packed_recurrence(const RecurrentLayout& layout, const View& r,
                             const codegen::Target& target);

/// The walk, but for where its states start: `projected` [D,S,B,G*H] and `recurrence` are plan
/// buffers, `results` those of y, h and (LSTM) c.
loop::Recurrence describe_recurrence(const RecurrentLayout& layout, const Node& node,
                                     const Locate& locate, std::int32_t projected,
                                     std::int32_t recurrence,
                                     const std::vector<std::int32_t>& results,
                                     KernelBuffers& buffers);

/// Where so many states [D,B,H] start; buffer -1: with zeros, as they are left out.
std::vector<loop::Access> starts_of_states(const Node& node, std::size_t states,
                                           const Locate& locate, KernelBuffers& buffers);

/// Writes those starts to where the states of single steps lie: `results` as above.
loop::Nest describe_start(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                          const std::vector<std::int32_t>& results, KernelBuffers& buffers);

}  // namespace rlx::plan
