// Graphs inside graphs: branches and loop bodies.
#include <algorithm>

#include "graph/partial_visitor.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// Replaces every graph among an op's fields.
class MapGraphs : public PartialVisitor<MutableFieldVisitor> {
 public:
  using PartialVisitor::visit;
  explicit MapGraphs(const std::function<Result<Graph>(const Graph&)>& map) : map_(map) {}
  Status status;
  bool found = false;
  void visit(std::string_view, GraphPointer& graph) override {
    if (!graph || !status.ok()) return;
    found = true;
    auto mapped = map_(*graph);
    if (!mapped.ok()) {
      status = mapped.error();
    } else {
      graph = std::make_shared<const Graph>(*std::move(mapped));
    }
  }

 private:
  const std::function<Result<Graph>(const Graph&)>& map_;
};

}  // namespace

Result<Op> with_mapped_graphs(const Op& op, const std::function<Result<Graph>(const Graph&)>& map) {
  const std::shared_ptr<void> copy = op.info().copy(op.attributes());
  MapGraphs visitor(map);
  op.info().visit_mutable(copy.get(), visitor);
  RLX_TRY(visitor.status);
  return Op(op.info(), copy);
}

Result<Graph> map_subgraphs(Graph graph, const std::function<Result<Graph>(const Graph&)>& map) {
  const bool any = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                               [](const Node& node) { return node.op.info().traits.control_flow; });
  if (!any) return graph;
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   if (!node.op.info().traits.control_flow) return false;
                   RLX_ASSIGN(Op mapped, with_mapped_graphs(node.op, map));
                   RLX_TRY(rewriter.add(index, std::move(mapped), rewriter.inputs_of(node)));
                   return true;
                 });
}

Result<Values> inline_graph(Graph& target, const Graph& graph, std::span<const Value> operands) {
  ValueMap mapped(graph);
  std::size_t next_operand = 0;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.op.is<op::Input>()) {
      mapped[i] = {operands[next_operand++].id()};
      continue;
    }
    RLX_ASSIGN(mapped[i], target.try_copy(graph, node, mapped(node.inputs)));
  }
  Values results;
  for (const GraphOutput& output : graph.outputs())
    results.push_back(target.handle(mapped(output.value)));
  return results;
}

}  // namespace rlx::passes
