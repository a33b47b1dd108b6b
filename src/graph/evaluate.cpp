// Reference evaluation of one op, or of a whole graph, on concrete tensors.
#include <algorithm>
#include <new>

#include "base/cancel_scope.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "graph/bind_dims.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"

namespace rlx {
namespace {

// A graph whose inputs are those tensors, and its values; left-out inputs stay left out.
struct Operands {
  Graph graph;
  Values values;
  std::vector<Tensor> present;

  explicit Operands(std::span<const Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].empty()) {
        values.emplace_back();
        continue;
      }
      values.push_back(
          graph.input(std::to_string(i), inputs[i].dtype(), to_shape(inputs[i].dims())));
      present.push_back(inputs[i]);
    }
  }

  Result<std::vector<Tensor>> evaluate(const Values& results) {
    for (std::size_t i = 0; i < results.size(); ++i) graph.output(std::to_string(i), results[i]);
    return evaluate_graph(graph, present);
  }
};

// An op without eval is evaluated through its body: a graph of primitives, node by node.
Result<std::vector<Tensor>> evaluate_body(const Op& op, std::span<const Tensor> inputs) {
  Operands operands(inputs);
  return operands.evaluate(op.info().body(op.attributes(), operands.graph, operands.values));
}

// An op whose operands tell dims is evaluated as the static op that it becomes.
Result<std::vector<Tensor>> evaluate_resolved(const Op& op, std::span<const Tensor> inputs) {
  Operands operands(inputs);
  std::vector<std::optional<Tensor>> known;
  for (const Tensor& input : inputs)
    known.push_back(input.empty() ? std::nullopt : std::optional(input));
  const auto results = op.info().resolve(op.attributes(), operands.graph, operands.values, known);
  if (!results)
    return internal_error("The op {} is not resolved by values of all its operands.", op.name());
  return operands.evaluate(*results);
}

Result<std::vector<Tensor>> evaluate_checked(const Op& op, std::span<const Tensor> inputs) {
  const OpInfo& info = op.info();
  std::vector<TensorView> views;
  std::vector<Type> types(inputs.size());
  std::vector<const Type*> pointers;
  std::vector<Tensor> operands(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operands[i] = aligned(inputs[i]);
    types[i] = {inputs[i].dtype(), to_shape(inputs[i].dims())};
    pointers.push_back(inputs[i].empty() ? nullptr : &types[i]);
    views.emplace_back(operands[i]);
  }
  RLX_ASSIGN(const std::vector<Type> results, info.infer(op.attributes(), InferArgs{pointers}));
  const bool is_static = std::all_of(results.begin(), results.end(),
                                     [](const Type& type) { return type.is_static(); });
  if (info.eval_dynamic && (!info.eval || !is_static))
    return info.eval_dynamic(op.attributes(), views);
  if (!info.eval && info.resolve) return evaluate_resolved(op, inputs);
  if (!info.eval && !info.body) return unsupported("The op {} has no value by itself.", info.name);
  if (!info.eval) return evaluate_body(op, inputs);
  std::vector<Tensor> outputs;
  std::vector<MutableTensorView> output_views;
  for (const Type& type : results) {
    if (!type.is_static())
      return bad_input("The op {} gives {}, whose dims are not bound.", info.name, type.text());
    outputs.emplace_back(type.dtype, type.dims());
  }
  for (Tensor& output : outputs)
    output_views.push_back({output.dtype(), output.dims(), output.mutable_data()});
  RLX_TRY(info.eval(op.attributes(), EvalArgs{views, output_views}));
  if (CancelScope::is_cancelled()) return run_was_cancelled();
  return outputs;
}

}  // namespace

Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) {
  // Bodies and resolve rules use builders, which throw.
  try {
    return evaluate_checked(op, inputs);
  } catch (...) {
    return error_in_flight();
  }
}

Status evaluate_into(const Op& op, std::span<const Tensor> inputs,
                     std::span<const MutableTensorView> outputs) {
  try {
    std::vector<Tensor> operands;
    for (const Tensor& input : inputs) operands.push_back(aligned(input));
    const std::vector<TensorView> views(operands.begin(), operands.end());
    return op.info().eval(op.attributes(), EvalArgs{views, outputs});
  } catch (...) {
    return error_in_flight();
  }
}

namespace {

// The values of a graph while it is evaluated, each kept until its last reader has run.
class GraphEvaluation {
 public:
  explicit GraphEvaluation(const Graph& graph)
      : graph_(graph), computed_(graph.nodes().size()), readers_(graph.nodes().size(), 0) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId id : node.inputs) count_reader(id);
    }
    for (const GraphOutput& output : graph.outputs()) count_reader(output.value);
  }

  Status run(std::span<const Tensor> inputs) {
    std::size_t next_input = 0;
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (CancelScope::is_cancelled()) return run_was_cancelled();
      const Node& node = graph_.nodes()[n];
      if (const auto* input = node.op.as<op::Input>()) {
        if (next_input == inputs.size())
          return bad_input("The graph has more inputs than it was given ({}).", inputs.size());
        RLX_TRY(accept(*input, inputs[next_input]));
        RLX_TRY(learn_dims(input->shape, to_shape(inputs[next_input].dims()), dims_));
        computed_[n] = {inputs[next_input++]};
      } else {
        RLX_TRY(evaluate_node(n));
      }
    }
    if (next_input != inputs.size())
      return bad_input("The graph has ({}) inputs and was given ({}).", next_input, inputs.size());
    return {};
  }

  const Tensor& value(ValueId id) const {
    return computed_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }

 private:
  void count_reader(ValueId id) {
    if (id.node >= 0) ++readers_[static_cast<std::size_t>(id.node)];
  }

  static Status accept(const op::Input& input, const Tensor& tensor) {
    bool fits = !tensor.empty() && tensor.dtype() == input.dtype &&
                tensor.dims().size() == input.shape.size();
    for (std::size_t i = 0; fits && i < input.shape.size(); ++i)
      fits = compatible(input.shape[i], Dim(tensor.dims()[i]));
    if (fits) return {};
    return bad_input(
        "The input ({}) is {} and was given {}.", input.name, Type{input.dtype, input.shape}.text(),
        tensor.empty() ? "nothing" : Type{tensor.dtype(), to_shape(tensor.dims())}.text());
  }

  Status evaluate_node(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    if (const auto* constant = node.op.as<op::Constant>()) {
      computed_[n] = {constant->value};
      return {};
    }
    if (const auto* param = node.op.as<op::Param>()) {
      if (param->data.empty()) return bad_input("The param ({}) has no data.", param->name);
      computed_[n] = {param->data};
      return {};
    }
    const auto* names = node.op.as<op::NameDims>();
    if (readers_[n] == 0 && !node.op.info().traits.stateful && !names) return {};
    std::vector<Tensor> operands;
    for (const ValueId id : node.inputs) operands.push_back(id.node < 0 ? Tensor() : value(id));
    if (names) RLX_TRY(learn_dims(names->shape, to_shape(operands[0].dims()), dims_));
    RLX_ASSIGN(const Op bound, bound_op(node.op, dims_));
    auto results = evaluate(bound, operands);
    if (!results.ok()) {
      if (results.error().kind == ErrorKind::cancelled) return results.error();
      return std::move(results.error())
          .while_(fmt::format("evaluating {}{}", node.op.name(),
                              node.name.empty() ? "" : " (" + node.name.text() + ")"));
    }
    computed_[n] = *std::move(results);
    for (const ValueId id : node.inputs) {
      if (id.node >= 0 && --readers_[static_cast<std::size_t>(id.node)] == 0)
        computed_[static_cast<std::size_t>(id.node)].clear();
    }
    return {};
  }

  const Graph& graph_;
  std::vector<std::vector<Tensor>> computed_;
  std::vector<int> readers_;
  SymbolValues dims_;  ///< of the inputs, and what data has told by now
};

}  // namespace

Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, std::span<const Tensor> inputs) {
  GraphEvaluation evaluation(graph);
  RLX_TRY(evaluation.run(inputs));
  std::vector<Tensor> outputs;
  for (const GraphOutput& output : graph.outputs())
    outputs.push_back(evaluation.value(output.value));
  return outputs;
}

}  // namespace rlx
