// Quantising, and products and convolutions of quantised numbers.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/windows.hpp"

namespace rlx::onnx {
namespace {

// A scale of one element is a scalar, whatever its rank.
Value scalar_if_single(const Value& x) {
  const bool single = x.rank() == 1 && x.shape()[0] == Dim(1);
  return single ? reshape(x, {}) : x;
}

void quantize_linear(NodeContext& c) {
  Value x = c.in(0), scale = scalar_if_single(c.in(1));
  op::Quantize attributes;
  attributes.axis = c.integer("axis", 1);
  attributes.block = c.integer("block_size", 0);
  attributes.saturate = c.flag("saturate", true);
  attributes.dtype = c.has(2) ? c.in(2).dtype() : c.element_type("output_dtype", u8);
  c.ignore({"precision", "output_dtype"});
  if (x.dtype() != scale.dtype() || !is_float(x.dtype())) {
    x = cast(x, f32);
    scale = cast(scale, f32);
  }
  const Value zero = c.has(2) ? scalar_if_single(c.in(2)) : Value();
  c.set(c.add(attributes, {x, scale, zero}));
}

void dequantize_linear(NodeContext& c) {
  op::Dequantize attributes;
  const Value scale = scalar_if_single(c.in(1));
  attributes.axis = c.integer("axis", 1);
  attributes.block = c.integer("block_size", 0);
  attributes.dtype = c.element_type("output_dtype", scale.dtype());
  if (c.integer("output_dtype", 0) == 0) attributes.dtype = scale.dtype();
  const Value zero = c.has(2) ? scalar_if_single(c.in(2)) : Value();
  c.set(c.add(attributes, {c.in(0), scale, zero}));
}

void dynamic_quantize_linear(NodeContext& c) {
  const Values results = c.add_all(op::DynamicQuantize{}, {c.in(0)});
  for (std::size_t i = 0; i < results.size(); ++i) c.set(static_cast<int>(i), results[i]);
}

void matmul_integer(NodeContext& c) {
  c.set(c.add(op::IntegerMatmul{}, {c.in(0), c.in(1), c.optional(2), c.optional(3)}));
}

// Scales of rows belong to the axis before the last.
Value row_scale(const Value& scale) {
  return scale.rank() == 1 ? unsqueeze_axes(scale, {-1}) : scale;
}

Value requantized(NodeContext& c, const Value& x, const Value& scale, const Value& zero) {
  op::Quantize attributes;
  attributes.dtype = zero.dtype();
  const Value wide = scale.dtype() == f32 ? scale : cast(scale, f32);
  return c.add(attributes, {x, scalar_if_single(wide), scalar_if_single(zero)});
}

void qlinear_matmul(NodeContext& c) {
  const Value product = c.add(op::IntegerMatmul{}, {c.in(0), c.in(3), scalar_if_single(c.in(2)),
                                                    scalar_if_single(c.in(5))});
  const Value a_scale = row_scale(scalar_if_single(cast(c.in(1), f32)));
  const Value b_scale = scalar_if_single(cast(c.in(4), f32));
  const Value real = cast(product, f32) * (a_scale * b_scale);
  c.set(requantized(c, real, c.in(6), c.in(7)));
}

Value integer_conv(NodeContext& c, const Value& x, const Value& w, const Value& x_zero,
                   const Value& w_zero) {
  const Windows windows = windows_of(c, x, w.shape());
  op::IntegerConv attributes;
  attributes.strides = windows.strides;
  attributes.dilations = windows.dilations;
  attributes.pad_low = windows.pad_low;
  attributes.pad_high = windows.pad_high;
  attributes.groups = c.integer("group", 1);
  const auto scalar = [](const Value& v) { return v ? scalar_if_single(v) : v; };
  return c.add(attributes, {x, w, scalar(x_zero), scalar(w_zero)});
}

void conv_integer(NodeContext& c) {
  c.set(integer_conv(c, c.in(0), c.in(1), c.optional(2), c.optional(3)));
}

void qlinear_conv(NodeContext& c) {
  const Value x = c.in(0);
  Value sums = integer_conv(c, x, c.in(3), c.in(2), c.in(5));
  const auto along_channels = [&x](const Value& v) {
    if (v.rank() != 1) return v;
    Shape shape(static_cast<std::size_t>(x.rank()), Dim(1));
    shape[1] = v.shape()[0];
    return reshape(v, shape);
  };
  if (c.has(8)) sums = sums + along_channels(c.in(8));
  const Value scale = scalar_if_single(c.in(1)) * along_channels(scalar_if_single(c.in(4)));
  c.set(requantized(c, cast(sums, f32) * scale, c.in(6), c.in(7)));
}

constexpr OpEntry entries[] = {
    {"QuantizeLinear", 10, quantize_linear},
    {"DequantizeLinear", 10, dequantize_linear},
    {"DynamicQuantizeLinear", 11, dynamic_quantize_linear},
    {"MatMulInteger", 10, matmul_integer},
    {"QLinearMatMul", 10, qlinear_matmul},
    {"ConvInteger", 10, conv_integer},
    {"QLinearConv", 10, qlinear_conv},
};

}  // namespace

OpEntries quantize_entries() { return entries; }

}  // namespace rlx::onnx
