// Merging equal nodes and dropping dead ones.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "graph/bind_dims.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {

Result<Graph> drop_dead(Graph graph) {
  std::vector<bool> live(graph.nodes().size(), false);
  const bool has_names = std::ranges::any_of(
      graph.nodes(), [](const Node& node) { return node.op.is<op::NameDims>(); });
  std::set<std::string> names;  // in attributes of what is live: who binds them stays
  for (const GraphOutput& output : graph.outputs())
    live[static_cast<std::size_t>(output.value.node)] = true;
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.op.is<op::Update>() || node.op.is<op::Input>()) live[i] = true;
    if (const auto* named = node.op.as<op::NameDims>()) {
      live[i] = live[i] || std::ranges::any_of(named->shape, [&](const Dim& dim) {
                  return names.contains(dim.text());
                });
    }
    if (!live[i]) continue;
    if (has_names) collect_names(node.op, names);
    for (const ValueId input : node.inputs) {
      if (input.node >= 0) live[static_cast<std::size_t>(input.node)] = true;
    }
  }
  if (std::ranges::all_of(live, std::identity())) return graph;
  return rewrite(graph, [&](Rewriter&, std::int32_t index, const Node&) -> Result<bool> {
    return !live[static_cast<std::size_t>(index)];
  });
}

Result<Graph> merge_equal(Graph graph) {
  // Nodes of one op on the same inputs are candidates; attributes decide.
  std::map<std::pair<const OpInfo*, std::vector<ValueId>>, std::vector<std::vector<ValueId>>> seen;
  return rewrite(std::move(graph),
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   const OpTraits& traits = node.op.info().traits;
                   if (traits.random || traits.stateful || traits.control_flow) return false;
                   auto& candidates = seen[{&node.op.info(), rewriter.inputs_of(node)}];
                   for (const std::vector<ValueId>& results : candidates) {
                     if (rewriter.so_far().node(results.front()).op == node.op) {
                       rewriter.replace(index, results);
                       return true;
                     }
                   }
                   RLX_TRY(rewriter.copy(index));
                   std::vector<ValueId> results;
                   for (std::size_t i = 0; i < node.results.size(); ++i)
                     results.push_back(rewriter({index, static_cast<std::int32_t>(i)}));
                   if (candidates.size() < 64) candidates.push_back(std::move(results));
                   return true;
                 });
}

}  // namespace rlx::passes
