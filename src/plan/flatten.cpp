// Branches side by side: every If becomes predicated nodes and selects. Bodies of loops likewise.
#include <algorithm>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "graph/value_map.hpp"
#include "plan/regions.hpp"

namespace rlx::plan {
namespace {

const Graph* loop_body(const Op& op) {
  if (const auto* scan = op.as<op::Scan>()) return scan->body.get();
  const auto* loop = op.as<op::HostLoop>();
  return loop ? loop->body.get() : nullptr;
}

bool has_static_shapes(const Graph& graph);

bool has_static_shapes(const Node& node) {
  const OpTraits& traits = node.op.info().traits;
  const bool keeps_state = node.op.is<op::State>() || node.op.is<op::Update>();
  if (keeps_state || traits.shape_operands || (traits.data_dependent && !traits.control_flow))
    return false;
  if (const auto* branch = node.op.as<op::If>()) {
    if (!has_static_shapes(*branch->then_branch) || !has_static_shapes(*branch->else_branch))
      return false;
  }
  return std::all_of(node.results.begin(), node.results.end(),
                     [](const Type& type) { return type.is_static(); });
}

bool has_static_shapes(const Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return has_static_shapes(node); });
}

class Flattening {
 public:
  using Predicates = std::vector<FlatGraph::Predicate>;

  /// Adds the nodes of `graph`; `operands` stand for its inputs (empty: inputs are kept). Gives its
  /// outputs.
  Result<std::vector<ValueId>> add(const Graph& graph, const std::vector<ValueId>* operands,
                                   const Predicates& predicates) {
    ValueMap mapped(graph);
    std::size_t next_operand = 0;
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (operands && node.op.is<op::Input>()) {
        mapped[i] = {(*operands)[next_operand++]};
        continue;
      }
      const std::vector<ValueId> inputs = mapped(node.inputs);
      if (const auto* branch = node.op.as<op::If>()) {
        RLX_ASSIGN(mapped[i], add_branches(*branch, inputs, predicates));
      } else {
        RLX_ASSIGN(mapped[i], add_node(node.op, inputs, node, predicates));
      }
    }
    std::vector<ValueId> outputs;
    for (const GraphOutput& output : graph.outputs()) outputs.push_back(mapped(output.value));
    return outputs;
  }

  /// A graph without branches, which is flat.
  Result<FlatGraph> as_it_is(const Graph& graph) {
    flat_.graph = graph;
    flat_.predicates.resize(graph.nodes().size());
    for (std::size_t i = 0; i < graph.nodes().size(); ++i)
      RLX_TRY(add_body(static_cast<std::int32_t>(i)));
    return std::move(flat_);
  }

  FlatGraph finish(const std::vector<GraphOutput>& names, const std::vector<ValueId>& values) {
    std::vector<GraphOutput> outputs;
    for (std::size_t i = 0; i < names.size(); ++i) outputs.push_back({names[i].name, values[i]});
    flat_.graph.set_outputs(std::move(outputs));
    return std::move(flat_);
  }

 private:
  Result<std::vector<ValueId>> add_node(Op op, const std::vector<ValueId>& inputs, const Node& like,
                                        const Predicates& predicates) {
    RLX_ASSIGN(auto results, flat_.graph.try_add(std::move(op), inputs, like.name, like.origin));
    flat_.predicates.push_back(predicates);
    RLX_TRY(add_body(static_cast<std::int32_t>(flat_.predicates.size()) - 1));
    return results;
  }

  /// The body of a loop, unless only evaluation can follow its shapes.
  Status add_body(std::int32_t index) {
    const Op& op = flat_.graph.nodes()[static_cast<std::size_t>(index)].op;
    const Graph* body = loop_body(op);
    if (!body || !has_static_shapes(*body)) return {};
    auto flat = flatten(*body);
    if (!flat.ok() && flat.error().kind == ErrorKind::unsupported) return {};
    RLX_ASSIGN(FlatGraph graph, std::move(flat));
    flat_.bodies.push_back({index, std::make_shared<const FlatGraph>(std::move(graph))});
    return {};
  }

  // if(c, a, b) = select(c, a, b), where a's nodes run only if c, b's only if not c
  Result<std::vector<ValueId>> add_branches(const op::If& branch,
                                            const std::vector<ValueId>& inputs,
                                            const Predicates& predicates) {
    const std::vector<ValueId> operands(inputs.begin() + 1, inputs.end());
    Predicates when_true = predicates, when_false = predicates;
    when_true.push_back({inputs[0], true});
    when_false.push_back({inputs[0], false});
    RLX_ASSIGN(const auto a, add(*branch.then_branch, &operands, when_true));
    RLX_ASSIGN(const auto b, add(*branch.else_branch, &operands, when_false));
    std::vector<ValueId> results;
    for (std::size_t k = 0; k < a.size(); ++k) {
      const Type& x = flat_.graph.type(a[k]);
      const Type& y = flat_.graph.type(b[k]);
      if (x != y) {
        return unsupported(
            "The branches of an if give {} and {}: shapes that the condition decides are not "
            "supported here.",
            x.text(), y.text());
      }
      const Node like{op::Select{}, {}, {}, {}, "if"};
      RLX_ASSIGN(const auto joined,
                 add_node(op::Select{}, {inputs[0], a[k], b[k]}, like, predicates));
      results.push_back(joined[0]);
    }
    return results;
  }

  FlatGraph flat_;
};

}  // namespace

Result<FlatGraph> flatten(const Graph& graph) {
  Flattening flattening;
  if (std::ranges::none_of(graph.nodes(), [](const Node& node) { return node.op.is<op::If>(); }))
    return flattening.as_it_is(graph);
  RLX_ASSIGN(const auto outputs, flattening.add(graph, nullptr, {}));
  return flattening.finish(graph.outputs(), outputs);
}

std::vector<const Graph*> graphs_of(const FlatGraph& flat) {
  std::vector<const Graph*> graphs{&flat.graph};
  for (const FlatGraph::Body& body : flat.bodies) {
    const std::vector<const Graph*> inner = graphs_of(*body.graph);
    graphs.insert(graphs.end(), inner.begin(), inner.end());
  }
  return graphs;
}

}  // namespace rlx::plan
