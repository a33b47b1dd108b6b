// Weighted sums of pixels.
#include "import/onnx/sample.hpp"

#include <algorithm>

#include "import/onnx/build.hpp"

namespace rlx::onnx {
namespace {

// Mirrors at the borders until x lies between them: a triangle wave of twice the range.
Value reflected(NodeContext& c, const Value& x, const PixelAxis& axis) {
  const double range = axis.high() - axis.low();
  if (range <= 0) return x * scalar_like(c, x, 0);
  const Value low = scalar_like(c, x, axis.low()), period = scalar_like(c, x, 2 * range);
  const Value away = c.add(op::Mod{}, {x - low, period});
  return min(away, period - away) + low;
}

// A whole place with its weight: outside the image it is moved inside or weighs nothing.
Neighbour neighbour(NodeContext& c, const Value& place, const Value& weight,
                    const PixelAxis& axis) {
  const Value first = scalar_like(c, place, 0);
  const Value last = scalar_like(c, place, static_cast<double>(axis.size - 1));
  if (axis.outside == Outside::zeros) {
    const Value inside = logical_and(less_equal(first, place), less_equal(place, last));
    const Value safe = select(inside, place, first);
    return {cast(safe, i64), select(inside, weight, scalar_like(c, weight, 0))};
  }
  const Value moved =
      axis.outside == Outside::reflection ? rlx::floor(reflected(c, place, axis)) : place;
  return {cast(clamp(moved, first, last), i64), weight};
}

// Keys' cubic convolution with a = -0.75, at distance t in [0, 1) from the second of four pixels.
std::vector<Value> cubic_weights(NodeContext& c, const Value& t) {
  const auto k = [&](double value) { return scalar_like(c, t, value); };
  constexpr double a = -0.75;
  const auto outer = [&](const Value& x) {
    return ((k(a) * x - k(5 * a)) * x + k(8 * a)) * x - k(4 * a);
  };
  const auto inner = [&](const Value& x) { return (k(a + 2) * x - k(a + 3)) * x * x + k(1); };
  return {outer(t + k(1)), inner(t), inner(k(1) - t), outer(k(2) - t)};
}

}  // namespace

std::vector<Neighbour> neighbours(NodeContext& c, Value x, const std::string& mode,
                                  const PixelAxis& axis) {
  const Value one = scalar_like(c, x, 1);
  if (mode == "nearest") x = rlx::round(x);
  const Value low = scalar_like(c, x, axis.low()), high = scalar_like(c, x, axis.high());
  const Value inside = logical_and(less_equal(low, x), less_equal(x, high));
  if (axis.outside == Outside::border) {
    const Value last = scalar_like(c, x, static_cast<double>(axis.size - 1));
    x = select(inside, x, clamp(x, scalar_like(c, x, 0), last));
  } else if (axis.outside == Outside::reflection) {
    x = select(inside, x, reflected(c, x, axis));
  }
  if (mode == "nearest") {
    const Value whole = axis.outside == Outside::reflection ? c.add(op::Trunc{}, {x}) : x;
    return {neighbour(c, whole, filled_like(c, one, x), axis)};
  }
  const Value base = rlx::floor(x), t = x - base;
  if (mode == "linear") {
    return {neighbour(c, base, one - t, axis), neighbour(c, base + one, t, axis)};
  }
  const auto weights = cubic_weights(c, t);
  std::vector<Neighbour> four;
  for (int i = 0; i < 4; ++i) {
    four.push_back(
        neighbour(c, base + scalar_like(c, x, i - 1), weights[static_cast<std::size_t>(i)], axis));
  }
  return four;
}

Value weighted_pixels(NodeContext& c, const Value& image,
                      const std::vector<std::vector<Neighbour>>& axes, bool maximum) {
  const Shape& s = image.shape();
  const Dim pixels = product_of(Shape(s.begin() + 2, s.end()));
  const Value flat = reshape(image, {s[0], s[1], pixels});
  // Mixed-radix counter over the neighbours of every axis.
  std::vector<std::size_t> pick(axes.size(), 0);
  Value total;
  while (true) {
    Value place, weight;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto size = static_dim(image, static_cast<std::int64_t>(i) + 2);
      const Neighbour& neighbour = axes[i][pick[i]];
      const Value inside =
          clamp(neighbour.place, c.scalar(i64, 0), c.scalar(i64, static_cast<double>(size - 1)));
      place = place ? place * c.scalar(i64, static_cast<double>(size)) + inside : inside;
      weight = weight ? weight * neighbour.weight : neighbour.weight;
    }
    const Shape& points = place.shape();
    const Value index =
        broadcast(reshape(place, {points[0], 1, points[1]}), {points[0], s[1], points[1]});
    const Value pixel = c.add(op::GatherElements{2}, {flat, index});
    const Value term = pixel * reshape(weight, {points[0], 1, points[1]});
    total = !total ? term : maximum ? max(total, term) : total + term;
    std::size_t axis = axes.size();
    while (axis > 0 && ++pick[axis - 1] == axes[axis - 1].size()) pick[--axis] = 0;
    if (axis == 0) return total;
  }
}

}  // namespace rlx::onnx
