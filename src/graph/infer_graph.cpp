// Inference over a whole graph with other input types than those it was built with: what control
// flow asks of its parts.
#include "base/error.hpp"
#include "graph/op_info.hpp"

namespace rlx {
namespace {

// The given type with the dims that the graph knows better.
Result<Type> accepted(const op::Input& input, const Type& given) {
  const Type declared{input.dtype, input.shape};
  bool fits = given.dtype == declared.dtype && given.rank() == declared.rank();
  for (std::size_t i = 0; fits && i < given.shape.size(); ++i)
    fits = compatible(given.shape[i], declared.shape[i]);
  if (!fits)
    return bad_input("The input ({}) is {} and cannot be {}.", input.name, declared.text(),
                     given.text());
  Type type = given;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    if (type.shape[i].is_unknown() && declared.shape[i].is_static())
      type.shape[i] = declared.shape[i];
  }
  return type;
}

Result<std::vector<Type>> infer_node(const Node& node,
                                     const std::vector<std::vector<Type>>& types) {
  std::vector<const Type*> operands;
  for (const ValueId id : node.inputs) {
    operands.push_back(
        id.node < 0
            ? nullptr
            : &types[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)]);
  }
  RLX_ASSIGN(std::vector<Type> results,
             node.op.info().infer(node.op.attributes(), InferArgs{operands}));
  // What was known when the node was added (from constants, say) is not forgotten.
  for (std::size_t r = 0; r < results.size() && r < node.results.size(); ++r) {
    Shape& shape = results[r].shape;
    const Shape& before = node.results[r].shape;
    for (std::size_t i = 0; i < shape.size() && shape.size() == before.size(); ++i) {
      if (shape[i].is_unknown() && before[i].is_static()) shape[i] = before[i];
    }
  }
  return results;
}

}  // namespace

Result<std::vector<Type>> infer_graph(const Graph& graph, std::span<const Type> inputs) {
  std::vector<std::vector<Type>> types(graph.nodes().size());
  std::size_t next_input = 0;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (const auto* input = node.op.as<op::Input>()) {
      if (next_input == inputs.size())
        return bad_input("The graph has more inputs than it was given ({}).", inputs.size());
      RLX_ASSIGN(Type type, accepted(*input, inputs[next_input++]));
      types[n] = {std::move(type)};
      continue;
    }
    auto inferred = infer_node(node, types);
    if (!inferred.ok())
      return std::move(inferred.error())
          .while_(fmt::format("inferring {} of a graph inside", node.op.name()));
    types[n] = *std::move(inferred);
  }
  if (next_input != inputs.size())
    return bad_input("The graph has ({}) inputs and was given ({}).", next_input, inputs.size());
  std::vector<Type> outputs;
  for (const GraphOutput& output : graph.outputs()) {
    outputs.push_back(types[static_cast<std::size_t>(output.value.node)]
                           [static_cast<std::size_t>(output.value.result)]);
  }
  return outputs;
}

}  // namespace rlx
