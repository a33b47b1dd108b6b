// Writes the cells of recurrent layers as scalar nodes, and where their operands lie.
#include "plan/build_recurrence.hpp"

#include <algorithm>

#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

// Operands in ONNX's order.
enum Operand : std::size_t { x, w, r, bias, lengths, first_h, first_c, peephole };

bool has(const Node& node, std::size_t operand) {
  return node.inputs.size() > operand && node.inputs[operand].node >= 0;
}

template <class A>
std::vector<CellFunction> functions_of(const A& a, const Node& node,
                                       const std::vector<std::string>& defaults) {
  auto functions =
      cell_functions(node.op.name(), {a.direction, a.activations, a.alphas, a.betas}, defaults);
  return functions.ok() ? *std::move(functions) : std::vector<CellFunction>();
}

/// What the attributes say; nothing for other ops.
std::optional<RecurrentLayout> attributes_of(const Node& node) {
  using Cell = RecurrentLayout::Cell;
  RecurrentLayout layout;
  if (const auto* lstm = node.op.as<op::Lstm>()) {
    layout = {.cell = Cell::lstm,
              .direction = lstm->direction,
              .gates = 4,
              .clip = lstm->clip,
              .input_forget = lstm->input_forget,
              .functions = functions_of(*lstm, node, {"sigmoid", "tanh", "tanh"})};
  } else if (const auto* gru = node.op.as<op::Gru>()) {
    layout = {.cell = Cell::gru,
              .direction = gru->direction,
              .gates = 3,
              .clip = gru->clip,
              .linear_before_reset = gru->linear_before_reset,
              .functions = functions_of(*gru, node, {"sigmoid", "tanh"})};
  } else if (const auto* rnn = node.op.as<op::Rnn>()) {
    layout = {.cell = Cell::rnn,
              .direction = rnn->direction,
              .gates = 1,
              .clip = rnn->clip,
              .functions = functions_of(*rnn, node, {"tanh"})};
  } else {
    return std::nullopt;
  }
  layout.directions = direction_count(layout.direction);
  if (layout.functions.empty()) return std::nullopt;
  return layout;
}

/// Lengths that are constants and say that every row is whole.
bool are_whole(const Graph& graph, ValueId id, std::int64_t steps) {
  const auto* constant = graph.node(id).op.as<op::Constant>();
  if (!constant || constant->value.dtype() != i32) return false;
  const std::span<const std::int32_t> rows = constant->value.as<std::int32_t>();
  return std::all_of(rows.begin(), rows.end(), [&](std::int32_t row) { return row >= steps; });
}

bool directions_agree(const std::vector<CellFunction>& functions, std::int64_t directions) {
  const auto each = static_cast<std::ptrdiff_t>(functions.size()) / directions;
  return directions == 1 ||
         std::equal(functions.begin(), functions.begin() + each, functions.begin() + each);
}

/// The cell's expression under construction.
class CellBuilder {
 public:
  CellBuilder(const RecurrentLayout& layout, const Node& node, const Locate& locate,
              std::int32_t projected, loop::Recurrence& result, KernelBuffers& buffers)
      : layout_(layout),
        node_(node),
        locate_(locate),
        result_(result),
        buffers_(buffers),
        builder_(result.nodes),
        projected_(buffers.number(projected, false)) {}

  /// The next values of the states.
  std::vector<ScalarValue> run() {
    switch (layout_.cell) {
      case RecurrentLayout::Cell::lstm: return lstm();
      case RecurrentLayout::Cell::gru: return gru();
      default: return {function(0, from_input(0) + product(0))};
    }
  }

 private:
  // i, o, f = f(x W + h R + P c + b); c' = f c + i g(...); h' = o h(c'). Peepholes: i and f see c,
  // o sees c'.
  std::vector<ScalarValue> lstm() {
    const ScalarValue c = state(1);
    const ScalarValue in = function(0, seeing(0, c));
    const ScalarValue keep = layout_.input_forget ? 1.0 - in : function(0, seeing(2, c));
    const ScalarValue next = keep * c + in * function(1, gate(3));
    const ScalarValue out = function(0, seeing(1, next));
    return {out * layout_.functions[2](next), next};
  }

  // z, r = f(x W + h R + b); n = g(x W + (r h) R + b), or g(x W + r (h R + b)); h' = (1 - z) n + z
  // h
  std::vector<ScalarValue> gru() {
    const ScalarValue h = state(0), reset = function(0, gate(1));
    ScalarValue recurrent = product(2);
    if (layout_.linear_before_reset) {
      if (has(node_, bias)) recurrent = recurrent + recurrent_bias(2);
      recurrent = reset * recurrent;
    } else {
      result_.early_gates = 2;
      result_.late_input = (reset * h).id();
    }
    const ScalarValue candidate = function(1, from_input(2) + recurrent), z = function(0, gate(0));
    return {(1.0 - z) * candidate + z * h};
  }

  ScalarValue function(std::size_t number, ScalarValue sum) {
    if (layout_.clip > 0) sum = scalar::min(scalar::max(sum, -layout_.clip), layout_.clip);
    return layout_.functions[number](sum);
  }

  ScalarValue leaf(std::int64_t index) {
    return builder_.add(
        {.op = ScalarOp::accumulator, .dtype = f32, .index = static_cast<std::int32_t>(index)});
  }
  ScalarValue product(std::int64_t gate) { return leaf(gate); }
  ScalarValue state(std::int64_t number) { return leaf(layout_.gates + number); }
  ScalarValue gate(std::int64_t number) { return from_input(number) + product(number); }

  ScalarValue load(loop::Access access) {
    result_.accesses.push_back(std::move(access));
    return builder_.add({.op = ScalarOp::load,
                         .dtype = f32,
                         .index = static_cast<std::int32_t>(result_.accesses.size() - 1)});
  }
  ScalarValue from_input(std::int64_t gate) {
    const std::int64_t row = layout_.columns(), step = layout_.batch * row;
    return load({.buffer = projected_,
                 .offset = gate * layout_.units,
                 .strides = {layout_.steps * step, row, step, 1}});
  }
  /// Units from `first` on of an operand [D, ...].
  ScalarValue by_unit(std::size_t operand, std::int64_t first) {
    const Located at = locate_(node_.inputs[operand]);
    const std::vector<std::int64_t>& strides = at.view.strides;
    return load({.buffer = buffers_.number(at.buffer, false),
                 .offset = at.view.offset + first * strides[1],
                 .strides = {strides[0], 0, 0, strides[1]}});
  }
  ScalarValue recurrent_bias(std::int64_t gate) {
    return by_unit(bias, (layout_.gates + gate) * layout_.units);
  }
  /// A gate that sees the cell's state through the peephole, if there is one.
  ScalarValue seeing(std::int64_t number, ScalarValue c) {
    if (!has(node_, peephole)) return gate(number);
    return gate(number) + by_unit(peephole, number * layout_.units) * c;
  }

  const RecurrentLayout& layout_;
  const Node& node_;
  const Locate& locate_;
  loop::Recurrence& result_;
  KernelBuffers& buffers_;
  ScalarBuilder builder_;
  std::int32_t projected_;
};

/// Where a state [D,B,H] starts; zeros where it is left out.
loop::Access start_of(const Node& node, std::size_t operand, const Locate& locate,
                      KernelBuffers& buffers) {
  if (!has(node, operand)) return {.buffer = -1};
  const Located at = locate(node.inputs[operand]);
  const std::vector<std::int64_t>& strides = at.view.strides;
  return {.buffer = buffers.number(at.buffer, false),
          .offset = at.view.offset,
          .strides = {strides[0], strides[1], 0, strides[2]}};
}

}  // namespace

std::int64_t RecurrentLayout::panel_width(const codegen::Target& target) const {
  const std::int64_t lanes = target.isa == codegen::Isa::avx512 ? 16
                             : target.isa == codegen::Isa::avx2 ? 8
                                                                : 4;
  std::int64_t width = 4;
  while (width < lanes && width < units) width *= 2;
  return width;
}

std::optional<RecurrentLayout> recurrent_layout(const Graph& graph, const Node& node,
                                                const std::vector<bool>& weight_only) {
  std::optional<RecurrentLayout> layout = attributes_of(node);
  if (!layout || node.results[0].dtype != f32 || node.results[0].elements() == 0)
    return std::nullopt;
  const auto is_constant = [&](std::size_t operand) {
    return weight_only[static_cast<std::size_t>(node.inputs[operand].node)];
  };
  if (!is_constant(w) || !is_constant(r) ||
      !directions_agree(layout->functions, layout->directions))
    return std::nullopt;
  const Dims dims = graph.type(node.inputs[x]).dims();
  layout->steps = dims[0];
  layout->batch = dims[1];
  layout->inputs = dims[2];
  layout->units = graph.type(node.inputs[r]).dims()[2];
  if (layout->inputs == 0) return std::nullopt;
  if (has(node, lengths) && !are_whole(graph, node.inputs[lengths], layout->steps))
    return std::nullopt;
  return layout;
}

void add_projection_epilogue(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                             std::int32_t target, loop::Contraction& contraction,
                             KernelBuffers& buffers) {
  ScalarBuilder builder(contraction.nodes);
  ScalarValue sum = builder.add({.op = ScalarOp::accumulator, .dtype = f32});
  const std::int64_t columns = layout.columns(), step = layout.batch * columns;
  if (has(node, bias)) {
    const Located at = locate(node.inputs[bias]);
    const std::int64_t along = at.view.strides[1];
    loop::Access access{.buffer = buffers.number(at.buffer, false),
                        .offset = at.view.offset,
                        .strides = {at.view.strides[0], 0, 0, along}};
    const auto load = [&](std::int32_t index) {
      return builder.add({.op = ScalarOp::load, .dtype = f32, .index = index});
    };
    contraction.accesses.push_back(access);
    sum = sum + load(0);
    // The cell itself adds the recurrent bias of a candidate that the reset gate multiplies.
    access.offset += columns * along;
    if (layout.linear_before_reset) access.guards = {{0, columns - layout.units, {0, 0, 0, 1}}};
    contraction.accesses.push_back(std::move(access));
    sum = sum + load(1);
  }
  contraction.stores.push_back({{.buffer = buffers.number(target, true),
                                 .offset = 0,
                                 .strides = {layout.steps * step, step, columns, 1}},
                                sum.id()});
}

WeightPlan packed_recurrence(const RecurrentLayout& layout, const View& r,
                             const codegen::Target& target) {
  WeightPlan weight{.view = r, .dtype = f32, .packed = true};
  weight.layout = {.n = layout.units,
                   .k = layout.units,
                   .panel_width = layout.panel_width(target),
                   .dtype = f32};
  weight.batch_extents = {layout.directions, layout.gates};
  weight.batch_strides = {r.strides[0], r.strides[1] * layout.units};
  weight.k_extents = {layout.units};
  weight.k_strides = {r.strides[2]};
  weight.n = layout.units;
  weight.n_stride = r.strides[1];
  weight.bytes = static_cast<std::int64_t>(
      codegen::packed_bytes(weight.layout, layout.directions * layout.gates));
  return weight;
}

loop::Recurrence describe_recurrence(const RecurrentLayout& layout, const Node& node,
                                     const Locate& locate, std::int32_t projected,
                                     std::int32_t recurrence,
                                     const std::vector<std::int32_t>& results,
                                     KernelBuffers& buffers) {
  loop::Recurrence result;
  result.directions = layout.directions;
  result.batch = layout.batch;
  result.steps = layout.steps;
  result.units = layout.units;
  result.first_reversed = layout.direction == Direction::reverse ? 0 : 1;
  result.r_buffer = buffers.number(recurrence, false);
  result.gates = result.early_gates = static_cast<std::int32_t>(layout.gates);
  const std::vector<ScalarValue> next =
      CellBuilder(layout, node, locate, projected, result, buffers).run();
  const std::int64_t row = layout.units, direction = layout.batch * row;
  result.stores.push_back({{.buffer = buffers.number(results[0], true),
                            .offset = 0,
                            .strides = {direction, row, layout.directions * direction, 1}},
                           next[0].id()});
  for (std::size_t s = 0; s < next.size(); ++s) {
    result.next.push_back(next[s].id());
    result.initial.push_back(start_of(node, first_h + s, locate, buffers));
    result.last.push_back({.buffer = buffers.number(results[s + 1], true),
                           .offset = 0,
                           .strides = {direction, row, 0, 1}});
  }
  return result;
}

}  // namespace rlx::plan
