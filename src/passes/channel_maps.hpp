// Elementwise maps behind a convolution that treat all points of a channel alike: a pass that gives
// the convolution another form, or its result another order, takes them along.
#pragma once

#include <functional>
#include <vector>

#include "passes/rewriter.hpp"

namespace rlx::passes {

class ChannelMaps {
 public:
  explicit ChannelMaps(const Graph& graph);

  /// Does it depend on params and constants alone?
  bool is_weight_only(ValueId id) const { return weight_only_[static_cast<std::size_t>(id.node)]; }
  /// Nodes behind `node` (of one static result), each the only reader of the one before, whose
  /// other operands are weights of one value, or of one for each place of `channel_axis`.
  std::vector<std::int32_t> behind(std::int32_t node, std::size_t channel_axis) const;

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

}  // namespace rlx::passes
