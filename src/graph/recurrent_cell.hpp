// The cells of LSTM, GRU and RNN layers, written once: kernels and bodies both read them as
// expressions.
#pragma once

#include <optional>
#include <vector>

#include "graph/cell_function.hpp"
#include "rlx/graph.hpp"

namespace rlx {

/// What the attributes of the three ops say.
struct RecurrentCell {
  enum class Kind : std::uint8_t { lstm, gru, rnn } kind = Kind::rnn;
  Direction direction = Direction::forward;
  std::int64_t directions = 1, gates = 1;
  double clip = 0;
  bool input_forget = false, linear_before_reset = false;
  std::vector<CellFunction> functions;  ///< of one direction after the other

  /// One, or two with the cell state.
  std::int64_t states() const { return kind == Kind::lstm ? 2 : 1; }
  /// Is the candidate's product of what the reset gate lets pass?
  bool has_late_product() const { return kind == Kind::gru && !linear_before_reset; }
};

/// The cell of an op; nothing for other ops, or attributes that its inference refuses.
std::optional<RecurrentCell> recurrent_cell(const Op& op);

/// Operands of the three ops in ONNX's order.
enum class RecurrentOperand : std::size_t { x, w, r, bias, lengths, first_h, first_c, peephole };

/// What a cell is made of at one point (row of the batch, unit).
class CellTerms {
 public:
  virtual ~CellTerms() = default;
  /// x W of a gate and its biases; without the recurrent one of a candidate that the reset gate
  /// multiplies.
  virtual ScalarValue from_input(std::int64_t gate) = 0;
  /// h R of a gate.
  virtual ScalarValue product(std::int64_t gate) = 0;
  /// `input` R of a gate, where the input is known only after other gates.
  virtual ScalarValue late_product(std::int64_t gate, ScalarValue input) = 0;
  /// Of that candidate; nothing without a bias.
  virtual std::optional<ScalarValue> recurrent_bias(std::int64_t gate) = 0;
  /// Weight of the cell state in gate i, o or f; nothing without peepholes.
  virtual std::optional<ScalarValue> peephole(std::int64_t number) = 0;
  /// h, c.
  virtual ScalarValue state(std::int64_t number) = 0;
};

/// The next values of the states.
std::vector<ScalarValue> next_states(const RecurrentCell& cell, std::int64_t direction,
                                     CellTerms& terms);

}  // namespace rlx
