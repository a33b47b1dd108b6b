// Transposed convolutions with strides as plain ones of which every channel block is one phase of
// the result (sub-pixel convolutions): nothing is multiplied with zeros between the elements of x.
#include "passes/sub_pixel.hpp"

#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/phases.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// A transposed convolution and the maps behind it that treat all points of a channel alike.
struct Upsampling : FoundProduct {
  Phases phases;
};

Value phase_convolution(Rewriter& rewriter, const Node& node, const Phases& phases) {
  const Values inputs = rewriter.values_of(node);
  const auto rank = static_cast<std::int64_t>(phases.axes.size()) + 2;
  Axes to_back{0};
  for (std::int64_t axis = 2; axis < rank; ++axis) to_back.push_back(axis);
  to_back.push_back(1);
  op::Conv plain = plain_convolution(phases);
  plain.channels_last = true;
  Value y = rewriter.target().add_one(
      plain, {transpose(inputs[0], to_back), phase_weights(inputs[1], phases)});
  if (inputs.size() > 2 && inputs[2]) y = y + channel_operand(inputs[2], phases);
  return y;
}

Result<Value> upsampled(Rewriter& rewriter, const Upsampling& up) {
  const Node& conv = rewriter.source().nodes()[static_cast<std::size_t>(up.product)];
  RLX_ASSIGN(const Value y,
             add_maps(rewriter, up.product, up.maps, phase_convolution(rewriter, conv, up.phases),
                      [&](Value operand) { return channel_operand(operand, up.phases); }));
  return joined_phases(y, up.phases);
}

}  // namespace

Result<Graph> sub_pixel(Graph graph) {
  const ChannelMaps maps(graph);
  std::vector<Upsampling> found;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    if (auto phases = phases_of(graph, graph.nodes()[i]))
      found.push_back({{index, maps.behind(index, 1)}, std::move(*phases)});
  }
  return replace_found(std::move(graph), found, upsampled);
}

}  // namespace rlx::passes
