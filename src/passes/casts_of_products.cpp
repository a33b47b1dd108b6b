// Puts the casts of operands that kernels read as they are stored right before their products.
#include <algorithm>
#include <map>

#include "graph/narrow_products.hpp"
#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

class CastsOfProducts {
 public:
  explicit CastsOfProducts(const Graph& graph)
      : graph_(graph), weight_only_(weight_only_nodes(graph)) {}

  bool applies(const Node& node) const {
    return multiplies_narrow_integers(graph_, node) || has_waited_halves(node);
  }

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    const bool integers = multiplies_narrow_integers(graph_, node);
    if (!integers && !has_waited_halves(node)) return false;
    std::vector<ValueId> operands;
    for (const ValueId input : node.inputs) {
      const bool own = integers || input == node.inputs[1];
      operands.push_back(own ? own_cast(rewriter, input) : rewriter(input));
    }
    RLX_TRY(rewriter.add(index, node.op, operands));
    return true;
  }

 private:
  /// Is the product's B made of halves by a cast and what orders elements, and waited for?
  bool has_waited_halves(const Node& node) const {
    const bool product = node.op.is<op::DotGeneral>() || node.op.is<op::Conv>();
    if (!product || node.inputs.size() != 2 || node.results[0].dtype != f32) return false;
    const ValueId b = node.inputs[1];
    return !weight_only_[static_cast<std::size_t>(b.node)] &&
           widens_halves(graph_, cast_below(b)) && waits_for_b(graph_, node);
  }

  static bool orders(const Node& node) {
    return node.op.is<op::Transpose>() || node.op.is<op::Reshape>();
  }
  ValueId cast_below(ValueId id) const {
    while (orders(graph_.node(id))) id = graph_.node(id).inputs[0];
    return id;
  }

  /// What the operand's cast reads, ordered as the operand is.
  ValueId stored(Rewriter& rewriter, ValueId operand) {
    const Node& node = graph_.node(operand);
    if (!orders(node)) return rewriter(node.inputs[0]);
    Graph& target = rewriter.target();
    return target.add_one(node.op, {target.handle(stored(rewriter, node.inputs[0]))}).id();
  }

  ValueId own_cast(Rewriter& rewriter, ValueId operand) {
    const auto [known, fresh] = casts_.try_emplace(operand);
    if (fresh) {
      const Value narrow = rewriter.target().handle(stored(rewriter, operand));
      known->second = cast(narrow, graph_.type(operand).dtype).id();
    }
    return known->second;
  }

  const Graph& graph_;
  const std::vector<bool> weight_only_;
  std::map<ValueId, ValueId> casts_;  ///< by operand of the source
};

}  // namespace

Result<Graph> casts_of_products(Graph graph) {
  CastsOfProducts casts(graph);
  if (std::ranges::none_of(graph.nodes(), [&](const Node& n) { return casts.applies(n); }))
    return graph;
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   return casts.visit(rewriter, index, node);
                 });
}

}  // namespace rlx::passes
