// Reference evaluation of one op on concrete tensors.
#include "base/error.hpp"
#include "graph/op_info.hpp"

namespace rlx {
namespace {

// An op without eval is evaluated through its body: a graph of primitives, node by node.
Result<std::vector<Tensor>> evaluate_body(const Op& op, std::span<const Tensor> inputs) {
  Graph graph;
  std::vector<Value> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(inputs[i].empty() ? Value() : graph.input(std::to_string(i), inputs[i].dtype(), to_shape(inputs[i].dims())));
  }
  const Values results = op.info().body(op.attributes(), graph, values);
  std::vector<std::vector<Tensor>> computed(graph.nodes().size());
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (const auto* input = node.op.as<op::Input>()) {
      computed[n] = {inputs[static_cast<std::size_t>(std::stoi(input->name))]};
      continue;
    }
    std::vector<Tensor> operands;
    for (const ValueId id : node.inputs) {
      operands.push_back(id.node < 0 ? Tensor() : computed[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)]);
    }
    RLX_ASSIGN(computed[n], evaluate(node.op, operands));
  }
  std::vector<Tensor> tensors;
  for (const Value& result : results) {
    tensors.push_back(computed[static_cast<std::size_t>(result.id().node)][static_cast<std::size_t>(result.id().result)]);
  }
  return tensors;
}

}  // namespace

Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) {
  const OpInfo& info = op.info();
  std::vector<TensorView> views;
  std::vector<Type> types(inputs.size());
  std::vector<const Type*> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    types[i] = {inputs[i].dtype(), to_shape(inputs[i].dims())};
    pointers.push_back(inputs[i].empty() ? nullptr : &types[i]);
    views.emplace_back(inputs[i]);
  }
  if (info.eval_dynamic) return info.eval_dynamic(op.attributes(), views);
  if (!info.eval && !info.body) return unsupported("The op {} has no value by itself.", info.name);
  if (!info.eval) return evaluate_body(op, inputs);
  RLX_ASSIGN(const std::vector<Type> results, info.infer(op.attributes(), InferArgs{pointers}));
  std::vector<Tensor> outputs;
  std::vector<MutableTensorView> output_views;
  for (const Type& type : results) outputs.emplace_back(type.dtype, type.dims());
  for (Tensor& output : outputs) output_views.push_back({output.dtype(), output.dims(), output.mutable_data()});
  RLX_TRY(info.eval(op.attributes(), EvalArgs{views, output_views}));
  return outputs;
}

}  // namespace rlx
