// The equations of recurrent cells.
#include "graph/recurrent_cell.hpp"

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

template <class A>
bool set_functions(RecurrentCell& cell, const A& a, std::string_view name,
                   const std::vector<std::string>& defaults) {
  auto functions = cell_functions(name, {a.direction, a.activations, a.alphas, a.betas}, defaults);
  if (!functions.ok()) return false;
  cell.direction = a.direction;
  cell.directions = direction_count(a.direction);
  cell.clip = a.clip;
  cell.functions = *std::move(functions);
  return true;
}

class CellEquations {
 public:
  CellEquations(const RecurrentCell& cell, std::int64_t direction, CellTerms& terms)
      : cell_(cell),
        terms_(terms),
        functions_(cell.functions.data() +
                   direction * static_cast<std::int64_t>(cell.functions.size()) / cell.directions) {
  }

  // i, o, f = f(x W + h R + P c + b); c' = f c + i g(...); h' = o h(c'). Peepholes: i and f see c,
  // o sees c'.
  std::vector<ScalarValue> lstm() {
    const ScalarValue c = terms_.state(1);
    const ScalarValue in = function(0, seeing(0, c));
    const ScalarValue keep = cell_.input_forget ? 1.0 - in : function(0, seeing(2, c));
    const ScalarValue next = keep * c + in * function(1, gate(3));
    const ScalarValue out = function(0, seeing(1, next));
    return {out * functions_[2](next), next};
  }

  // z, r = f(x W + h R + b); n = g(x W + (r h) R + b), or g(x W + r (h R + b));
  // h' = (1 - z) n + z h
  std::vector<ScalarValue> gru() {
    const ScalarValue h = terms_.state(0), reset = function(0, gate(1));
    ScalarValue recurrent;
    if (cell_.linear_before_reset) {
      recurrent = terms_.product(2);
      if (const auto bias = terms_.recurrent_bias(2)) recurrent = recurrent + *bias;
      recurrent = reset * recurrent;
    } else {
      recurrent = terms_.late_product(2, reset * h);
    }
    const ScalarValue candidate = function(1, terms_.from_input(2) + recurrent),
                      z = function(0, gate(0));
    return {(1.0 - z) * candidate + z * h};
  }

  // h' = f(x W + h R + b)
  std::vector<ScalarValue> rnn() { return {function(0, gate(0))}; }

 private:
  ScalarValue function(std::size_t number, ScalarValue sum) {
    if (cell_.clip > 0) sum = scalar::min(scalar::max(sum, -cell_.clip), cell_.clip);
    return functions_[number](sum);
  }
  ScalarValue gate(std::int64_t number) {
    return terms_.from_input(number) + terms_.product(number);
  }
  ScalarValue seeing(std::int64_t number, ScalarValue c) {
    const auto weight = terms_.peephole(number);
    return weight ? gate(number) + *weight * c : gate(number);
  }

  const RecurrentCell& cell_;
  CellTerms& terms_;
  const CellFunction* functions_;
};

}  // namespace

std::optional<RecurrentCell> recurrent_cell(const Op& op) {
  using Kind = RecurrentCell::Kind;
  RecurrentCell cell;
  bool known = false;
  if (const auto* lstm = op.as<op::Lstm>()) {
    cell.kind = Kind::lstm;
    cell.gates = 4;
    cell.input_forget = lstm->input_forget;
    known = set_functions(cell, *lstm, op.name(), {"sigmoid", "tanh", "tanh"});
  } else if (const auto* gru = op.as<op::Gru>()) {
    cell.kind = Kind::gru;
    cell.gates = 3;
    cell.linear_before_reset = gru->linear_before_reset;
    known = set_functions(cell, *gru, op.name(), {"sigmoid", "tanh"});
  } else if (const auto* rnn = op.as<op::Rnn>()) {
    known = set_functions(cell, *rnn, op.name(), {"tanh"});
  }
  return known ? std::optional(std::move(cell)) : std::nullopt;
}

std::vector<ScalarValue> next_states(const RecurrentCell& cell, std::int64_t direction,
                                     CellTerms& terms) {
  CellEquations equations(cell, direction, terms);
  switch (cell.kind) {
    case RecurrentCell::Kind::lstm: return equations.lstm();
    case RecurrentCell::Kind::gru: return equations.gru();
    default: return equations.rnn();
  }
}

}  // namespace rlx
