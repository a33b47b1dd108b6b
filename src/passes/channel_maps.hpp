// Elementwise maps behind a convolution that treat all points of a channel alike: a pass that gives
// the convolution another form, or its result another order, takes them along.
#pragma once

#include <functional>
#include <vector>

#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

class ChannelMaps {
 public:
  explicit ChannelMaps(const Graph& graph);

  /// Does it depend on params and constants alone?
  bool is_weight_only(ValueId id) const { return weight_only_[static_cast<std::size_t>(id.node)]; }
  /// Nodes behind `node` (of one static result), each the only reader of the one before, whose
  /// other operands are weights of one value, or of one for each place of `channel_axis`.
  std::vector<std::int32_t> behind(std::int32_t node, std::size_t channel_axis) const;
  /// The only node that reads a node's result; -1 where there are others, or it is an output.
  std::int32_t only_reader(std::int32_t node) const;
  /// The transposition in which a node's only reader shows its result; null where it is read as it
  /// is.
  const op::Transpose* shown_by(std::int32_t node) const;

 private:
  bool is_of_channels(ValueId id, const Dims& dims, std::size_t channel_axis) const;

  const Graph& graph_;
  std::vector<std::vector<std::int32_t>> readers_;  ///< -1: an output
  std::vector<bool> weight_only_;
};

/// The maps behind `node`, which is `y` now, once more; `operand` gives the form of an operand that
/// suits y.
Result<Value> add_maps(Rewriter& rewriter, std::int32_t node, const std::vector<std::int32_t>& maps,
                       Value y, const std::function<Value(Value)>& operand);

/// Such an operand as values with their channels last want it.
Value for_last_axis(Value operand);

/// A convolution or matrix product that is written anew, with the maps behind it.
struct FoundProduct {
  std::int32_t product = -1;
  std::vector<std::int32_t> maps;  ///< each reads the one before

  std::int32_t last() const { return maps.empty() ? product : maps.back(); }
};

/// Rebuilds `graph` with `made(rewriter, what)` in place of each product in `found` and of the
/// maps that it takes along.
template <class What, class Make>
Result<Graph> replace_found(Graph graph, const std::vector<What>& found, const Make& made) {
  if (found.empty()) return graph;
  constexpr std::int32_t stays = -1;
  std::vector<std::int32_t> place(graph.nodes().size(), stays);  // in `found`, by node
  for (std::size_t k = 0; k < found.size(); ++k) {
    place[static_cast<std::size_t>(found[k].product)] = static_cast<std::int32_t>(k);
    for (const std::int32_t map : found[k].maps)
      place[static_cast<std::size_t>(map)] = static_cast<std::int32_t>(k);
  }
  return rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node&) -> Result<bool> {
    const std::int32_t at = place[static_cast<std::size_t>(index)];
    if (at == stays) return false;
    const What& here = found[static_cast<std::size_t>(at)];
    if (index != here.last()) return true;  // read by the next alone
    RLX_ASSIGN(const Value y, made(rewriter, here));
    rewriter.replace(index, Values{y});
    return true;
  });
}

}  // namespace rlx::passes
