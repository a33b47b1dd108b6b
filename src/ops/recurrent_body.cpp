// The body of a recurrent layer: the inputs' products of all steps at once, then a scan over the
// steps for each direction.
#include <map>

#include "graph/recurrent_cell.hpp"
#include "ops/recurrent.hpp"

namespace rlx {
namespace {

/// Expressions of cells as ops: scalar ops are named as the elementwise ops are.
class GraphTerms : public CellTerms {
 public:
  explicit GraphTerms(Graph& graph) : graph_(graph), builder_(nodes_) {}

  /// What a term stands for: one value for each gate or state.
  struct Terms {
    Values from_input, product, states, peepholes;
    Value recurrent_bias;
    std::function<Value(Value)> late_product;
  };
  Terms terms;

  ScalarValue from_input(std::int64_t gate) override { return leaf(at(terms.from_input, gate)); }
  ScalarValue product(std::int64_t gate) override { return leaf(at(terms.product, gate)); }
  ScalarValue late_product(std::int64_t, ScalarValue input) override {
    return leaf(terms.late_product(as_value(input.id())));
  }
  std::optional<ScalarValue> recurrent_bias(std::int64_t) override {
    return terms.recurrent_bias ? std::optional(leaf(terms.recurrent_bias)) : std::nullopt;
  }
  std::optional<ScalarValue> peephole(std::int64_t number) override {
    return terms.peepholes.empty() ? std::nullopt
                                   : std::optional(leaf(at(terms.peepholes, number)));
  }
  ScalarValue state(std::int64_t number) override { return leaf(at(terms.states, number)); }

  Value as_value(ScalarId id) {
    const auto known = values_.find(id);
    if (known != values_.end()) return known->second;
    const ScalarNode node = nodes_[static_cast<std::size_t>(id)];
    return values_[id] = node.op == ScalarOp::constant ? graph_.constant(node.dtype, node.value)
                                                       : applied(node);
  }

 private:
  static Value at(const Values& values, std::int64_t i) {
    return values[static_cast<std::size_t>(i)];
  }
  ScalarValue leaf(Value value) {
    const ScalarValue load =
        builder_.add({.op = ScalarOp::load,
                      .dtype = value.dtype(),
                      .index = static_cast<std::int32_t>(values_.size() + nodes_.size())});
    values_[load.id()] = value;
    return load;
  }
  Value applied(const ScalarNode& node) {
    const OpInfo* info = find_op(name_of(node.op));
    RLX_CHECK(info && info->scalar, "the scalar op {} is no op", name_of(node.op));
    std::vector<Value> operands;
    for (const ScalarId operand : {node.a, node.b, node.c})
      if (operand >= 0) operands.push_back(as_value(operand));
    return graph_.add(Op(*info, info->make()), operands, "").front();
  }

  Graph& graph_;
  std::vector<ScalarNode> nodes_;
  ScalarBuilder builder_;
  std::map<ScalarId, Value> values_;
};

/// Rows or columns [first, first + count) of axis `axis`.
Value part(const Value& x, std::int64_t axis, std::int64_t first, std::int64_t count) {
  Axes starts(static_cast<std::size_t>(x.rank()), 0), limits;
  for (const Dim& dim : x.shape()) limits.push_back(dim.value());
  starts[static_cast<std::size_t>(axis)] = first;
  limits[static_cast<std::size_t>(axis)] = first + count;
  return slice(x, starts, limits);
}

Value direction_of(const Value& operand, std::int64_t d) {
  return squeeze(part(operand, 0, d, 1), {0});
}

class LayerBody {
 public:
  LayerBody(const RecurrentCell& cell, Graph& graph, std::span<const Value> inputs)
      : cell_(cell), graph_(graph) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool is_lengths = i == static_cast<std::size_t>(RecurrentOperand::lengths);
      inputs_.push_back(inputs[i] && !is_lengths ? cast(inputs[i], wide_of(inputs[i].dtype()))
                                                 : inputs[i]);
    }
    dtype_ = inputs[0].dtype();
    const Dims x = inputs_[0].type().dims();
    steps_ = x[0];
    batch_ = x[1];
    units_ = inputs_[2].type().dims()[2];
  }

  Values run() {
    std::vector<Values> parts(static_cast<std::size_t>(1 + cell_.states()));
    for (std::int64_t d = 0; d < cell_.directions; ++d) {
      const Values results = direction(d);  // the states, then y
      parts[0].push_back(unsqueeze(results.back(), {1}));
      for (std::size_t s = 0; s + 1 < results.size(); ++s)
        parts[s + 1].push_back(unsqueeze(results[s], {0}));
    }
    Values values;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Value joined = parts[i].size() == 1 ? parts[i][0] : concat(parts[i], i == 0 ? 1 : 0);
      values.push_back(cast(joined, dtype_));
    }
    return values;
  }

 private:
  using Operand = RecurrentOperand;

  static DType wide_of(DType dtype) { return dtype == f64 ? f64 : f32; }
  Value operand(Operand which) const {
    const auto i = static_cast<std::size_t>(which);
    return i < inputs_.size() ? inputs_[i] : Value();
  }
  std::int64_t columns() const { return cell_.gates * units_; }
  bool is_reversed(std::int64_t d) const { return d == 1 || cell_.direction == Direction::reverse; }

  /// x W + b of all steps; the recurrent bias too, but that of a candidate which reset multiplies.
  Value projected(std::int64_t d) const {
    const Value w = direction_of(operand(Operand::w), d);
    const Value sum = matmul(operand(Operand::x), transpose(w, {1, 0}));
    if (!operand(Operand::bias)) return sum;
    const Value bias = direction_of(operand(Operand::bias), d);
    Value recurrent = part(bias, 0, columns(), columns());
    if (cell_.linear_before_reset) {
      recurrent = concat({part(recurrent, 0, 0, columns() - units_),
                          broadcast(graph_.constant(sum.dtype(), 0), {units_})},
                         0);
    }
    return sum + (part(bias, 0, 0, columns()) + recurrent);
  }

  Value first_state(std::int64_t d, std::int64_t number) const {
    const Value given = operand(number == 0 ? Operand::first_h : Operand::first_c);
    return given ? direction_of(given, d)
                 : broadcast(graph_.constant(wide_of(dtype_), 0), {batch_, units_});
  }

  Values direction(std::int64_t d) {
    Values operands;
    for (std::int64_t s = 0; s < cell_.states(); ++s) operands.push_back(first_state(d, s));
    operands.push_back(projected(d));
    operands.push_back(direction_of(operand(Operand::r), d));
    if (const Value lengths = operand(Operand::lengths))
      operands.push_back(reshape(lengths, {batch_, 1}));
    if (cell_.linear_before_reset && operand(Operand::bias)) {
      const Value bias = direction_of(operand(Operand::bias), d);
      operands.push_back(part(bias, 0, 2 * columns() - units_, units_));
    }
    if (const Value peephole = operand(Operand::peephole))
      operands.push_back(direction_of(peephole, d));
    op::Scan scan;
    scan.body = std::make_shared<const Graph>(step_graph(d, operands));
    scan.length = steps_;
    scan.carries = cell_.states();
    scan.scanned = 1;
    scan.reverse = is_reversed(d);
    return graph_.add(scan, operands, "");
  }

  /// (step, states, projected row, captures) -> (states, y).
  Graph step_graph(std::int64_t d, const Values& operands) const {
    Graph body;
    const Value step = body.input("step", i64, {});
    Values inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      Type type = operands[i].type();
      if (static_cast<std::int64_t>(i) == cell_.states()) type.shape.erase(type.shape.begin());
      inputs.push_back(body.input("operand" + std::to_string(i), type.dtype, type.shape));
    }
    auto next_input = inputs.begin() + static_cast<std::ptrdiff_t>(cell_.states());
    GraphTerms terms(body);
    terms.terms.states = Values(inputs.begin(), next_input);
    terms.terms.from_input = gates_of(*next_input++, cell_.gates);
    set_products(terms.terms, inputs[0], *next_input++);
    const Value lengths = operand(Operand::lengths) ? *next_input++ : Value();
    if (cell_.linear_before_reset && operand(Operand::bias))
      terms.terms.recurrent_bias = *next_input++;
    if (operand(Operand::peephole)) {
      for (std::int64_t k = 0; k < 3; ++k)
        terms.terms.peepholes.push_back(part(*next_input, 0, k * units_, units_));
    }
    Values next;
    for (const ScalarValue& state : next_states(cell_, d, terms))
      next.push_back(terms.as_value(state.id()));
    Value y = next[0];
    if (lengths) {
      const Value live = less(position(body, step, d), lengths);
      for (std::size_t s = 0; s < next.size(); ++s) next[s] = select(live, next[s], inputs[s]);
      y = select(live, y, body.constant(y.dtype(), 0));
    }
    for (std::size_t s = 0; s < next.size(); ++s) body.output("state" + std::to_string(s), next[s]);
    body.output("y", y);
    return body;
  }

  /// Where the step stands in the sequence, i32.
  Value position(Graph& body, const Value& step, std::int64_t d) const {
    const Value count = cast(step, i32);
    if (!is_reversed(d)) return count;
    return body.constant(i32, static_cast<double>(steps_ - 1)) - count;
  }

  Values gates_of(const Value& rows, std::int64_t count) const {
    Values gates;
    for (std::int64_t k = 0; k < count; ++k) gates.push_back(part(rows, 1, k * units_, units_));
    return gates;
  }

  void set_products(GraphTerms::Terms& terms, const Value& h, const Value& r) const {
    const std::int64_t early = cell_.has_late_product() ? cell_.gates - 1 : cell_.gates;
    const auto product = [](const Value& x, const Value& rows) {
      return matmul(x, transpose(rows, {1, 0}));
    };
    terms.product = gates_of(product(h, part(r, 0, 0, early * units_)), early);
    if (early == cell_.gates) return;
    const Value late = part(r, 0, early * units_, units_);
    terms.late_product = [late, product](Value input) { return product(input, late); };
  }

  const RecurrentCell& cell_;
  Graph& graph_;
  Values inputs_;
  DType dtype_ = f32;
  std::int64_t steps_ = 1, batch_ = 1, units_ = 1;
};

}  // namespace

Values recurrent_body(const Op& op, Graph& graph, std::span<const Value> inputs) {
  const auto cell = recurrent_cell(op);
  RLX_CHECK(cell.has_value(), "the op {} is no recurrent layer", op.name());
  for (const Value& input : inputs) {
    if (input && !input.type().is_static())
      throw Exception(unsupported("The body of {} needs dims that are known, not {}.", op.name(),
                                  input.type().text()));
  }
  return LayerBody(*cell, graph, inputs).run();
}

}  // namespace rlx
