// Convolutions whose channels become places of a larger image (depth to space, pixel shuffle).
#pragma once

#include <optional>
#include <span>

#include "passes/phases.hpp"

namespace rlx::passes {

/// A convolution's channels as (phases, out), whatever their order was.
struct ShuffledChannels {
  Phases phases;             ///< of the result; its axes' taps are the kernel's
  bool phases_first = true;  ///< channels are (phases, out); otherwise (out, phases)

  /// A vector with an element for each channel, in the order (phases, out).
  Value channels(Value vector) const;
  /// w [channels, in, k...] -> [k..., in, phases * out].
  Value weights(Value w) const;

  /// The channels, split as they are: the phases of each axis, and out.
  Shape parts() const;
  /// Which of them part i of (phases, out) is.
  std::int64_t part(std::int64_t i) const;
};

/// Is it a plain convolution of f32 with channels first, in one group, all dims known?
bool is_plain_convolution(const Graph& graph, const Node& node);

/// What the chain behind such a convolution does with its channels, where that is to split them,
/// to move their phases beside the places, and to join them: nodes that each read the one before.
std::optional<ShuffledChannels> shuffled_channels(const Graph& graph, const Node& conv,
                                                  std::span<const std::int32_t> chain);

}  // namespace rlx::passes
