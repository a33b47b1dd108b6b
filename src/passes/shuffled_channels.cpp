// Recognises how channels are shuffled, and shuffles weights instead.
#include "passes/shuffled_channels.hpp"

#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// Splits [N, C, places...] into [N, parts..., places...], and shows it as [N, out, (place,
/// phase)...].
bool moves_phases(const Node& split, const Node& order, const ShuffledChannels& channels) {
  const auto spatial = static_cast<std::int64_t>(channels.phases.axes.size());
  Shape wanted = channels.parts();
  wanted.insert(wanted.begin(), split.results[0].shape[0]);
  Axes perm{0, 1 + channels.part(spatial)};
  for (std::int64_t i = 0; i < spatial; ++i) {
    wanted.push_back(channels.phases.axes[static_cast<std::size_t>(i)].places);
    perm.insert(perm.end(), {2 + spatial + i, 1 + channels.part(i)});
  }
  return split.results[0].shape == wanted && order.op.as<op::Transpose>()->perm == perm;
}

}  // namespace

Value ShuffledChannels::channels(Value vector) const {
  const Shape split = parts();
  Axes perm;
  for (std::int64_t i = 0; i < std::ssize(split); ++i) perm.push_back(part(i));
  return reshape(transpose(reshape(vector, split), perm), {Dim(phases.channels())});
}

Value ShuffledChannels::weights(Value w) const {
  const Shape shape = w.shape();
  Shape split = parts(), joined(shape.begin() + 2, shape.end());
  const std::int64_t count = std::ssize(split);
  split.insert(split.end(), shape.begin() + 1, shape.end());
  Axes perm;
  for (std::int64_t i = 2; i < std::ssize(shape); ++i) perm.push_back(count + i - 1);
  perm.push_back(count);
  for (std::int64_t i = 0; i < count; ++i) perm.push_back(part(i));
  joined.insert(joined.end(), {shape[1], shape[0]});
  return reshape(transpose(reshape(w, split), perm), joined);
}

Shape ShuffledChannels::parts() const {
  Shape parts;
  if (!phases_first) parts.push_back(phases.out);
  for (const PhaseAxis& axis : phases.axes) parts.push_back(axis.stride);
  if (phases_first) parts.push_back(phases.out);
  return parts;
}

std::int64_t ShuffledChannels::part(std::int64_t i) const {
  const std::int64_t count = std::ssize(phases.axes) + 1;
  return (i + (phases_first ? 0 : 1)) % count;
}

bool is_plain_convolution(const Graph& graph, const Node& node) {
  const auto* conv = node.op.as<op::Conv>();
  return conv && !conv->transposed && !conv->channels_last && conv->groups == 1 &&
         node.results[0].is_static() && node.results[0].dtype == f32 &&
         graph.type(node.inputs[0]).is_static() && graph.type(node.inputs[1]).is_static();
}

std::optional<ShuffledChannels> shuffled_channels(const Graph& graph, const Node& conv,
                                                  std::span<const std::int32_t> chain) {
  const auto at = [&](std::size_t i) -> const Node& {
    return graph.nodes()[static_cast<std::size_t>(chain[i])];
  };
  if (chain.size() != 3 || !at(0).op.is<op::Reshape>() || !at(1).op.is<op::Transpose>() ||
      !at(2).op.is<op::Reshape>())
    return std::nullopt;
  const Dims places = conv.results[0].dims(), made = at(2).results[0].dims(),
             kernel = graph.type(conv.inputs[1]).dims();
  if (made.size() != places.size() || made[0] != places[0]) return std::nullopt;
  ShuffledChannels found;
  found.phases.in = kernel[1];
  found.phases.out = made[1];
  for (std::size_t i = 2; i < places.size(); ++i) {
    if (places[i] == 0 || made[i] % places[i] != 0) return std::nullopt;
    found.phases.axes.push_back(
        {.stride = made[i] / places[i], .taps = kernel[i], .places = places[i], .size = made[i]});
  }
  for (const bool phases_first : {true, false}) {
    found.phases_first = phases_first;
    if (moves_phases(at(0), at(1), found)) return found;
  }
  return std::nullopt;
}

}  // namespace rlx::passes
