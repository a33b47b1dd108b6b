// Batches of products with one column: a b = sum(a * b^T), so that lanes run along what is summed,
// not across columns that do not exist.
#include <algorithm>
#include <numeric>

#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// Are these the axes from `first` on?
bool are_from(const Axes& axes, std::int64_t first) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != first + static_cast<std::int64_t>(i)) return false;
  return true;
}

/// a [batch..., rows..., k] by b [batch..., k], axes of one element aside; more than one batch.
bool has_single_columns(const Graph& graph, const Node& node, const op::DotGeneral& dot) {
  const Type &a = graph.type(node.inputs[0]), &b = graph.type(node.inputs[1]);
  if (!a.is_static() || !b.is_static() || a.dtype != f32 || b.dtype != f32 || a.elements() == 0)
    return false;
  const auto batch = static_cast<std::int64_t>(dot.a_batch.size());
  if (!are_from(dot.a_batch, 0) || !are_from(dot.b_batch, 0) ||
      dot.a_contract != Axes{a.rank() - 1} || dot.b_contract.size() != 1)
    return false;
  const Dims dims = b.dims();
  const std::int64_t parts =
      std::accumulate(dims.begin(), dims.begin() + batch, std::int64_t{1}, std::multiplies());
  return parts > 1 && b.elements() == parts * a.dims().back();
}

}  // namespace

Result<Graph> single_columns(Graph graph) {
  const std::vector<bool> is_weight = weight_only_nodes(graph);
  const auto visit = [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
    const auto* dot = node.op.as<op::DotGeneral>();
    if (!dot || is_weight[static_cast<std::size_t>(node.inputs[1].node)] ||
        !has_single_columns(rewriter.source(), node, *dot))
      return false;
    const Values operands = rewriter.values_of(node);
    const Shape& rows = operands[0].shape();
    Shape row(rows.size(), Dim(1));
    std::copy_n(rows.begin(), dot->a_batch.size(), row.begin());
    row.back() = rows.back();
    const Value sum = rlx::reduce(operands[0] * reshape(operands[1], row), Reduction::sum,
                                  {static_cast<std::int64_t>(rows.size()) - 1}, true);
    rewriter.replace(index, Values{reshape(sum, node.results[0].shape)});
    return true;
  };
  return rewrite(std::move(graph), visit);
}

}  // namespace rlx::passes
