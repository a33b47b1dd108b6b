// Splits reductions between the outermost of their axes and the others.
#include "passes/sums_of_rows.hpp"

#include <algorithm>

#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// A kernel of fewer elements is not shared out, nor is what it reads.
constexpr std::int64_t fewest_elements = 8192, fewest_rows = 4;

/// How a reduction is split: over `outer` in the end, an axis of the operand as `cut` has it.
struct Split {
  Dims cut;  ///< the operand's dims; those that it has, or with a long axis in two
  std::int64_t outer = 0;
  Axes inner;
};

/// The largest number of rows, up to 16, that divides a long axis.
std::int64_t rows_of(std::int64_t extent) {
  for (std::int64_t rows = 16; rows >= fewest_rows; --rows)
    if (extent % rows == 0 && extent / rows >= fewest_rows) return rows;
  return 1;
}

std::optional<Split> split_of(const op::Reduce& reduce, const Dims& dims) {
  Split split{.cut = dims};
  for (const std::int64_t axis : reduce.axes)
    if (dims[static_cast<std::size_t>(axis)] > 1) split.inner.push_back(axis);
  std::ranges::sort(split.inner);
  if (split.inner.empty() || split.inner.back() + 1 == std::ssize(dims)) return std::nullopt;
  split.outer = split.inner.front();
  if (split.inner.size() > 1) {
    split.inner.erase(split.inner.begin());
  } else {
    const auto axis = split.cut.begin() + split.outer;
    const std::int64_t rows = rows_of(*axis);
    *axis /= rows;
    split.cut.insert(axis, rows);
    split.inner = {split.outer + 1};
  }
  if (split.cut[static_cast<std::size_t>(split.outer)] < fewest_rows) return std::nullopt;
  return split;
}

/// Does all that follows from the node's result reach products or outputs before it meets larger
/// values?
bool stays_small(const Graph& graph, const std::vector<std::vector<std::int32_t>>& readers,
                 std::int32_t index) {
  const auto elements = [&](std::int32_t node) {
    const Type& type = graph.nodes()[static_cast<std::size_t>(node)].results[0];
    return type.is_static() ? type.elements() : -1;
  };
  const std::int64_t most = elements(index);
  std::vector<std::int32_t> open{index};
  constexpr std::size_t looked_at = 32;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open.size() > looked_at) return false;
    for (const std::int32_t reader : readers[static_cast<std::size_t>(open[i])]) {
      if (reader < 0) continue;  // an output
      const Node& node = graph.nodes()[static_cast<std::size_t>(reader)];
      if (node.op.is<op::Conv>() || node.op.is<op::DotGeneral>()) continue;
      const std::int64_t size = node.results.size() == 1 ? elements(reader) : -1;
      if (size < 0 || size > most) return false;
      if (std::ranges::find(open, reader) == open.end()) open.push_back(reader);
    }
  }
  return true;
}

}  // namespace

Result<Graph> sums_of_rows(Graph graph, int workers) {
  if (workers < 2) return graph;
  const auto readers = readers_of(graph);
  const auto split_up = [&](Rewriter& rewriter, std::int32_t index,
                            const Node& node) -> Result<bool> {
    const auto* const reduce = node.op.as<op::Reduce>();
    if (!reduce || !reduce->keep_dims || reduce->kind == Reduction::mean) return false;
    const Type& type = graph.type(node.inputs[0]);
    if (!type.is_static() || !is_float(type.dtype) || type.elements() < fewest_elements)
      return false;
    const std::optional<Split> split = split_of(*reduce, type.dims());
    if (!split || !stays_small(graph, readers, index)) return false;
    const Value x = rewriter.values_of(node)[0];
    const bool cut = split->cut != type.dims();
    const Value rows = rlx::reduce(cut ? reshape(x, {split->cut.begin(), split->cut.end()}) : x,
                                   reduce->kind, split->inner, true);
    const Value all = rlx::reduce(rows, reduce->kind, {split->outer}, true);
    rewriter.replace(index, Values{cut ? reshape(all, node.results[0].shape) : all});
    return true;
  };
  return rewrite(std::move(graph), split_up);
}

}  // namespace rlx::passes
