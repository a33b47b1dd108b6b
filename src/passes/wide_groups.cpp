// Thin groups of convolutions, side by side in wider ones.
#include "passes/wide_groups.hpp"

#include <vector>

#include "graph/weight_only.hpp"
#include "passes/rewriter.hpp"
#include "passes/unit_matrix.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// So many groups to share one: as many as fill a register, of channels in and out.
std::int64_t shared_by(std::int64_t groups, std::int64_t in, std::int64_t out, std::int64_t lanes) {
  std::int64_t most = 1;
  for (std::int64_t count = 2; count * out <= lanes && count * in <= lanes; ++count)
    if (groups % count == 0) most = count;
  return most;
}

// w [G * count * o, i, ...] -> [G, count, o, 1, i, ...] * unit [1, count, 1, count, 1, ...]
// -> [G * count * o, count * i, ...]
Value widened(Value w, std::int64_t groups, std::int64_t count) {
  const std::int64_t all = w.shape()[0].value(), in = w.shape()[1].value();
  Shape split{groups / count, count, all / groups, 1, in}, unit{1, count, 1, count, 1};
  Shape joined{all, count * in};
  for (std::size_t i = 2; i < w.shape().size(); ++i) {
    split.push_back(w.shape()[i]);
    unit.push_back(Dim(1));
    joined.push_back(w.shape()[i]);
  }
  return reshape(reshape(w, split) * reshape(w.graph().constant(unit_matrix(count)), unit), joined);
}

}  // namespace

Result<Graph> wide_groups(Graph graph, std::int64_t lanes) {
  const auto has_groups = [](const Node& node) {
    const auto* const conv = node.op.as<op::Conv>();
    return conv && conv->groups > 1;
  };
  if (std::ranges::none_of(graph.nodes(), has_groups)) return graph;
  const std::vector<bool> weight_only = weight_only_nodes(graph);
  const auto widen = [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
    const auto* const conv = node.op.as<op::Conv>();
    if (!conv || conv->groups == 1 || conv->transposed || conv->channels_last ||
        node.inputs.size() != 2 || !node.results[0].is_static() || node.results[0].dtype != f32 ||
        !weight_only[static_cast<std::size_t>(node.inputs[1].node)])
      return false;
    const Values inputs = rewriter.values_of(node);
    const std::int64_t in = inputs[1].shape()[1].value();
    const std::int64_t out = inputs[1].shape()[0].value() / conv->groups;
    const std::int64_t count = shared_by(conv->groups, in, out, lanes);
    if ((in == 1 && out == 1) || count == 1) return false;
    op::Conv wide = *conv;
    wide.groups /= count;
    const Value w = widened(inputs[1], conv->groups, count);
    rewriter.replace(index, Values{rewriter.target().add_one(wide, {inputs[0], w})});
    return true;
  };
  return rewrite(graph, widen);
}

}  // namespace rlx::passes
