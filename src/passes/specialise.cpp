// Binding symbols: inference runs again with numbers, and shape arithmetic folds on the way.
#include <algorithm>
#include <set>

#include "graph/bind_dims.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"
#include "passes/trip_count.hpp"
#include "rlx/folding.hpp"

namespace rlx::passes {
namespace {

std::set<std::string> symbols_of(const Graph& graph) {
  std::set<std::string> symbols;
  for (const Node& node : graph.nodes()) {
    if (const auto* input = node.op.as<op::Input>()) {
      for (const Dim& dim : input->shape) {
        if (!dim.is_static()) symbols.insert(dim.text());
      }
    }
  }
  return symbols;
}

std::string joined(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// All symbol values: those given, and those that input dims tell.
Result<SymbolValues> symbol_values(const Graph& graph, const Bindings& bindings) {
  SymbolValues values = bindings.dims;
  const std::set<std::string> symbols = symbols_of(graph);
  for (const auto& [name, value] : bindings.dims) {
    if (!symbols.contains(name))
      return bad_input("The graph has no symbol ({}); it has: {}.", name, joined(symbols));
    if (value < 0) return bad_input("The symbol ({}) cannot be ({}).", name, value);
  }
  std::set<std::string> inputs;
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    inputs.insert(input->name);
    const auto given = bindings.input_dims.find(input->name);
    if (given == bindings.input_dims.end()) continue;
    const Type type{input->dtype, input->shape};
    if (given->second.size() != input->shape.size()) {
      return bad_input("The input ({}) is {} and cannot have ({}) dims.", input->name, type.text(),
                       given->second.size());
    }
    for (std::size_t axis = 0; axis < input->shape.size(); ++axis) {
      const Dim& dim = input->shape[axis];
      const std::int64_t value = given->second[axis];
      if (dim.is_static() && dim.value() != value) {
        return bad_input("The input ({}) is {}: its dim ({}) cannot be ({}).", input->name,
                         type.text(), axis, value);
      }
      if (dim.is_static()) continue;
      const auto [known, is_new] = values.emplace(dim.text(), value);
      if (!is_new && known->second != value) {
        return bad_input("The symbol ({}) is both ({}) and ({}).", dim.text(), known->second,
                         value);
      }
    }
  }
  for (const auto& [name, dims] : bindings.input_dims) {
    if (!inputs.contains(name))
      return bad_input("The graph has no input ({}); it has: {}.", name, joined(inputs));
  }
  return values;
}

// Larger results of constants alone are left to the plan, which computes them once, with the
// weights.
constexpr std::int64_t fold_limit = 4096;

bool is_foldable(const Node& node, const Graph& target, const std::vector<ValueId>& inputs) {
  const OpTraits& traits = node.op.info().traits;
  if (traits.random || traits.stateful || traits.control_flow || node.op.is<op::Constant>())
    return false;
  return !inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
    return id.node < 0 || target.node(id).op.is<op::Constant>();
  });
}

const Tensor* constant_of(const Graph& graph, ValueId id) {
  if (id.node < 0) return nullptr;
  const auto* constant = graph.node(id).op.as<op::Constant>();
  return constant ? &constant->value : nullptr;
}

/// Replaces the node by constants where its inputs are constants and the results are small.
Result<bool> fold(Rewriter& rewriter, std::int32_t index, const Node& node) {
  const Graph& target = rewriter.so_far();
  const std::vector<ValueId> inputs = rewriter.inputs_of(node);
  if (node.op.is<op::ShapeOf>() && target.type(inputs[0]).is_static()) {
    const Dims dims = target.type(inputs[0]).dims();
    rewriter.replace(index, Values{rewriter.target().constant(Tensor::of<std::int64_t>(
                                {static_cast<std::int64_t>(dims.size())}, dims))});
    return true;
  }
  if (!is_foldable(node, target, inputs) || stays_quantised(node)) return false;
  std::vector<Tensor> values;
  std::vector<Type> types(inputs.size());
  std::vector<const Type*> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor* value = constant_of(target, inputs[i]);
    values.push_back(value ? *value : Tensor());
    pointers.push_back(value ? &target.type(inputs[i]) : nullptr);
  }
  if (!node.op.info().eval_dynamic) {
    RLX_ASSIGN(const std::vector<Type> results,
               node.op.info().infer(node.op.attributes(), InferArgs{pointers}));
    for (const Type& type : results) {
      if (!type.is_static() || type.elements() > fold_limit) return false;
    }
  }
  auto results = evaluate(node.op, values);
  if (!results.ok())
    return std::move(results.error())
        .while_("evaluating " + std::string(node.op.name()) +
                (node.origin.empty() ? "" : " for " + node.origin.text()));
  Values constants;
  for (Tensor& result : *results)
    constants.push_back(rewriter.target().constant(std::move(result)));
  rewriter.replace(index, constants);
  return true;
}

Result<bool> resolve(Rewriter& rewriter, std::int32_t index, const Node& node) {
  if (!node.op.info().resolve) return false;
  const Values inputs = rewriter.values_of(node);
  std::vector<std::optional<Tensor>> known;
  for (const Value& input : inputs) {
    const Tensor* value = input ? constant_of(rewriter.target(), input.id()) : nullptr;
    known.push_back(value ? std::optional(*value) : std::nullopt);
  }
  const auto results =
      node.op.info().resolve(node.op.attributes(), rewriter.target(), inputs, known);
  if (!results) return false;
  rewriter.replace(index, *results);
  return true;
}

Result<Graph> bind_and_fold(const Graph& graph, SymbolValues values);

/// The graph of a branch or loop body with its inputs typed as the operands are; operands that are
/// constants become constants inside (`constants` says whether they may: the carries of loops
/// change).
Result<Graph> with_operands(const Graph& body, const Graph& outer,
                            std::span<const ValueId> operands, bool constants,
                            const SymbolValues& values) {
  std::size_t next = 0;
  RLX_ASSIGN(
      const Graph typed,
      rewrite(body, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        const auto* input = node.op.as<op::Input>();
        if (!input) return false;
        const ValueId operand = operands[next++];
        const Value inside = rewriter.target().input(input->name, outer.type(operand).dtype,
                                                     outer.type(operand).shape);
        const Tensor* value = constants ? constant_of(outer, operand) : nullptr;
        rewriter.replace(index, Values{value ? rewriter.target().constant(*value) : inside});
        return true;
      }));
  return bind_and_fold(typed, values);
}

/// if(true, a, b) = a; otherwise both branches are specialised on the operands.
Result<bool> specialise_if(Rewriter& rewriter, std::int32_t index, const Node& node,
                           const op::If& branch, const SymbolValues& values) {
  const Values inputs = rewriter.values_of(node);
  const std::span<const Value> operands(inputs.begin() + 1, inputs.end());
  const std::vector<ValueId> ids = rewriter.inputs_of(node);
  const std::span<const ValueId> operand_ids(ids.begin() + 1, ids.end());
  Graph& target = rewriter.target();
  if (const Tensor* condition = constant_of(target, ids[0])) {
    const Graph& taken =
        condition->data()[0] != std::byte{0} ? *branch.then_branch : *branch.else_branch;
    RLX_ASSIGN(const Graph body, with_operands(taken, target, operand_ids, true, values));
    RLX_ASSIGN(const Values results, inline_graph(target, body, operands));
    rewriter.replace(index, results);
    return true;
  }
  RLX_ASSIGN(Graph a, with_operands(*branch.then_branch, target, operand_ids, true, values));
  RLX_ASSIGN(Graph b, with_operands(*branch.else_branch, target, operand_ids, true, values));
  const op::If specialised{std::make_shared<const Graph>(std::move(a)),
                           std::make_shared<const Graph>(std::move(b))};
  RLX_TRY(rewriter.add(index, specialised, ids));
  return true;
}

/// The body of a host_loop that runs as often as is known: without the condition, which is true.
Result<Graph> body_of_scan(const Graph& body) {
  std::size_t input = 0;
  RLX_ASSIGN(
      Graph result,
      rewrite(body, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        if (!node.op.is<op::Input>() || input++ != 1) return false;
        rewriter.replace(index, Values{rewriter.target().constant(Tensor::scalar(true))});
        return true;
      }));
  result.set_outputs({result.outputs().begin() + 1, result.outputs().end()});
  return result;
}

/// A loop whose iterations constants count is a scan, where its carries and what it emits keep
/// their dims.
Result<bool> specialise_loop(Rewriter& rewriter, std::int32_t index, const Node& node,
                             const op::HostLoop& loop, const SymbolValues& values) {
  const std::vector<ValueId> ids = rewriter.inputs_of(node);
  Graph& target = rewriter.target();
  std::vector<const Tensor*> known;
  for (const ValueId id : ids) known.push_back(constant_of(target, id));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool decides = i < 2 && ids[i].node >= 0;
    if (decides && (known[i] == nullptr || known[i]->elements() != 1)) return false;
    if (i >= 2 && !target.type(ids[i]).is_static()) return false;
  }
  RLX_ASSIGN(const auto count, trip_count(loop, known));
  if (!count) return false;
  const std::span<const ValueId> operands(ids.begin() + 2, ids.end());
  RLX_ASSIGN(Graph body, body_of_scan(*loop.body));
  std::vector<ValueId> typed{target.constant(Tensor::scalar(std::int64_t{0})).id()};
  typed.insert(typed.end(), operands.begin(), operands.end());
  RLX_ASSIGN(body, with_operands(body, target, typed, false, values));
  const auto carries = static_cast<std::size_t>(loop.carries);
  for (std::size_t i = 0; i < body.outputs().size(); ++i) {
    const Type& type = body.type(body.outputs()[i].value);
    if (i < carries ? type != target.type(operands[i]) : !type.is_static()) return false;
  }
  RLX_TRY(rewriter.add(index,
                       op::Scan{.body = std::make_shared<const Graph>(std::move(body)),
                                .length = *count,
                                .carries = loop.carries},
                       {operands.begin(), operands.end()}));
  return true;
}

Result<bool> fold_node(Rewriter& rewriter, std::int32_t index, const Node& node,
                       SymbolValues& values) {
  if (const auto* names = node.op.as<op::NameDims>())
    RLX_TRY(learn_dims(names->shape, rewriter.so_far().type(rewriter.inputs_of(node)[0]).shape,
                       values));
  RLX_ASSIGN(const bool resolved, resolve(rewriter, index, node));
  if (resolved) return true;
  if (const auto* branch = node.op.as<op::If>())
    return specialise_if(rewriter, index, node, *branch, values);
  if (const auto* loop = node.op.as<op::HostLoop>())
    return specialise_loop(rewriter, index, node, *loop, values);
  return fold(rewriter, index, node);
}

Result<Graph> bind_and_fold(const Graph& graph, SymbolValues values) {
  const auto visit = [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
    RLX_ASSIGN(const bool folded, fold_node(rewriter, index, node, values));
    if (folded) return true;
    RLX_ASSIGN(const Op bound, bound_op(node.op, values));
    RLX_TRY(rewriter.add(index, bound, rewriter.inputs_of(node)));
    return true;
  };
  RLX_ASSIGN(Graph bound, rewrite(graph, visit));
  // Resolved ops and inlined branches leave constants and shape arithmetic behind that now fold.
  return rewrite(std::move(bound), visit);
}

}  // namespace

Result<Graph> specialise(const Graph& graph, const Bindings& bindings) {
  RLX_ASSIGN(const auto values, symbol_values(graph, bindings));
  return bind_and_fold(graph, values);
}

}  // namespace rlx::passes
