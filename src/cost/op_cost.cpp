// FLOPs and bytes of nodes, from the rules of their ops.
#include "cost/op_cost.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "cost/saturating.hpp"
#include "graph/scalar_value.hpp"
#include "rlx/custom.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace cost {
namespace {

/// Operations of a scalar node; transcendental functions are series of some ten.
double operations_of(ScalarOp op) {
  if (op == ScalarOp::constant || op == ScalarOp::load || op == ScalarOp::domain_index) return 0;
  const bool series = op >= ScalarOp::exp && op <= ScalarOp::erf && op != ScalarOp::sqrt &&
                      op != ScalarOp::rsqrt && op != ScalarOp::reciprocal;
  return series || op == ScalarOp::pow || op == ScalarOp::atan2 ? 10 : 1;
}

double operations_of_element(const Node& node, std::span<const Type* const> inputs) {
  std::vector<ScalarNode> nodes;
  ScalarBuilder builder(nodes);
  std::vector<ScalarValue> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(!inputs[i] ? ScalarValue()
                                  : builder.add({.op = ScalarOp::load,
                                                 .dtype = inputs[i]->dtype,
                                                 .index = static_cast<std::int32_t>(i)}));
  }
  node.op.info().scalar(node.op.attributes(), builder, operands);
  double operations = 0;
  for (const ScalarNode& scalar : nodes) operations += operations_of(scalar.op);
  return operations;
}

std::int64_t elements_of(const Type& type) {
  std::int64_t elements = 1;
  for (const Dim& dim : type.shape) {
    if (dim.is_static()) elements = saturating_multiply(elements, dim.value());
  }
  return elements;
}

/// The type with 1 for every dim that is not bound.
Type bound_type(Type type) {
  for (Dim& dim : type.shape) {
    if (!dim.is_static()) dim = Dim(1);
  }
  return type;
}

double graph_flops(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes()) flops += node_cost(graph, node).flops;
  return flops;
}

double body_flops(const Node& node, std::span<const Type> inputs,
                  std::span<const Type* const> present) {
  Graph body;
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(present[i] ? body.input(std::to_string(i), inputs[i].dtype, inputs[i].shape)
                                : Value());
  }
  node.op.info().body(node.op.attributes(), body, values);
  return graph_flops(body);
}

/// Loops take their length where the graph tells it, else one step; branches the dearer one.
std::optional<double> control_flops(const Node& node) {
  if (const auto* scan = node.op.as<op::Scan>())
    return static_cast<double>(scan->length) * graph_flops(*scan->body);
  if (const auto* loop = node.op.as<op::While>())
    return graph_flops(*loop->condition) + graph_flops(*loop->body);
  if (const auto* loop = node.op.as<op::HostLoop>()) return graph_flops(*loop->body);
  if (const auto* branch = node.op.as<op::If>())
    return std::max(graph_flops(*branch->then_branch), graph_flops(*branch->else_branch));
  return std::nullopt;
}

}  // namespace

std::int64_t bytes_of(const Type& type) {
  return saturating_multiply(elements_of(type), static_cast<std::int64_t>(size_of(type.dtype)));
}

bool is_metadata(const Op& op) {
  if (op.info().traits.metadata) return true;
  const auto* slice = op.as<op::Slice>();
  return slice && std::all_of(slice->steps.begin(), slice->steps.end(),
                              [](std::int64_t step) { return step == 1; });
}

bool is_sync_point(const Op& op, std::span<const std::string_view> kinds) {
  const auto* custom = op.as<op::Custom>();
  if (custom && custom->definition && !custom->definition->host_only) return false;
  return std::find(kinds.begin(), kinds.end(), op.name()) != kinds.end();
}

bool is_view(const Op& op) {
  return is_metadata(op) || op.is<op::Broadcast>() || op.is<op::Slice>() || op.is<op::Reverse>();
}

std::int64_t operand_bytes(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  std::set<ValueId> seen;
  for (const ValueId id : node.inputs) {
    if (id.node >= 0 && seen.insert(id).second)
      bytes = saturating_add(bytes, bytes_of(graph.type(id)));
  }
  return bytes;
}

std::int64_t result_bytes(const Node& node) {
  std::int64_t bytes = 0;
  for (const Type& type : node.results) bytes = saturating_add(bytes, bytes_of(type));
  return bytes;
}

std::optional<MatmulShape> matmul_shape(const Graph& graph, const Node& node) {
  const auto elements = [&](std::size_t k) { return elements_of(graph.type(node.inputs[k])); };
  const auto dim = [&](std::size_t k, std::int64_t axis) {
    const Type type = bound_type(graph.type(node.inputs[k]));
    return type.shape[static_cast<std::size_t>(axis < 0 ? axis + type.rank() : axis)].value();
  };
  MatmulShape shape;
  if (const auto* dot = node.op.as<op::DotGeneral>()) {
    for (const std::int64_t axis : dot->a_contract)
      shape.k = saturating_multiply(shape.k, dim(0, axis));
    std::int64_t batch = 1;
    for (const std::int64_t axis : dot->b_batch) batch = saturating_multiply(batch, dim(1, axis));
    shape.m = elements(0) / std::max<std::int64_t>(shape.k, 1);
    shape.n = elements(1) / std::max<std::int64_t>(saturating_multiply(shape.k, batch), 1);
    return shape;
  }
  if (const auto* conv = node.op.as<op::Conv>()) {
    const std::int64_t groups = std::max<std::int64_t>(conv->groups, 1);
    const std::int64_t channels = dim(1, conv->channels_last ? -1 : 0);
    shape.n = std::max<std::int64_t>(channels / groups, 1);
    shape.k = elements(1) / std::max<std::int64_t>(channels, 1);
    shape.m = elements_of(node.results[0]) / std::max<std::int64_t>(shape.n, 1);
    return shape;
  }
  if (node.op.is<op::IntegerConv>()) {
    shape.n = dim(1, 0);
    shape.k = elements(1) / std::max<std::int64_t>(shape.n, 1);
    shape.m = elements_of(node.results[0]) / std::max<std::int64_t>(shape.n, 1);
    return shape;
  }
  if (const auto* attention = node.op.as<op::Attention>()) {
    shape.m = elements(0) / std::max<std::int64_t>(dim(0, 3), 1);
    shape.k = dim(0, 3);
    shape.n = dim(1, attention->bshd ? 1 : 2);
    return shape;
  }
  if (node.op.is<op::IntegerMatmul>() && graph.type(node.inputs[0]).rank() > 0) {
    shape.k = dim(0, -1);
    shape.m = elements(0) / std::max<std::int64_t>(shape.k, 1);
    shape.n = graph.type(node.inputs[1]).rank() > 1 ? dim(1, -1) : 1;
    return shape;
  }
  return std::nullopt;
}

}  // namespace cost

NodeCost node_cost(const Graph& graph, const Node& node) {
  if (cost::is_view(node.op)) return {};
  NodeCost result{0, static_cast<double>(cost::operand_bytes(graph, node)) +
                         static_cast<double>(cost::result_bytes(node))};
  std::vector<Type> types, results;
  for (const ValueId id : node.inputs)
    types.push_back(id.node < 0 ? Type{} : cost::bound_type(graph.type(id)));
  std::vector<const Type*> inputs;
  for (std::size_t i = 0; i < types.size(); ++i)
    inputs.push_back(node.inputs[i].node < 0 ? nullptr : &types[i]);
  for (const Type& type : node.results) results.push_back(cost::bound_type(type));

  const OpInfo& info = node.op.info();
  double elements = 0;
  for (const Type& type : results) elements += static_cast<double>(cost::elements_of(type));
  if (info.cost) {
    const OpCost own = info.cost(node.op.attributes(), inputs, results);
    result.flops = own.flops;
    // A rule may say that fewer bytes are touched than the operands hold (gathers).
    result.bytes = std::min(result.bytes, own.bytes);
  } else if (const auto inner = cost::control_flops(node)) {
    result.flops = *inner;
  } else if (info.scalar) {
    result.flops = elements * cost::operations_of_element(node, inputs);
  } else if (info.body && info.traits.composite) {
    result.flops = cost::body_flops(node, types, inputs);
  } else {
    for (const Type& type : types)
      elements = std::max(elements, static_cast<double>(cost::elements_of(type)));
    result.flops = elements;
  }
  return result;
}

}  // namespace rlx
