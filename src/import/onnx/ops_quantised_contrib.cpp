// ONNX Runtime's ops on quantised numbers (com.microsoft), which its quantiser writes beside the
// standard ones: each is the op on real numbers between dequantize and quantize.
#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/windows.hpp"

namespace rlx::onnx {
namespace {

/// Inputs (x, scale, zero point?) from input `first` on as real numbers.
Value real_input(NodeContext& c, int first, std::int64_t axis = 1) {
  op::Dequantize attributes;
  attributes.axis = axis;
  return c.add(attributes, {c.in(first), scalar_if_single(c.in(first + 1)),
                            scalar_if_single(c.optional(first + 2))});
}

/// Real numbers by the scale and zero point from input `first` on.
Value quantised_as(NodeContext& c, const Value& x, int first, DType otherwise) {
  op::Quantize attributes;
  const Value zero = scalar_if_single(c.optional(first + 1));
  attributes.dtype = zero ? zero.dtype() : otherwise;
  return c.add(attributes, {x, scalar_if_single(c.in(first)), zero});
}

template <class Op>
void binary(NodeContext& c) {
  const Value a = real_input(c, 0), b = real_input(c, 3);
  c.set(quantised_as(c, c.add(Op{}, {a, b}), 6, c.in(0).dtype()));
}

template <class Op>
void unary(NodeContext& c) {
  c.set(quantised_as(c, c.add(Op{}, {real_input(c, 0)}), 3, c.in(0).dtype()));
}

void leaky_relu(NodeContext& c) {
  const op::LeakyRelu attributes{c.real("alpha", 0.01)};
  c.set(quantised_as(c, c.add(attributes, {real_input(c, 0)}), 3, c.in(0).dtype()));
}

// (y scale, y zero, then (x, scale, zero) for each part)
void concat(NodeContext& c) {
  Values parts;
  for (int i = 2; i + 2 < c.input_count(); i += 3) parts.push_back(real_input(c, i));
  if (parts.empty()) fail("It has no parts.");
  const Value joined = c.add(op::Concat{c.integer("axis")}, parts);
  c.set(quantised_as(c, joined, 0, c.in(2).dtype()));
}

void refuse_channels_last(NodeContext& c) {
  if (c.flag("channels_last")) fail_unsupported("The attribute channels_last is not supported.");
}

void global_average_pool(NodeContext& c) {
  refuse_channels_last(c);
  const Value x = real_input(c, 0);
  Axes axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  const Value y = axes.empty() ? x : reduce(x, Reduction::mean, axes, true);
  c.set(quantised_as(c, y, 3, c.in(0).dtype()));
}

void average_pool(NodeContext& c) {
  refuse_channels_last(c);
  const Value x = real_input(c, 0);
  Shape sizes(2, Dim(1));
  for (const std::int64_t size : c.integers("kernel_shape")) sizes.push_back(Dim(size));
  const Windows w = windows_of(c, x, sizes, Padding::pool);
  const bool counts_padding = c.flag("count_include_pad");
  const op::WindowReduce pool{Reduction::mean, w.sizes,    w.strides,
                              w.pad_low,       w.pad_high, w.dilations};
  const Value y = counts_padding ? average_with_padding(c, x, w) : c.add(pool, {x});
  c.set(quantised_as(c, y, 3, c.in(0).dtype()));
}

// Before opset 13 all axes from `axis` on are one.
void softmax_node(NodeContext& c) {
  const Value x = real_input(c, 0);
  const std::int64_t axis = normal_axis(c.integer("axis", -1), x.rank());
  Value y;
  if (c.integer("opset", 13) >= 13 || axis == x.rank() - 1) {
    y = softmax(x, op::Softmax{axis});
  } else {
    const auto split = x.shape().begin() + axis;
    const Shape matrix{product_of(Shape(x.shape().begin(), split)),
                       product_of(Shape(split, x.shape().end()))};
    y = reshape(softmax(reshape(x, matrix), op::Softmax{1}), x.shape());
  }
  c.set(quantised_as(c, y, 3, c.in(0).dtype()));
}

// alpha a b + bias, the bias in steps of alpha * a scale * b scale; real without a scale of y
void gemm(NodeContext& c) {
  const double alpha = c.real("alpha", 1);
  const bool b_transposed = c.flag("transB");
  Value a = real_input(c, 0), b = real_input(c, 3, b_transposed ? 0 : 1);
  if (c.flag("transA")) a = transpose(a, {1, 0});
  if (b_transposed) b = transpose(b, {1, 0});
  Value y = matmul(a, b);
  if (alpha != 1) y = y * c.scalar(f32, alpha);
  if (c.has(6)) {
    Value step = scalar_if_single(c.in(1)) * scalar_if_single(c.in(4));
    if (alpha != 1) step = step * c.scalar(f32, alpha);
    y = y + cast(c.in(6), f32) * step;
  }
  c.set(c.has(7) ? quantised_as(c, y, 7, c.in(0).dtype()) : y);
}

// (a, b, a scale, b scale, a zero?, b zero?, bias?)
void matmul_integer_to_float(NodeContext& c) {
  const Value y =
      integer_product(c, {c.in(0), c.in(1), c.in(2), c.in(3), c.optional(4), c.optional(5)});
  c.set(c.has(6) ? y + c.in(6) : y);
}

// (a: f32, b, b scale, b zero?, bias?)
void dynamic_quantize_matmul(NodeContext& c) {
  const Values a = c.add_all(op::DynamicQuantize{}, {c.in(0)});
  const Value y = integer_product(c, {a[0], c.in(1), a[1], c.in(2), a[2], c.optional(3)});
  c.set(c.has(4) ? y + c.in(4) : y);
}

void quantize_linear(NodeContext& c) {
  op::Quantize attributes;
  attributes.axis = c.integer("axis", 1);
  const Value zero = scalar_if_single(c.optional(2));
  attributes.dtype = zero ? zero.dtype() : u8;
  c.set(c.add(attributes, {c.in(0), scalar_if_single(c.in(1)), zero}));
}

void dequantize_linear(NodeContext& c) { c.set(real_input(c, 0, c.integer("axis", 1))); }

constexpr OpEntry entries[] = {
    {"QLinearAdd", 1, binary<op::Add>, onnx_runtime},
    {"QLinearMul", 1, binary<op::Mul>, onnx_runtime},
    {"QLinearSigmoid", 1, unary<op::Sigmoid>, onnx_runtime},
    {"QLinearLeakyRelu", 1, leaky_relu, onnx_runtime},
    {"QLinearConcat", 1, concat, onnx_runtime},
    {"QLinearGlobalAveragePool", 1, global_average_pool, onnx_runtime},
    {"QLinearAveragePool", 1, average_pool, onnx_runtime},
    {"QLinearSoftmax", 1, softmax_node, onnx_runtime},
    {"QGemm", 1, gemm, onnx_runtime},
    {"MatMulIntegerToFloat", 1, matmul_integer_to_float, onnx_runtime},
    {"DynamicQuantizeMatMul", 1, dynamic_quantize_matmul, onnx_runtime},
    {"QuantizeLinear", 1, quantize_linear, onnx_runtime},
    {"DequantizeLinear", 1, dequantize_linear, onnx_runtime},
};

}  // namespace

OpEntries quantised_contrib_entries() { return entries; }

}  // namespace rlx::onnx
