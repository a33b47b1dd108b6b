// Thin groups of convolutions: side by side in wider ones, or one channel of each at a time.
#include "passes/thin_groups.hpp"

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

// Of groups with one channel in and `count` out: the first results of all groups, the second ones
// and so on, each by a depthwise convolution; then in the groups' order.
Value by_depth(const op::Conv& conv, Value x, Value w, std::int64_t count) {
  const Dims taps = w.type().dims();
  Shape by_group{conv.groups, count}, one{conv.groups, 1};
  for (std::size_t i = 2; i < taps.size(); ++i) {
    by_group.emplace_back(taps[i]);
    one.emplace_back(taps[i]);
  }
  const Value all = reshape(w, by_group);
  Values parts;
  for (std::int64_t k = 0; k < count; ++k) {
    Axes starts(taps.size(), 0), limits = all.type().dims();
    starts[1] = k, limits[1] = k + 1;
    parts.push_back(w.graph().add_one(conv, {x, reshape(slice(all, starts, limits), one)}));
  }
  const Dims made = parts[0].type().dims();
  Shape apart{made[0], count, conv.groups}, together{made[0], conv.groups * count};
  Axes order{0, 2, 1};
  for (std::size_t i = 2; i < made.size(); ++i) {
    apart.emplace_back(made[i]);
    together.emplace_back(made[i]);
    order.push_back(static_cast<std::int64_t>(i) + 1);
  }
  return reshape(transpose(reshape(concat(parts, 1), apart), order), together);
}

}  // namespace

Result<Graph> thin_groups(Graph graph, std::int64_t lanes) {
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
    if (in == 1 && out > 1 && 4 * out <= lanes && conv->groups >= lanes) {
      rewriter.replace(index, Values{by_depth(*conv, inputs[0], inputs[1], out)});
      return true;
    }
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
