// Windows of convolutions and pools: strides, dilations and padding as ONNX says them.
#pragma once

#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

/// One entry for each spatial axis.
struct Windows {
  Axes sizes, strides, dilations, pad_low, pad_high;
  /// Elements beyond the padding that windows of ceil_mode reach: part of pad_high, never counted.
  Axes overhang;
};

enum class Padding : std::uint8_t { conv, pool, transposed };

/// Reads kernel_shape (or takes it from the shape of `window`, from its third axis on), strides,
/// dilations, pads, auto_pad and, for pools, ceil_mode.
Windows windows_of(NodeContext& c, const Value& x, const Shape& window,
                   Padding kind = Padding::conv);

/// Average pool that counts the padding but not what ceil_mode adds behind it.
Value average_with_padding(NodeContext& c, const Value& x, const Windows& windows);

}  // namespace rlx::onnx
