// Sliding windows over spatial axes: attributes with their defaults filled in, checked, and the
// dims that result.
#pragma once

#include <array>

#include "ops/reference.hpp"

namespace rlx {

/// The window attributes of convolutions and pools, one entry for each spatial axis.
struct WindowAxes {
  Axes strides, pad_low, pad_high, dilations;
  std::size_t rank() const { return strides.size(); }
};

/// Fills empty lists with ones and zeros; wants `rank` entries in the others, strides and dilations
/// of at least 1.
Result<WindowAxes> window_axes(std::string_view op, std::size_t rank, const Axes& strides,
                               const Axes& pad_low, const Axes& pad_high, const Axes& dilations);

/// How many windows of `window` elements fit along an axis: floor((in + padding - extent) / stride)
/// + 1.
Result<Dim> window_count(std::string_view op, const Dim& in, std::int64_t window,
                         const WindowAxes& axes, std::size_t axis);

/// One spatial axis on concrete dims: window w, element k reads w * stride + k * dilation - pad.
struct WindowAxis {
  std::int64_t in = 1, out = 1, window = 1, stride = 1, dilation = 1, pad = 0;
  std::int64_t position(std::int64_t w, std::int64_t k) const {
    return w * stride + k * dilation - pad;
  }
  /// The windows [first, last) whose element k lies inside the axis.
  std::int64_t first(std::int64_t k) const;
  std::int64_t last(std::int64_t k) const;
};

/// Three axes, the missing ones in front being of one element.
using WindowGrid = std::array<WindowAxis, 3>;

/// From the spatial dims of the operand that windows slide over, of the results, and of the
/// windows.
WindowGrid window_grid(const WindowAxes& axes, std::span<const std::int64_t> in,
                       std::span<const std::int64_t> out, std::span<const std::int64_t> window);

/// The permutations between channels-last and channels-first: of [N, spatial..., C], of
/// [spatial..., C, O], and back.
Axes channels_first(int rank);
Axes channels_last(int rank);
Axes weights_first(int rank);

}  // namespace rlx
