// Two forms: neighbouring columns as channels, and a product of all taps at once.
#include "passes/convolution_forms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "passes/axis_order.hpp"

namespace rlx::passes {
namespace {

std::int64_t at(const Axes& axes, std::size_t i, std::int64_t otherwise) {
  return axes.empty() ? otherwise : axes[i];
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Shape shape_of(const Dims& dims) { return {dims.begin(), dims.end()}; }

/// `count` neighbours along the last spatial axis make a point with count * n channels. Their
/// kernels lie in one that reaches over all of them, each at its place among zeros.
class Columns : public Form {
 public:
  Columns(const FewChannels& c, std::int64_t count)
      : c_(c), count_(count), axis_(c.axes() - 1), places_((c.y[c.axes()] + count - 1) / count) {}

  /// Steps from kernel to kernel in taps; 0: they do not lie on a grid of taps.
  static std::int64_t step(const FewChannels& c) {
    const std::size_t axis = c.axes() - 1;
    return c.stride(axis) % c.dilation(axis) == 0 ? c.stride(axis) / c.dilation(axis) : 0;
  }
  std::int64_t taps() const { return c_.w[axis_] + (count_ - 1) * step(c_); }
  /// Multiplications of a row for each tap of the other axes and channel, idle lanes included.
  double work() const {
    constexpr std::int64_t lanes = 16;
    return static_cast<double>(places_ * taps() * rounded_up(count_ * c_.outputs(), lanes));
  }
  /// What the wide kernel needs behind the image.
  std::int64_t pad_high() const {
    const std::int64_t reach =
        (places_ - 1) * c_.stride(axis_) * count_ + (taps() - 1) * c_.dilation(axis_) + 1;
    return reach - c_.x[axis_ + 1] - c_.pad_low(axis_);
  }

  std::string what() const override { return fmt::format("with {} columns side by side", count_); }
  double weights() const override {
    return static_cast<double>(count_ * taps()) / static_cast<double>(c_.w[axis_]);
  }

  Value result(Value x, Value w) const override {
    Values kernels;
    for (std::int64_t i = 0; i < count_; ++i) {
      Axes low(c_.w.size(), 0), high(c_.w.size(), 0);
      low[axis_] = i * step(c_);
      high[axis_] = taps() - c_.w[axis_] - low[axis_];
      kernels.push_back(pad(w, low, high));
    }
    op::Conv conv = c_.conv;
    if (conv.strides.empty()) conv.strides.assign(c_.axes(), 1);
    if (conv.pad_low.empty()) conv.pad_low.assign(c_.axes(), 0);
    if (conv.pad_high.empty()) conv.pad_high.assign(c_.axes(), 0);
    conv.strides[axis_] *= count_;
    conv.pad_high[axis_] = pad_high();
    const auto last = static_cast<std::int64_t>(c_.w.size()) - 1;
    return x.graph().add_one(conv, {x, concat(kernels, last)});
  }

  Value of_channels(Value operand) const override {
    const Dim n(c_.outputs()), count(count_);
    const Value each = broadcast(reshape(operand, {Dim(1), n}), {count, n});
    return reshape(each, {Dim(count_ * c_.outputs())});
  }

  Value in_order(Value result) const override {
    Dims wide = c_.y;
    wide[axis_ + 1] = places_ * count_;
    const Value y = reshape(result, shape_of(wide));
    return wide == c_.y ? y : slice(y, Axes(c_.y.size(), 0), Axes(c_.y.begin(), c_.y.end()));
  }

 private:
  const FewChannels c_;
  const std::int64_t count_;
  const std::size_t axis_;  ///< among the spatial ones
  const std::int64_t places_;
};

/// A product of the weights, [taps * n, C], with all points of x gives a plane for each tap and
/// output channel; y is the sum of the planes, each shifted to where its tap reads. The result is
/// [n, N, spatial...]; of one tap that is not shifted [N, n, points], an image behind the other.
class TapProducts : public Form {
 public:
  explicit TapProducts(const FewChannels& c) : c_(c) {}

  std::string what() const override {
    return c_.taps() == 1 ? "as a product of the weights and all points"
                          : fmt::format("as one product of {} taps", c_.taps());
  }
  double weights() const override { return 1; }

  Value result(Value x, Value w) const override {
    Axes channels_last;
    for (std::size_t i = 0; i < c_.axes(); ++i)
      channels_last.push_back(static_cast<std::int64_t>(i));
    const auto axes = static_cast<std::int64_t>(c_.axes());
    channels_last.insert(channels_last.end(), {axes + 1, axes});
    const Dim channels(c_.channels());
    const Value a = reshape(transpose(w, channels_last), {Dim(c_.taps() * c_.outputs()), channels});
    if (is_flat(c_)) {
      const Value images = reshape(x, {Dim(c_.x[0]), Dim(c_.points() / c_.x[0]), channels});
      return matmul(a, transpose(images, {0, 2, 1}));
    }
    const std::int64_t points = x.type().elements() / c_.channels();
    return sum_of(matmul(a, transpose(reshape(x, {Dim(points), channels}), {1, 0})));
  }

  Value of_channels(Value operand) const override {
    Shape shape(is_flat(c_) ? 2 : c_.y.size(), Dim(1));
    shape[0] = c_.outputs();
    return reshape(operand, shape);
  }

  Value in_order(Value result) const override {
    if (is_flat(c_)) {
      Dims planes{c_.y[0], c_.outputs()};
      planes.insert(planes.end(), c_.y.begin() + 1, c_.y.end() - 1);
      return transpose(reshape(result, shape_of(planes)),
                       to_channels_last(static_cast<int>(c_.y.size())));
    }
    if (c_.outputs() == 1) return reshape(result, shape_of(c_.y));
    Axes perm;
    for (std::size_t i = 1; i < c_.y.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(0);
    return transpose(result, perm);
  }

  /// One tap and no border: the planes are y.
  static bool is_flat(const FewChannels& c) {
    return c.taps() == 1 && std::equal(c.y.begin(), c.y.end() - 1, c.x.begin());
  }

 private:
  Value sum_of(Value planes) const {
    Dims image{c_.outputs()};
    image.insert(image.end(), c_.x.begin(), c_.x.end() - 1);
    Value sum;
    for (std::int64_t tap = 0; tap < c_.taps(); ++tap) {
      const Value plane = slice(planes, {tap * c_.outputs(), 0},
                                {(tap + 1) * c_.outputs(), element_count(image) / c_.outputs()});
      const Value moved = shifted(reshape(plane, shape_of(image)), tap);
      sum = sum ? sum + moved : moved;
    }
    return sum;
  }

  /// The points that the tap reads for each point of y: the others are cut off, those outside of x
  /// are 0.
  Value shifted(Value plane, std::int64_t tap) const {
    Axes low(c_.y.size(), 0), high(c_.y.size(), 0);
    for (std::size_t i = c_.axes(); i-- > 0;) {
      low[i + 2] = c_.pad_low(i) - tap % c_.w[i] * c_.dilation(i);
      high[i + 2] = c_.y[i + 1] - c_.x[i + 1] - low[i + 2];
      tap /= c_.w[i];
    }
    return pad(plane, low, high);
  }

  const FewChannels c_;
};

/// Products of taps pay where the planes are small beside the image: they go through memory. With
/// one tap there are none, and an image whose pixels lie side by side is read as it is.
bool suits_tap_products(const FewChannels& c) {
  constexpr std::int64_t most_outputs = 8, most_taps = 64, most_planes = 4;  // for each channel
  constexpr std::int64_t most_rows = 64;                                     // of one tap
  for (std::size_t i = 0; i < c.axes(); ++i) {
    if (c.stride(i) != 1) return false;
  }
  if (c.taps() == 1)
    return c.planes && (c.x[0] == 1 || TapProducts::is_flat(c)) && c.outputs() <= most_rows;
  return c.outputs() <= most_outputs && c.taps() <= most_taps &&
         c.taps() * c.outputs() <= most_planes * c.channels();
}

}  // namespace

std::int64_t FewChannels::taps() const { return element_count({w.begin(), w.end() - 2}); }
std::int64_t FewChannels::points() const { return element_count({y.begin(), y.end() - 1}); }
std::int64_t FewChannels::stride(std::size_t axis) const { return at(conv.strides, axis, 1); }
std::int64_t FewChannels::dilation(std::size_t axis) const { return at(conv.dilations, axis, 1); }
std::int64_t FewChannels::pad_low(std::size_t axis) const { return at(conv.pad_low, axis, 0); }

Forms forms_of(const FewChannels& c) {
  constexpr std::int64_t most_outputs = 64;       // what a block of columns holds
  constexpr double least_gain = 1.1, near = 1.2;  // of the work
  Forms forms;
  if (Columns::step(c) > 0) {
    double most = Columns(c, 1).work() / least_gain;
    std::vector<Columns> columns;
    for (const std::int64_t count : {2, 3, 4, 5, 8, 16}) {
      Columns form(c, count);
      if (count * c.outputs() > most_outputs || count > c.y[c.axes()] || form.pad_high() < 0)
        continue;
      most = std::min(most, form.work() * near);
      columns.push_back(std::move(form));
    }
    for (Columns& form : columns) {
      if (form.work() <= most) forms.push_back(std::make_unique<Columns>(std::move(form)));
    }
  }
  if (suits_tap_products(c)) forms.push_back(std::make_unique<TapProducts>(c));
  return forms;
}

}  // namespace rlx::passes
