// Builds nests for tests by short calls, and the nests of common ops.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "codegen/loop.hpp"

namespace rlx::testing {

class NestBuilder {
 public:
  explicit NestBuilder(std::vector<std::int64_t> extents) { nest_.extents = std::move(extents); }

  loop::Nest& nest() { return nest_; }

  int buffer(DType dtype, std::int64_t elements) {
    kernel_.buffers.push_back({.dtype = dtype, .elements = elements});
    return static_cast<int>(kernel_.buffers.size()) - 1;
  }
  ScalarId add(ScalarNode node) {
    nest_.nodes.push_back(node);
    return static_cast<ScalarId>(nest_.nodes.size()) - 1;
  }
  ScalarId load(loop::Access access) {
    const DType dtype = kernel_.buffers[static_cast<std::size_t>(access.buffer)].dtype;
    nest_.accesses.push_back(std::move(access));
    const auto index = static_cast<std::int32_t>(nest_.accesses.size()) - 1;
    return add({.op = ScalarOp::load, .dtype = dtype, .index = index});
  }
  ScalarId load(int buffer, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
    return load({.buffer = buffer, .offset = offset, .strides = std::move(strides)});
  }
  ScalarId constant(DType dtype, double value) {
    return add({.op = ScalarOp::constant,
                .dtype = dtype,
                .value = is_float(dtype) ? value : 0,
                .integer = is_float(dtype) ? 0 : static_cast<std::int64_t>(value)});
  }
  ScalarId unary(ScalarOp op, ScalarId a) { return add({.op = op, .dtype = dtype_of(a), .a = a}); }
  ScalarId binary(ScalarOp op, ScalarId a, ScalarId b) { return binary(op, a, b, dtype_of(a)); }
  ScalarId binary(ScalarOp op, ScalarId a, ScalarId b, DType dtype) {
    return add({.op = op, .dtype = dtype, .a = a, .b = b});
  }
  ScalarId select(ScalarId condition, ScalarId a, ScalarId b) {
    return add({.op = ScalarOp::select, .dtype = dtype_of(a), .a = condition, .b = a, .c = b});
  }
  ScalarId cast(ScalarId a, DType dtype) {
    return add({.op = ScalarOp::cast, .dtype = dtype, .a = a});
  }
  ScalarId reduce(ReduceKind kind, ScalarId a) {
    const bool position = kind == ReduceKind::argmin || kind == ReduceKind::argmax;
    return add({.op = ScalarOp::reduce,
                .dtype = position ? DType::i64 : dtype_of(a),
                .a = a,
                .reduce_kind = kind});
  }
  void store(int buffer, ScalarId node, std::vector<std::int64_t> strides,
             std::int64_t offset = 0) {
    loop::Access access{.buffer = buffer, .offset = offset, .strides = std::move(strides)};
    nest_.stores.push_back({std::move(access), node});
    kernel_.buffers[static_cast<std::size_t>(buffer)].written = true;
  }
  DType dtype_of(ScalarId node) const { return nest_.nodes[static_cast<std::size_t>(node)].dtype; }

  loop::Kernel kernel(int parallel_dims) {
    nest_.parallel_dims = parallel_dims;
    kernel_.body = nest_;
    return kernel_;
  }

 private:
  loop::Kernel kernel_;
  loop::Nest nest_;
};

/// Row-major strides.
inline std::vector<std::int64_t> dense(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

/// out = a + b.
inline loop::Kernel residual_add(const std::vector<std::int64_t>& extents) {
  NestBuilder nest(extents);
  std::int64_t size = 1;
  for (const std::int64_t extent : extents) size *= extent;
  const int a = nest.buffer(DType::f32, size), b = nest.buffer(DType::f32, size);
  const int out = nest.buffer(DType::f32, size);
  const ScalarId sum =
      nest.binary(ScalarOp::add, nest.load(a, dense(extents)), nest.load(b, dense(extents)));
  nest.store(out, sum, dense(extents));
  return nest.kernel(static_cast<int>(extents.size()));
}

/// x / 2 * (1 + erf(x / sqrt(2))).
inline loop::Kernel gelu(std::int64_t rows, std::int64_t n) {
  NestBuilder nest({rows, n});
  const int in = nest.buffer(DType::f32, rows * n), out = nest.buffer(DType::f32, rows * n);
  const ScalarId x = nest.load(in, {n, 1});
  const ScalarId scaled =
      nest.binary(ScalarOp::mul, x, nest.constant(DType::f32, 0.70710678118654752));
  const ScalarId e = nest.unary(ScalarOp::erf, scaled);
  const ScalarId one = nest.binary(ScalarOp::add, e, nest.constant(DType::f32, 1));
  const ScalarId half = nest.binary(ScalarOp::mul, x, nest.constant(DType::f32, 0.5));
  nest.store(out, nest.binary(ScalarOp::mul, half, one), {n, 1});
  return nest.kernel(2);
}

/// exp(x - max) / sum of it, over rows.
inline loop::Kernel softmax(std::int64_t rows, std::int64_t n) {
  NestBuilder nest({rows, n});
  const int in = nest.buffer(DType::f32, rows * n), out = nest.buffer(DType::f32, rows * n);
  const ScalarId x = nest.load(in, {n, 1});
  const ScalarId most = nest.reduce(ReduceKind::max, x);
  const ScalarId e = nest.unary(ScalarOp::exp, nest.binary(ScalarOp::sub, x, most));
  const ScalarId sum = nest.reduce(ReduceKind::sum, e);
  nest.store(out, nest.binary(ScalarOp::div, e, sum), {n, 1});
  return nest.kernel(1);
}

/// (x - mean) / sqrt(variance + epsilon) * scale + shift, over rows.
inline loop::Kernel layer_norm(std::int64_t rows, std::int64_t n) {
  NestBuilder nest({rows, n});
  const int in = nest.buffer(DType::f32, rows * n), scale = nest.buffer(DType::f32, n);
  const int shift = nest.buffer(DType::f32, n), out = nest.buffer(DType::f32, rows * n);
  const ScalarId share = nest.constant(DType::f32, 1.0 / static_cast<double>(n));
  const ScalarId x = nest.load(in, {n, 1});
  const ScalarId mean = nest.binary(ScalarOp::mul, nest.reduce(ReduceKind::sum, x), share);
  const ScalarId centred = nest.binary(ScalarOp::sub, x, mean);
  const ScalarId square = nest.binary(ScalarOp::mul, centred, centred);
  const ScalarId variance = nest.binary(ScalarOp::mul, nest.reduce(ReduceKind::sum, square), share);
  const ScalarId root = nest.unary(
      ScalarOp::rsqrt, nest.binary(ScalarOp::add, variance, nest.constant(DType::f32, 1e-5)));
  const ScalarId normal = nest.binary(ScalarOp::mul, centred, root);
  const ScalarId scaled = nest.binary(ScalarOp::mul, normal, nest.load(scale, {0, 1}));
  nest.store(out, nest.binary(ScalarOp::add, scaled, nest.load(shift, {0, 1})), {n, 1});
  return nest.kernel(1);
}

/// A guard per spatial dim of an image whose window starts at out * stride - pad.
inline std::vector<loop::Guard> window_guards(std::int64_t height, std::int64_t width,
                                              std::int64_t stride, std::int64_t pad) {
  return {{.offset = -pad, .extent = height, .coefficients = {stride, 0, 0, 1, 0}},
          {.offset = -pad, .extent = width, .coefficients = {0, stride, 0, 0, 1}}};
}

/// Channels last, window 3, stride 2, padding 1.
inline loop::Kernel max_pool(std::int64_t height, std::int64_t width, std::int64_t channels,
                             double fill = -std::numeric_limits<double>::infinity()) {
  const std::int64_t rows = (height - 1) / 2 + 1, columns = (width - 1) / 2 + 1;
  NestBuilder nest({rows, columns, channels, 3, 3});
  const int in = nest.buffer(DType::f32, height * width * channels);
  const int out = nest.buffer(DType::f32, rows * columns * channels);
  const std::int64_t row = width * channels;
  loop::Access access{.buffer = in,
                      .offset = -row - channels,
                      .strides = {2 * row, 2 * channels, 1, row, channels},
                      .fill = fill};
  access.guards = window_guards(height, width, 2, 1);
  nest.store(out, nest.reduce(ReduceKind::max, nest.load(access)),
             {columns * channels, channels, 1, 0, 0});
  return nest.kernel(3);
}

/// Channels last, "same" padding.
inline loop::Kernel depthwise(std::int64_t height, std::int64_t width, std::int64_t channels,
                              std::int64_t window, std::int64_t stride) {
  const std::int64_t rows = (height - 1) / stride + 1, columns = (width - 1) / stride + 1;
  const std::int64_t pad = window / 2, row = width * channels;
  NestBuilder nest({rows, columns, channels, window, window});
  const int in = nest.buffer(DType::f32, height * width * channels);
  const int weights = nest.buffer(DType::f32, window * window * channels);
  const int out = nest.buffer(DType::f32, rows * columns * channels);
  loop::Access access{.buffer = in,
                      .offset = -pad * (row + channels),
                      .strides = {stride * row, stride * channels, 1, row, channels}};
  access.guards = window_guards(height, width, stride, pad);
  const ScalarId weight = nest.load(weights, {0, 0, 1, window * channels, channels});
  const ScalarId product = nest.binary(ScalarOp::mul, nest.load(access), weight);
  nest.store(out, nest.reduce(ReduceKind::sum, product), {columns * channels, channels, 1, 0, 0});
  return nest.kernel(3);
}

}  // namespace rlx::testing
