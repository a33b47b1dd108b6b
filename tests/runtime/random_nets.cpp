// Layers of random nets: what they compute stays about as large as what they read.
#include "random_nets.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "../ops/sample_inputs.hpp"

namespace rlx::testing {
namespace {

struct Limits {
  std::int64_t products;  ///< most multiply-adds of a layer
  std::int64_t elements;  ///< most of a value
  std::int64_t channels, side, length, width;
};
constexpr Limits small_limits{600'000, 40'000, 70, 40, 60, 160},
    large_limits{60'000'000, 1'000'000, 300, 150, 300, 1200};

std::int64_t dim(Value x, int axis) { return x.shape()[static_cast<std::size_t>(axis)].value(); }
std::int64_t elements(Value x) { return element_count(x.type().dims()); }

/// Numbers, weights and the layers that nets of both kinds have.
class Maker {
 public:
  Maker(NetSize size, unsigned seed)
      : most(size == NetSize::small ? small_limits : large_limits), random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t count) { return pick(1, count) == 1; }
  std::int64_t any_of(const Axes& values) {
    return values[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  /// Sizes spread over magnitudes, two thirds of them near multiples of 8, where kernels end.
  std::int64_t size(std::int64_t low, std::int64_t high) {
    const double share = std::uniform_real_distribution<double>(0, 1)(random_);
    const double ratio = static_cast<double>(high) / static_cast<double>(low);
    const auto value = static_cast<std::int64_t>(static_cast<double>(low) * std::pow(ratio, share));
    if (value <= 8 || one_in(3)) return value;
    return std::max(low, value / 8 * 8 + any_of({0, 0, 0, -2, -1, 1}));
  }

  /// Channels and places: most layers have some registers of them.
  std::int64_t some(std::int64_t highest) { return one_in(4) ? size(1, 8) : size(8, highest); }

  /// Noise whose sums over `fan_in` products are as large as what they are made of.
  Value weight(const Axes& dims, std::int64_t fan_in) {
    const double range = std::sqrt(3.0 / static_cast<double>(std::max<std::int64_t>(1, fan_in)));
    return graph.constant(noise({f32, to_shape(dims)}, -range, range, random_));
  }
  Value input(const Axes& dims) { return graph.input("x", f32, to_shape(dims)); }

  Value activated(Value x) {
    switch (pick(0, 9)) {
      case 0: return sigmoid(x);
      case 1: return silu(x);
      case 2: return leaky_relu(x);
      case 3: return clamp(x, graph.constant(f32, 0), graph.constant(f32, 6));
      case 4: return tanh(x);
      case 5: return gelu(x);
      case 6: return x;
      default: return relu(x);
    }
  }

  /// Something with an earlier value of these dims, where there is one, else a map.
  Value merged(Value x) {
    std::vector<Value> same;
    for (const Value value : values_)
      if (value.type() == x.type()) same.push_back(value);
    if (same.empty()) return activated(x);
    const Value other =
        same[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(same.size()) - 1))];
    switch (pick(0, 3)) {
      case 0: return x * sigmoid(other);
      case 1: return max(x, other);
      default: return activated(x + other);
    }
  }

  /// A part of it along an axis, beside the whole, the part or nothing.
  Value cut(Value x, int axis) {
    const Axes dims = x.type().dims();
    Axes starts(dims.size(), 0), limits = dims, steps(dims.size(), 1);
    const auto at = static_cast<std::size_t>(axis);
    starts[at] = pick(0, dims[at] - 1);
    limits[at] = pick(starts[at] + 1, dims[at]);
    if (one_in(3)) steps[at] = 2;
    const Value part = slice(x, starts, limits, steps);
    switch (pick(0, 3)) {
      case 0: return part;
      case 1: return concat({part, x}, axis);
      case 2: return concat({activated(x), part, part}, axis);
      default: {
        Axes low(dims.size(), 0), high(dims.size(), 0);
        low[at] = pick(0, 2);
        high[at] = pick(0, 2);
        return pad(part, low, high, 0.25);
      }
    }
  }

  /// x less its mean over an axis, or weighed by a softmax over it.
  Value reduced(Value x, int axis) {
    switch (pick(0, 3)) {
      case 0: return x - mean(x, {axis}, true);
      case 1: return softmax(x, {.axis = axis});
      case 2: return x * sigmoid(max_over(x, {axis}, true));
      default:
        return x +
               sum(x, {axis}, true) * graph.constant(f32, 1.0 / static_cast<double>(dim(x, axis)));
    }
  }

  /// Some layers behind x, but for those whose values would be too large.
  Graph net_of(Value x, const std::function<Value(Value)>& layer) {
    values_ = {x};
    for (std::int64_t i = pick(1, 6); i > 0; --i) {
      const Value next = layer(values_.back());
      if (elements(next) <= most.elements) values_.push_back(next);
    }
    graph.output("y0", values_.back());
    for (int i = 1; i < 3 && one_in(2); ++i)
      graph.output("y" + std::to_string(i),
                   values_[static_cast<std::size_t>(
                       pick(0, static_cast<std::int64_t>(values_.size()) - 1))]);
    return std::move(graph);
  }

  Graph graph;
  const Limits& most;

 private:
  std::mt19937 random_;
  std::vector<Value> values_;
};

class ImageNet {
 public:
  ImageNet(NetSize size, unsigned seed) : m_(size, seed) {}

  Graph make() {
    Value x = m_.input({m_.one_in(4) ? 2 : 1, m_.some(m_.most.channels), m_.some(m_.most.side),
                        m_.some(m_.most.side)});
    if (elements(x) > m_.most.elements) x = max_over(x, {3}, true);
    return m_.net_of(x, [&](Value last) { return layer(last); });
  }

 private:
  Value layer(Value x) {
    switch (m_.pick(0, 15)) {
      case 0: return pooled(x);
      case 1: return enlarged(x);
      case 2: return shuffled(x);
      case 3: return m_.cut(x, static_cast<int>(m_.pick(1, 3)));
      case 4: return x * gate(x);
      case 5: return over_channels(x);
      case 6: return m_.reduced(x, static_cast<int>(m_.pick(1, 3)));
      case 7: return m_.merged(x);
      default: return convolved(x);
    }
  }

  /// Taps, strides, dilations and borders of one spatial axis.
  struct Window {
    std::int64_t taps = 1, stride = 1, dilation = 1, low = 0, high = 0;
    std::int64_t span() const { return (taps - 1) * dilation + 1; }
  };
  Window window(std::int64_t extent, std::int64_t taps) {
    Window w{.taps = taps};
    w.stride = m_.any_of({1, 1, 1, 1, 2, 3});
    w.dilation = taps > 1 ? m_.any_of({1, 1, 1, 2}) : 1;
    switch (m_.pick(0, 3)) {
      case 0: break;
      case 1:
        w.low = m_.pick(0, w.span() - 1);
        w.high = m_.pick(0, w.span() - 1);
        break;
      default: w.low = w.high = w.span() / 2;
    }
    if (extent + w.low + w.high < w.span()) w.high = w.span() - extent - w.low;
    return w;
  }

  Value convolved(Value x) {
    const std::int64_t channels = dim(x, 1), taps = m_.any_of({1, 2, 3, 3, 3, 5, 7});
    std::int64_t groups = 1, out = m_.some(m_.most.channels);
    Window rows{.taps = taps, .low = taps / 2, .high = taps / 2}, columns = rows;
    if (m_.one_in(2)) {
      rows = window(dim(x, 2), m_.one_in(6) ? 1 : taps);
      columns = window(dim(x, 3), m_.one_in(6) ? 1 : taps);
    }
    if (m_.one_in(3)) {
      groups = channels;
      out = channels * m_.any_of({1, 1, 1, 2});
    } else if (m_.one_in(5)) {
      groups = m_.any_of({2, 3, 4});
      if (channels % groups != 0) groups = 1;
      out = groups * std::max<std::int64_t>(1, out / groups);
    }
    op::Conv attributes{.strides = {rows.stride, columns.stride},
                        .pad_low = {rows.low, columns.low},
                        .pad_high = {rows.high, columns.high},
                        .dilations = {rows.dilation, columns.dilation},
                        .groups = groups};
    const std::int64_t fan_in = channels / groups * rows.taps * columns.taps;
    Axes dims{out, channels / groups, rows.taps, columns.taps};
    if (m_.one_in(12)) {
      // The borders are cut off of what is made.
      attributes.transposed = true;
      attributes.pad_low = attributes.pad_high = {0, 0};
      dims = {channels, out / groups, rows.taps, columns.taps};
    }
    const std::int64_t places =
        elements(x) / channels / (attributes.transposed ? 1 : rows.stride * columns.stride);
    if (places * out * fan_in > m_.most.products) return m_.activated(pooled(x));
    const Value bias = m_.one_in(2) ? m_.weight({out}, 1) : Value();
    Value y = conv(x, m_.weight(dims, fan_in), attributes, bias);
    if (m_.one_in(4)) y = y * m_.weight({1, out, 1, 1}, 1) + m_.weight({1, out, 1, 1}, 1);
    return m_.one_in(4) ? m_.merged(y) : m_.activated(y);
  }

  /// No window lies in the border alone.
  Value pooled(Value x) {
    const std::int64_t taps = m_.any_of({2, 2, 3, 5});
    if (std::min(dim(x, 2), dim(x, 3)) < taps) return m_.activated(x);
    op::WindowReduce pool{.kind = m_.one_in(2) ? Reduction::max : Reduction::mean,
                          .window = {taps, taps},
                          .strides = {m_.pick(1, 3), m_.pick(1, 3)},
                          .pad_low = {m_.pick(0, taps - 1), m_.pick(0, taps - 1)},
                          .pad_high = {m_.pick(0, taps - 1), m_.pick(0, taps - 1)},
                          .dilations = {1, 1},
                          .count_include_pad = m_.one_in(2)};
    return m_.graph.add_one(pool, {x});
  }

  /// Every pixel becomes a square of four.
  Value enlarged(Value x) {
    const Axes d = x.type().dims();
    const Value apart = reshape(x, to_shape(Axes{d[0], d[1], d[2], 1, d[3], 1}));
    const Value copies = broadcast(apart, to_shape(Axes{d[0], d[1], d[2], 2, d[3], 2}));
    return reshape(copies, to_shape(Axes{d[0], d[1], 2 * d[2], 2 * d[3]}));
  }

  /// Channels of groups in turn; or pixels out of channels, where they are enough.
  Value shuffled(Value x) {
    const Axes d = x.type().dims();
    if (d[1] % 4 == 0 && m_.one_in(2)) {
      const Value apart = reshape(x, to_shape(Axes{d[0], d[1] / 4, 2, 2, d[2], d[3]}));
      return reshape(transpose(apart, {0, 1, 4, 2, 5, 3}),
                     to_shape(Axes{d[0], d[1] / 4, 2 * d[2], 2 * d[3]}));
    }
    const std::int64_t groups = d[1] % 3 == 0 ? 3 : d[1] % 2 == 0 ? 2 : d[1];
    const Value apart = reshape(x, to_shape(Axes{d[0], groups, d[1] / groups, d[2], d[3]}));
    return reshape(transpose(apart, {0, 2, 1, 3, 4}), to_shape(d));
  }

  /// Of each channel, by the means of all.
  Value gate(Value x) {
    const std::int64_t channels = dim(x, 1), hidden = m_.size(1, 16);
    const Value means = reshape(mean(x, {2, 3}), to_shape(Axes{dim(x, 0), channels}));
    const Value inner = relu(matmul(means, m_.weight({channels, hidden}, channels)));
    const Value outer = sigmoid(matmul(inner, m_.weight({hidden, channels}, hidden)));
    return reshape(outer, to_shape(Axes{dim(x, 0), channels, 1, 1}));
  }

  /// What nets do with channels last: a norm or a product over them; there and back.
  Value over_channels(Value x) {
    const std::int64_t channels = dim(x, 1), out = m_.some(m_.most.channels);
    Value rows = transpose(x, {0, 2, 3, 1});
    if (m_.one_in(2)) rows = layer_norm(rows, m_.weight({channels}, 1), m_.weight({channels}, 1));
    if (elements(x) * out <= m_.most.products)
      rows = m_.activated(matmul(rows, m_.weight({channels, out}, channels)));
    return transpose(rows, {0, 3, 1, 2});
  }

  Maker m_;
};

class SequenceNet {
 public:
  SequenceNet(NetSize size, unsigned seed) : m_(size, seed) {}

  Graph make() {
    const Value x =
        m_.input({m_.any_of({1, 1, 2, 3}), m_.some(m_.most.length), m_.some(m_.most.width)});
    return m_.net_of(x, [&](Value last) { return layer(last); });
  }

 private:
  Value layer(Value x) {
    switch (m_.pick(0, 9)) {
      case 0: return m_.cut(x, static_cast<int>(m_.pick(1, 2)));
      case 1: return m_.reduced(x, static_cast<int>(m_.pick(1, 2)));
      case 2: return m_.merged(x);
      case 3: return normed(x);
      case 4: return attended(x);
      case 5: return convolved(x);
      case 6: return turned(x);
      case 7: return looked_up(x);
      default: return m_.one_in(3) ? m_.merged(product(x)) : m_.activated(product(x));
    }
  }

  Value product(Value x, std::int64_t out = 0) {
    const std::int64_t width = dim(x, 2);
    if (out == 0) out = m_.some(m_.most.width);
    out = std::max<std::int64_t>(1, std::min(out, m_.most.products / elements(x)));
    const Value y = matmul(x, m_.weight({width, out}, width));
    return m_.one_in(2) ? y + m_.weight({out}, 1) : y;
  }

  Value normed(Value x) {
    const std::int64_t width = dim(x, 2);
    if (m_.one_in(3)) return rms_norm(x, m_.weight({width}, 1));
    return layer_norm(m_.one_in(2) ? m_.merged(x) : x, m_.weight({width}, 1),
                      m_.weight({width}, 1));
  }

  /// Heads as users write them: reshape, transpose, products and softmax.
  Value attended(Value x) {
    const std::int64_t heads = m_.pick(1, 4), width = m_.size(1, 24), length = dim(x, 1);
    if (length * elements(x) > m_.most.products) return normed(x);
    const auto split = [&](Value rows, const Axes& perm) {
      const Axes dims{dim(x, 0), length, heads, width};
      return transpose(reshape(rows, to_shape(dims)), perm);
    };
    const auto projected = [&] {
      return matmul(x, m_.weight({dim(x, 2), heads * width}, dim(x, 2)));
    };
    const Value q = split(projected(), {0, 2, 1, 3}), k = split(projected(), {0, 2, 3, 1}),
                v = split(projected(), {0, 2, 1, 3});
    Value scores = matmul(q, k) * m_.graph.constant(f32, 1 / std::sqrt(static_cast<double>(width)));
    if (m_.one_in(2)) scores = scores + m_.weight({1, 1, length, length}, 1);
    const Value rows = transpose(matmul(softmax(scores), v), {0, 2, 1, 3});
    return product(reshape(rows, to_shape(Axes{dim(x, 0), length, heads * width})), dim(x, 2));
  }

  /// Along the sequence, with its width as channels.
  Value convolved(Value x) {
    const std::int64_t channels = dim(x, 2), taps = m_.any_of({1, 3, 5}),
                       groups = m_.one_in(3) ? channels : 1;
    std::int64_t out = groups == 1 ? m_.some(m_.most.channels) : channels;
    const std::int64_t fan_in = channels / groups * taps;
    if (groups == 1)
      out = std::max<std::int64_t>(1, std::min(out, m_.most.products / (elements(x) * taps)));
    const Value y = conv(transpose(x, {0, 2, 1}), m_.weight({out, channels / groups, taps}, fan_in),
                         {.strides = {m_.any_of({1, 1, 2})},
                          .pad_low = {m_.pick(taps / 2, taps - 1)},
                          .pad_high = {taps / 2},
                          .dilations = {1},
                          .groups = groups});
    return transpose(m_.activated(y), {0, 2, 1});
  }

  /// The other way round; or with the product by its own transpose.
  Value turned(Value x) {
    const Value y = transpose(m_.activated(x), {0, 2, 1});
    if (m_.one_in(2) || elements(x) * dim(x, 1) > m_.most.products) return y;
    return matmul(x, y) * m_.graph.constant(f32, 1.0 / static_cast<double>(dim(x, 2)));
  }

  /// Some of its rows, in any order.
  Value looked_up(Value x) {
    const std::int64_t rows = m_.some(m_.most.length);
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < rows; ++i) places.push_back(m_.pick(0, dim(x, 1) - 1));
    const Tensor ids = Tensor::of<std::int64_t>({rows}, std::span<const std::int64_t>(places));
    return m_.activated(gather(x, m_.graph.constant(ids), 1));
  }

  Maker m_;
};

}  // namespace

Graph random_net(NetKind kind, NetSize size, unsigned seed) {
  return kind == NetKind::image ? ImageNet(size, seed).make() : SequenceNet(size, seed).make();
}

}  // namespace rlx::testing
