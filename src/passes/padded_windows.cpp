// Convolutions of padded images, as frameworks write them whose own padding is the same on all
// sides.
#include <algorithm>

#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

bool is_zero(const Graph& graph, ValueId id) {
  const auto* constant = graph.node(id).op.as<op::Constant>();
  if (!constant) return false;
  const Tensor& value = constant->value;
  return std::all_of(value.data(), value.data() + value.bytes(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// The pad that adds zeros around the image that a convolution reads; null where there is none, or
/// where it adds images or channels, or takes away.
const op::Pad* zeros_around(const Graph& graph, const Node& node, const op::Conv& conv) {
  const Node& read = graph.node(node.inputs[0]);
  const auto* pad = read.op.as<op::Pad>();
  if (!pad || pad->mode != PadMode::constant || conv.transposed) return nullptr;
  if (read.inputs.size() > 1 && read.inputs[1].node >= 0 && !is_zero(graph, read.inputs[1]))
    return nullptr;
  const std::size_t rank = pad->low.size(), channels = conv.channels_last ? rank - 1 : 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const bool is_spatial = axis != 0 && axis != channels;
    const std::int64_t low = pad->low[axis], high = pad->high[axis];
    if (is_spatial ? low < 0 || high < 0 : low != 0 || high != 0) return nullptr;
  }
  return pad;
}

}  // namespace

Result<Graph> padded_windows(Graph graph) {
  return rewrite(std::move(graph),
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   const auto* conv = node.op.as<op::Conv>();
                   if (!conv) return false;
                   const op::Pad* pad = zeros_around(rewriter.source(), node, *conv);
                   if (!pad) return false;
                   const std::size_t first = conv->channels_last ? 1 : 2;
                   op::Conv padded = *conv;
                   padded.pad_low.resize(pad->low.size() - 2, 0);
                   padded.pad_high.resize(pad->low.size() - 2, 0);
                   for (std::size_t i = 0; i < padded.pad_low.size(); ++i) {
                     padded.pad_low[i] += pad->low[first + i];
                     padded.pad_high[i] += pad->high[first + i];
                   }
                   std::vector<ValueId> inputs = rewriter.inputs_of(node);
                   inputs[0] = rewriter(rewriter.source().node(node.inputs[0]).inputs[0]);
                   RLX_TRY(rewriter.add(index, std::move(padded), std::move(inputs)));
                   return true;
                 });
}

}  // namespace rlx::passes
