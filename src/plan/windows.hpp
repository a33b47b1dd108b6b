// Windows of depthwise convolutions and pools, and in which order they read and write images.
#pragma once

#include "plan/domain.hpp"

namespace rlx::plan {

/// Sliding windows over the spatial axes.
struct Window {
  Axes extents, strides, pad_low, dilations;
};

/// The windows of a depthwise convolution or a pool.
Window window_of(const Graph& graph, const Node& root);

/// x [N, spatial..., C] read at (n, o..., c | k...); `fill` where a window reaches into padding.
loop::Access window_access(const Located& x, const Window& window, const Region& region,
                           const Domain& domain, KernelBuffers& buffers, double fill);

/// Do the windows of a region read its image so often that turning it first pays, where it does not
/// lie channels last, with lanes across the channels?
bool turns_image(const Graph& graph, const Region& region);

/// Should the region write its results channels first, too, as its image lies? Then lanes run along
/// the rows of both; most windows must end inside of the rows: at the borders lanes would differ.
/// 64 channels of 32 x 32 under 2 x 2 windows: 17 us where each lane reads a channel and a copy
/// follows, 5.4 along the rows; 3 of 224 x 224 under padded 3 x 3 windows 176 us, and 27. Where
/// turning pays it is weighed against points that come one by one: 48 of 28 x 28 under padded 5 x 5
/// windows 32 us turned, and 60 along the rows.
bool stays_channels_first(const Graph& graph, const Region& region, const View& image, int threads);

}  // namespace rlx::plan
