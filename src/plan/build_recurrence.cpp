// Plan steps of recurrent layers: their cells as scalar nodes, and where operands and states lie.
#include "plan/build_recurrence.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "cost/recurrence_cost.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

using Operand = RecurrentOperand;

ValueId operand_of(const Node& node, Operand operand) {
  const auto i = static_cast<std::size_t>(operand);
  return i < node.inputs.size() ? node.inputs[i] : ValueId{-1, 0};
}

bool has(const Node& node, Operand operand) { return operand_of(node, operand).node >= 0; }

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

/// The cell's terms as accumulators and loads of a recurrence.
class KernelTerms : public CellTerms {
 public:
  KernelTerms(const RecurrentLayout& layout, const Node& node, const Locate& locate,
              std::int32_t projected, loop::Recurrence& result, KernelBuffers& buffers)
      : layout_(layout),
        node_(node),
        locate_(locate),
        result_(result),
        buffers_(buffers),
        builder_(result.nodes),
        projected_(buffers.number(projected, false)) {}

  ScalarValue from_input(std::int64_t gate) override {
    const std::int64_t row = layout_.columns(), step = layout_.batch * row;
    return load({.buffer = projected_,
                 .offset = gate * layout_.units,
                 .strides = {layout_.steps * step, row, step, 1}});
  }
  ScalarValue product(std::int64_t gate) override { return leaf(gate); }
  ScalarValue late_product(std::int64_t gate, ScalarValue input) override {
    result_.early_gates = static_cast<std::int32_t>(gate);
    result_.late_input = input.id();
    return leaf(gate);
  }
  std::optional<ScalarValue> recurrent_bias(std::int64_t gate) override {
    if (!has(node_, Operand::bias)) return std::nullopt;
    return by_unit(Operand::bias, (layout_.gates + gate) * layout_.units);
  }
  std::optional<ScalarValue> peephole(std::int64_t number) override {
    if (!has(node_, Operand::peephole)) return std::nullopt;
    return by_unit(Operand::peephole, number * layout_.units);
  }
  ScalarValue state(std::int64_t number) override { return leaf(layout_.gates + number); }

 private:
  ScalarValue leaf(std::int64_t index) {
    return builder_.add(
        {.op = ScalarOp::accumulator, .dtype = f32, .index = static_cast<std::int32_t>(index)});
  }
  ScalarValue load(loop::Access access) {
    result_.accesses.push_back(std::move(access));
    return builder_.add({.op = ScalarOp::load,
                         .dtype = f32,
                         .index = static_cast<std::int32_t>(result_.accesses.size() - 1)});
  }
  /// Units from `first` on of an operand [D, ...].
  ScalarValue by_unit(Operand operand, std::int64_t first) {
    const Located at = locate_(operand_of(node_, operand));
    const std::vector<std::int64_t>& strides = at.view.strides;
    return load({.buffer = buffers_.number(at.buffer, false),
                 .offset = at.view.offset + first * strides[1],
                 .strides = {strides[0], 0, 0, strides[1]}});
  }

  const RecurrentLayout& layout_;
  const Node& node_;
  const Locate& locate_;
  loop::Recurrence& result_;
  KernelBuffers& buffers_;
  ScalarBuilder builder_;
  std::int32_t projected_;
};

/// The last values of a state: [D,B,H], dense.
std::vector<std::int64_t> state_strides(const RecurrentLayout& layout) {
  return {layout.batch * layout.units, layout.units, 0, 1};
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

Result<RecurrentLayout> recurrent_layout(const Graph& graph, const Node& node,
                                         const std::vector<bool>& weight_only) {
  auto cell = recurrent_cell(node.op);
  if (!cell) return unsupported("it is no recurrent layer");
  RecurrentLayout layout{*std::move(cell)};
  const DType dtype = node.results[0].dtype;
  if (dtype != f32) return unsupported("it is {}, not f32", name_of(dtype));
  const auto is_constant = [&](Operand operand) {
    return weight_only[static_cast<std::size_t>(operand_of(node, operand).node)];
  };
  if (!is_constant(Operand::w) || !is_constant(Operand::r))
    return unsupported("its weights are computed in each run");
  if (!directions_agree(layout.functions, layout.directions))
    return unsupported("its directions have different functions");
  const Dims dims = graph.type(operand_of(node, Operand::x)).dims();
  layout.steps = dims[0];
  layout.batch = dims[1];
  layout.inputs = dims[2];
  layout.units = graph.type(operand_of(node, Operand::r)).dims()[2];
  if (layout.inputs == 0 || node.results[0].elements() == 0) return unsupported("it is empty");
  if (has(node, Operand::lengths) &&
      !are_whole(graph, operand_of(node, Operand::lengths), layout.steps))
    return unsupported("its sequences have different lengths");
  return layout;
}

void add_projection_epilogue(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                             std::int32_t target, loop::Contraction& contraction,
                             KernelBuffers& buffers) {
  ScalarBuilder builder(contraction.nodes);
  ScalarValue sum = builder.add({.op = ScalarOp::accumulator, .dtype = f32});
  const std::int64_t columns = layout.columns(), step = layout.batch * columns;
  if (has(node, Operand::bias)) {
    const Located at = locate(operand_of(node, Operand::bias));
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
  KernelTerms terms(layout, node, locate, projected, result, buffers);
  const std::vector<ScalarValue> next = next_states(layout, 0, terms);
  const std::int64_t row = layout.units, direction = layout.batch * row;
  result.stores.push_back({{.buffer = buffers.number(results[0], true),
                            .offset = 0,
                            .strides = {direction, row, layout.directions * direction, 1}},
                           next[0].id()});
  for (std::size_t s = 0; s < next.size(); ++s) {
    result.next.push_back(next[s].id());
    result.last.push_back({.buffer = buffers.number(results[s + 1], true),
                           .offset = 0,
                           .strides = state_strides(layout)});
  }
  return result;
}

std::vector<loop::Access> starts_of_states(const Node& node, std::size_t states,
                                           const Locate& locate, KernelBuffers& buffers) {
  constexpr Operand operands[] = {Operand::first_h, Operand::first_c};
  std::vector<loop::Access> starts;
  for (const Operand operand : std::span(operands).first(states)) {
    loop::Access& start = starts.emplace_back(loop::Access{.buffer = -1});
    if (!has(node, operand)) continue;
    const Located at = locate(operand_of(node, operand));
    const std::vector<std::int64_t>& strides = at.view.strides;
    start = {.buffer = buffers.number(at.buffer, false),
             .offset = at.view.offset,
             .strides = {strides[0], strides[1], 0, strides[2]}};
  }
  return starts;
}

loop::Nest describe_start(const RecurrentLayout& layout, const Node& node, const Locate& locate,
                          const std::vector<std::int32_t>& results, KernelBuffers& buffers) {
  loop::Nest nest;
  nest.extents = {layout.directions, layout.batch, 1, layout.units};
  nest.parallel_dims = 4;
  ScalarBuilder builder(nest.nodes);
  std::size_t state = 0;
  for (loop::Access& start : starts_of_states(node, results.size() - 1, locate, buffers)) {
    ScalarValue value = builder.constant(f32, 0);
    if (start.buffer >= 0) {
      const auto index = static_cast<std::int32_t>(nest.accesses.size());
      nest.accesses.push_back(std::move(start));
      value = builder.add({.op = ScalarOp::load, .dtype = f32, .index = index});
    }
    nest.stores.push_back({{.buffer = buffers.number(results[++state], true),
                            .offset = 0,
                            .strides = state_strides(layout)},
                           value.id()});
  }
  return nest;
}

void PlanBuilder::add_recurrence(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const RecurrentLayout layout = recurrent_layout(graph_, root, regions_.weight_only).value();
  const Locate locate_value = [this](ValueId id) { return locate(id); };
  const Type projected{f32, {layout.directions, layout.steps, layout.batch, layout.columns()}};
  const std::int32_t target =
      add_buffer(projected, Storage::arena, -1, "gates_" + std::to_string(region.root));
  add_projection(root, layout, target);

  const View r = placement_.of(root.inputs[2]);
  WeightPlan packed = packed_recurrence(layout, r, options_.target);
  const auto width = static_cast<std::int32_t>(packed.layout.panel_width);
  const Type packed_type{f32, {packed.bytes / static_cast<std::int64_t>(sizeof(float))}};
  const std::int32_t weights = add_weight(std::move(packed), packed_type);
  std::vector<std::int32_t> results;
  for (std::size_t k = 0; k < root.results.size(); ++k)
    results.push_back(buffer_of({region.root, static_cast<std::int32_t>(k)}));
  KernelBuffers buffers(plan_.buffers);
  loop::Recurrence walk =
      describe_recurrence(layout, root, locate_value, target, weights, results, buffers);
  walk.panel_width = width;
  const double flops = 2 * points_of(projected.dims()) * static_cast<double>(layout.units);
  KernelBuffers of_walk = buffers;
  walk.initial = starts_of_states(root, walk.last.size(), locate_value, of_walk);
  if (cost::pays_in_steps({of_walk.declared, walk}, options_.model, options_.threads)) {
    KernelBuffers of_start(plan_.buffers);
    loop::Nest start = describe_start(layout, root, locate_value, results, of_start);
    const double states = points_of({layout.directions, layout.batch, layout.units});
    add_kernel({of_start.declared, std::move(start)}, of_start.plan_buffers, "nest", 0, states);
    add_steps(std::move(walk), buffers, flops);
    return;
  }
  // A layer on a few rows has no more work items than workers: the walk itself looks at the flag.
  if (layout.steps > 1)
    of_walk.number(add_buffer({boolean, {1}}, Storage::state, -1, "cancel"), false);
  add_kernel({of_walk.declared, std::move(walk)}, of_walk.plan_buffers, "recurrence", flops, 0);
}

void PlanBuilder::add_steps(loop::Recurrence walk, KernelBuffers buffers, double flops) {
  LoopPlan loop{.trips = walk.steps};
  loop.counter = add_buffer({i64, {1}}, Storage::arena, -1, "step");
  walk.initial.clear();
  walk.step_buffer = buffers.number(loop.counter, false);
  const auto steps = static_cast<double>(walk.steps);
  add_kernel({buffers.declared, std::move(walk)}, buffers.plan_buffers, "recurrence", flops / steps,
             0);
  Step step = plan_.steps.back();
  loop.steps.push_back(std::move(plan_.steps.back()));
  plan_.steps.pop_back();
  loop.steps.back().conditions.clear();
  step.kind = Step::Kind::loop;
  step.index = static_cast<std::int32_t>(plan_.loops.size());
  step.name = "loop";
  step.flops = flops;
  plan_.loops.push_back(std::move(loop));
  plan_.steps.push_back(std::move(step));
}

void PlanBuilder::add_projection(const Node& root, const RecurrentLayout& layout,
                                 std::int32_t target) {
  const Located x = locate(root.inputs[0]);
  const View w = placement_.of(root.inputs[1]);
  KernelBuffers buffers(plan_.buffers);
  loop::Contraction c;
  c.batch_extents = {layout.directions};
  c.a_buffer = buffers.number(x.buffer, false);
  c.a_offset = x.view.offset;
  c.a_batch_strides = {0};
  c.m_extents = {layout.steps, layout.batch};
  c.a_m_strides = {x.view.strides[0], x.view.strides[1]};
  c.k_extents = {layout.inputs};
  c.a_k_strides = {x.view.strides[2]};
  c.n = layout.columns();
  c.b_batch_strides = {w.strides[0]};
  c.b_k_strides = {w.strides[2]};
  c.b_n_stride = w.strides[1];
  set_b(root.inputs[1], {w, f32}, c, buffers);
  add_projection_epilogue(
      layout, root, [this](ValueId id) { return locate(id); }, target, c, buffers);
  const double flops = 2 * points_of({layout.directions, layout.steps, layout.batch,
                                      layout.columns(), layout.inputs});
  loop::Kernel kernel{buffers.declared, std::move(c)};
  add_kernel(std::move(kernel), buffers.plan_buffers, "matmul", flops, 0);
}

}  // namespace rlx::plan
