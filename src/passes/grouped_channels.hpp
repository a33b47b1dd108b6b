// Norms of groups of channels, channel by channel.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Where an image's channels (its last axis) are taken apart into groups and reduced with the axes
/// before them, as group norms do once images are kept channels last, each channel is reduced first
/// and then those of a group; maps of the groups go back over the image as it was, with what each
/// group's channels share repeated by channel. Kernels so see rows of all channels instead of a few
/// lanes for each group. Sums add in another order. The smallest images stay (docs/adr/0064).
Result<Graph> grouped_channels(Graph graph);

}  // namespace rlx::passes
