// Sliding windows over spatial axes.
#include "ops/window.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace rlx {
namespace {

Result<Axes> filled(std::string_view op, std::string_view what, const Axes& axes, std::size_t rank,
                    std::int64_t fill, std::int64_t least) {
  if (axes.empty()) return Axes(rank, fill);
  if (axes.size() != rank) {
    return bad_input("The op {} has ({}) {} for ({}) spatial axes.", op, axes.size(), what, rank);
  }
  for (const std::int64_t value : axes) {
    if (value < least)
      return bad_input("The op {} has a value ({}) among its {}, which must be at least {}.", op,
                       value, what, least);
  }
  return axes;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

}  // namespace

Result<WindowAxes> window_axes(std::string_view op, std::size_t rank, const Axes& strides,
                               const Axes& pad_low, const Axes& pad_high, const Axes& dilations) {
  if (rank < 1 || rank > 3)
    return unsupported("The op {} takes 1 to 3 spatial axes, not ({}).", op, rank);
  WindowAxes axes;
  RLX_ASSIGN(axes.strides, filled(op, "strides", strides, rank, 1, 1));
  RLX_ASSIGN(axes.pad_low, filled(op, "low paddings", pad_low, rank, 0, 0));
  RLX_ASSIGN(axes.pad_high, filled(op, "high paddings", pad_high, rank, 0, 0));
  RLX_ASSIGN(axes.dilations, filled(op, "dilations", dilations, rank, 1, 1));
  return axes;
}

Result<Dim> window_count(std::string_view op, const Dim& in, std::int64_t window,
                         const WindowAxes& axes, std::size_t axis) {
  if (window < 1)
    return bad_input("The op {} has a window of ({}) elements along spatial axis ({}).", op, window,
                     axis);
  const std::int64_t extent = (window - 1) * axes.dilations[axis] + 1;
  const std::int64_t room = axes.pad_low[axis] + axes.pad_high[axis] - extent;
  if (in.is_static() && in.value() + room < 0) {
    return bad_input(
        "The window of {} is ({}) elements wide and spatial axis ({}) has only ({}) with its "
        "padding.",
        op, extent, axis, in.value() + room + extent);
  }
  return floor_div(shifted(in, room), Dim(axes.strides[axis])) + Dim(1);
}

std::int64_t WindowAxis::first(std::int64_t k) const {
  return std::clamp<std::int64_t>(ceil_div(pad - k * dilation, stride), 0, out);
}

std::int64_t WindowAxis::last(std::int64_t k) const {
  return std::clamp<std::int64_t>(ceil_div(in + pad - k * dilation, stride), first(k), out);
}

WindowGrid window_grid(const WindowAxes& axes, std::span<const std::int64_t> in,
                       std::span<const std::int64_t> out, std::span<const std::int64_t> window) {
  WindowGrid grid;
  for (std::size_t i = 0; i < axes.rank(); ++i) {
    grid[3 - axes.rank() + i] = {
        in[i], out[i], window[i], axes.strides[i], axes.dilations[i], axes.pad_low[i]};
  }
  return grid;
}

Axes channels_first(int rank) {
  Axes perm{0, rank - 1};
  for (int i = 1; i < rank - 1; ++i) perm.push_back(i);
  return perm;
}

Axes channels_last(int rank) {
  Axes perm{0};
  for (int i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

Axes weights_first(int rank) {
  Axes perm{rank - 1, rank - 2};
  for (int i = 0; i < rank - 2; ++i) perm.push_back(i);
  return perm;
}

}  // namespace rlx
