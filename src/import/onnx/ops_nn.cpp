// Matrix products, convolutions, pools.
#include <algorithm>
#include <numeric>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "import/onnx/windows.hpp"

namespace rlx::onnx {
namespace {

void matmul_node(NodeContext& c) { c.set(matmul(c.in(0), c.in(1))); }

// alpha a b + beta c.
Value gemm_of(NodeContext& c) {
  const double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  Value a = c.in(0), b = c.in(1);
  if (c.flag("transA")) a = transpose(a, {1, 0});
  if (c.flag("transB")) b = transpose(b, {1, 0});
  c.ignore({"broadcast"});
  if (a.rank() != 2 || b.rank() != 2) {
    fail("It takes matrices, not {} and {}.", a.type().text(), b.type().text());
  }
  Value y = matmul(a, b);
  if (alpha != 1) y = y * scalar_like(c, y, alpha);
  if (c.has(2) && beta != 0) {
    const Value bias = c.in(2);
    y = y + (beta == 1 ? bias : bias * scalar_like(c, bias, beta));
  }
  return y;
}

void gemm(NodeContext& c) { c.set(gemm_of(c)); }

Value conv_of(NodeContext& c) {
  const Value x = c.in(0), w = c.in(1);
  const Windows windows = windows_of(c, x, w.shape());
  op::Conv attributes;
  attributes.strides = windows.strides;
  attributes.dilations = windows.dilations;
  attributes.pad_low = windows.pad_low;
  attributes.pad_high = windows.pad_high;
  attributes.groups = c.integer("group", 1);
  return conv(x, w, attributes, c.optional(2));
}

void conv_node(NodeContext& c) { c.set(conv_of(c)); }

// ---- as ONNX Runtime fuses them -----------------------------------------------------------------

/// [M, batch..., K] becomes [batch..., M, K] with `from_first`, and the last two axes change places
/// with `swapped`.
Value as_matrices(const Value& x, bool from_first, bool swapped) {
  if (!from_first && !swapped) return x;
  if (x.rank() < 2) fail("It transposes matrices, not {}.", x.type().text());
  Axes axes(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (from_first) std::rotate(axes.begin(), axes.begin() + 1, axes.end() - 1);
  if (swapped) std::swap(axes.back(), axes[axes.size() - 2]);
  return transpose(x, axes);
}

void fused_matmul(NodeContext& c) {
  const Value a = as_matrices(c.in(0), c.flag("transBatchA"), c.flag("transA"));
  const Value b = as_matrices(c.in(1), c.flag("transBatchB"), c.flag("transB"));
  const double alpha = c.real("alpha", 1);
  const Value y = matmul(a, b);
  c.set(alpha == 1 ? y : y * scalar_like(c, y, alpha));
}

/// The activation by its name in the standard; its parameters in the order of the standard.
Value activated(NodeContext& c, const Value& x, const std::vector<double>& parameters) {
  const std::string name = c.text("activation", "");
  const auto parameter = [&](std::size_t i, double otherwise) {
    return i < parameters.size() ? parameters[i] : otherwise;
  };
  if (name.empty()) return x;
  if (name == "Relu") return relu(x);
  if (name == "Sigmoid") return sigmoid(x);
  if (name == "Tanh") return tanh(x);
  if (name == "Softplus") return c.add(op::Softplus{}, {x});
  if (name == "Softsign") return c.add(op::Softsign{}, {x});
  if (name == "HardSwish") return c.add(op::HardSwish{}, {x});
  if (name == "LeakyRelu") return leaky_relu(x, {parameter(0, 0.01)});
  if (name == "Elu") return c.add(op::Elu{parameter(0, 1)}, {x});
  if (name == "ThresholdedRelu") return c.add(op::ThresholdedRelu{parameter(0, 1)}, {x});
  if (name == "HardSigmoid")
    return c.add(op::HardSigmoid{parameter(0, 0.2), parameter(1, 0.5)}, {x});
  if (name == "Clip" && parameters.size() == 2)
    return clamp(x, scalar_like(c, x, parameters[0]), scalar_like(c, x, parameters[1]));
  fail_unsupported("The activation ({}) with {} parameters is not supported.", name,
                   parameters.size());
}

void fused_gemm(NodeContext& c) {
  std::vector<double> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    const auto value = c.optional_real(name);
    if (!value) break;  // one that follows has no place: it stays unread, which is an error
    parameters.push_back(*value);
  }
  c.set(activated(c, gemm_of(c), parameters));
}

// (x, w, bias?, what is added before the activation?)
void fused_conv(NodeContext& c) {
  const Value y = conv_of(c);
  c.set(activated(c, c.has(3) ? y + c.in(3) : y, c.reals("activation_params")));
}

// ---- transposed convolutions --------------------------------------------------------------------

// The wanted output size, where given, decides the padding: total = stride (in - 1) + output
// padding
// + window - out, the larger half at the end for SAME_UPPER, at the start else.
void pad_for_output(Windows& windows, const Value& x, const Axes& output, const Axes& extra,
                    bool upper) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const auto in = static_dim(x, static_cast<std::int64_t>(i) + 2);
    const auto window = (windows.sizes[i] - 1) * windows.dilations[i] + 1;
    const auto total = windows.strides[i] * (in - 1) + extra[i] + window - output[i];
    // Half of it, rounded down also where it is negative.
    const auto half = total >> 1;
    windows.pad_low[i] = upper ? half : total - half;
    windows.pad_high[i] = total - windows.pad_low[i];
  }
}

void conv_transpose(NodeContext& c) {
  const Value x = c.in(0), w = c.in(1);
  Windows windows = windows_of(c, x, w.shape(), Padding::transposed);
  const std::size_t spatial = windows.sizes.size();
  const Axes extra = c.integers("output_padding", Axes(spatial, 0));
  const std::string automatic = c.text("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  auto output = c.optional_integers("output_shape");
  if (!output && same) {
    output.emplace();
    for (std::size_t i = 0; i < spatial; ++i) {
      output->push_back(static_dim(x, static_cast<std::int64_t>(i) + 2) * windows.strides[i]);
    }
  }
  if (extra.size() != spatial || (output && output->size() < spatial)) {
    fail("Output padding or shape do not fit ({}) spatial axes.", spatial);
  }
  if (output) {
    const Axes sizes(output->end() - static_cast<std::ptrdiff_t>(spatial), output->end());
    pad_for_output(windows, x, sizes, extra, automatic == "SAME_UPPER");
  }
  op::Conv attributes;
  attributes.transposed = true;
  attributes.strides = windows.strides;
  attributes.dilations = windows.dilations;
  attributes.output_padding = extra;
  attributes.groups = c.integer("group", 1);
  // Negative padding, which a large output shape asks for, adds zeros around the result.
  Axes low(spatial + 2, 0), high(spatial + 2, 0);
  for (std::size_t i = 0; i < spatial; ++i) {
    attributes.pad_low.push_back(std::max<std::int64_t>(windows.pad_low[i], 0));
    attributes.pad_high.push_back(std::max<std::int64_t>(windows.pad_high[i], 0));
    low[i + 2] = std::max<std::int64_t>(-windows.pad_low[i], 0);
    high[i + 2] = std::max<std::int64_t>(-windows.pad_high[i], 0);
  }
  const auto grows = [](const Axes& axes) {
    return std::any_of(axes.begin(), axes.end(), [](std::int64_t n) { return n > 0; });
  };
  if (!grows(low) && !grows(high)) {
    c.set(conv(x, w, attributes, c.optional(2)));
    return;
  }
  Value y = pad(conv(x, w, attributes), low, high);
  if (c.has(2)) {
    require_rank(c.in(2), 1);
    Shape along_channels(spatial + 2, Dim(1));
    along_channels[1] = c.in(2).shape()[0];
    y = y + reshape(c.in(2), along_channels);
  }
  c.set(y);
}

// ---- pools --------------------------------------------------------------------------------------

Shape kernel_shape(NodeContext& c) {
  Shape shape(2, Dim(1));
  const Axes sizes = c.integers("kernel_shape");
  if (sizes.empty()) fail("The kernel_shape is missing.");
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return shape;
}

void max_pool(NodeContext& c) {
  const Value x = c.in(0);
  const Windows w = windows_of(c, x, kernel_shape(c), Padding::pool);
  op::WindowReduce attributes{Reduction::max, w.sizes,    w.strides,
                              w.pad_low,      w.pad_high, w.dilations};
  const bool column_major = c.flag("storage_order");
  c.set(0, c.add(attributes, {x}));
  if (c.wants(1)) {
    c.set(1, c.add(op::WindowArgMax{w.sizes, w.strides, w.pad_low, w.pad_high, w.dilations,
                                    column_major},
                   {x}));
  }
}

void average_pool(NodeContext& c) {
  const Value x = c.in(0);
  const Windows w = windows_of(c, x, kernel_shape(c), Padding::pool);
  op::WindowReduce attributes{Reduction::mean, w.sizes,    w.strides,
                              w.pad_low,       w.pad_high, w.dilations};
  attributes.count_include_pad = c.flag("count_include_pad");
  if (attributes.count_include_pad) {
    c.set(average_with_padding(c, x, w));
    return;
  }
  c.set(c.add(attributes, {x}));
}

// (sum |x|^p)^(1/p) over windows; padding counts as zero.
void lp_pool(NodeContext& c) {
  const Value x = c.in(0);
  const double p = c.version() < 2 ? c.real("p", 2) : static_cast<double>(c.integer("p", 2));
  const Windows w = windows_of(c, x, kernel_shape(c), Padding::pool);
  const op::WindowReduce attributes{Reduction::sum, w.sizes,    w.strides,
                                    w.pad_low,      w.pad_high, w.dilations};
  const Value total = c.add(attributes, {pow(abs(x), scalar_like(c, x, p))});
  c.set(pow(total, scalar_like(c, x, 1 / p)));
}

template <Reduction kind>
void global_pool(NodeContext& c) {
  const Value x = c.in(0);
  Axes axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  c.set(axes.empty() ? x : reduce(x, kind, axes, true));
}

void global_lp_pool(NodeContext& c) {
  const Value x = c.in(0);
  const double p = c.version() < 2 ? c.real("p", 2) : static_cast<double>(c.integer("p", 2));
  Axes axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  const Value total = sum(pow(abs(x), scalar_like(c, x, p)), axes, true);
  c.set(pow(total, scalar_like(c, x, 1 / p)));
}

constexpr OpEntry entries[] = {
    {"MatMul", 1, matmul_node},
    {"FusedMatMul", 1, fused_matmul, onnx_runtime},
    {"TransposeMatMul", 1, fused_matmul, onnx_runtime},
    {"FusedGemm", 1, fused_gemm, onnx_runtime},
    {"FusedConv", 1, fused_conv, onnx_runtime},
    {"Gemm", 1, gemm},
    {"Conv", 1, conv_node},
    {"ConvTranspose", 1, conv_transpose},
    {"MaxPool", 1, max_pool},
    {"AveragePool", 1, average_pool},
    {"LpPool", 1, lp_pool},
    {"GlobalAveragePool", 1, global_pool<Reduction::mean>},
    {"GlobalMaxPool", 1, global_pool<Reduction::max>},
    {"GlobalLpPool", 1, global_lp_pool},
};

}  // namespace

OpEntries nn_entries() { return entries; }

}  // namespace rlx::onnx
