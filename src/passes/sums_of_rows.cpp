// Splits reductions between the outermost of their axes and the others.
#include "passes/sums_of_rows.hpp"

#include <algorithm>
#include <optional>

#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// One worker has smaller images to itself, where a second kernel would show.
constexpr std::int64_t fewest_elements = 32768, fewest_rows = 4;

/// The reduced axes, of more than one element; nothing where they are not worth a split.
std::optional<Axes> axes_of(const op::Reduce& reduce, const Dims& dims) {
  Axes axes;
  for (const std::int64_t axis : reduce.axes)
    if (dims[static_cast<std::size_t>(axis)] > 1) axes.push_back(axis);
  std::ranges::sort(axes);
  if (axes.size() < 2 || axes.back() + 1 == std::ssize(dims) ||
      dims[static_cast<std::size_t>(axes.front())] < fewest_rows)
    return std::nullopt;
  return axes;
}

}  // namespace

Result<Graph> sums_of_rows(Graph graph, int workers) {
  if (workers < 2) return graph;
  const auto split_up = [&](Rewriter& rewriter, std::int32_t index,
                            const Node& node) -> Result<bool> {
    const auto* const reduce = node.op.as<op::Reduce>();
    if (!reduce || !reduce->keep_dims || reduce->kind == Reduction::mean) return false;
    const Type& type = graph.type(node.inputs[0]);
    if (!type.is_static() || !is_float(type.dtype) || type.elements() < fewest_elements)
      return false;
    const std::optional<Axes> axes = axes_of(*reduce, type.dims());
    if (!axes) return false;
    const Value x = rewriter.values_of(node)[0];
    const Value rows = rlx::reduce(x, reduce->kind, {axes->begin() + 1, axes->end()}, true);
    rewriter.replace(index, Values{rlx::reduce(rows, reduce->kind, {axes->front()}, true)});
    return true;
  };
  return rewrite(std::move(graph), split_up);
}

}  // namespace rlx::passes
