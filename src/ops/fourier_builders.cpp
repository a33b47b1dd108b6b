// Fourier transforms as numpy.fft names them: of one axis and of several, cut or with zeros behind.
#include <set>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

bool is_complex_value(Value x) { return x.dtype() == c64 || x.dtype() == c128; }

std::int64_t axis_of(Value x, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(x.rank());
  if (axis < -rank || axis >= rank)
    throw Exception(bad_input("The axis ({}) is none of {}.", axis, x.type().text()));
  return axis < 0 ? axis + rank : axis;
}

void require_numbers(Value x, std::string_view name, bool is_complex) {
  if (!x) throw Exception(bad_input("The signal of {} is left out.", name));
  const bool real = x.dtype() == f32 || x.dtype() == f64;
  if (!real && !(is_complex && is_complex_value(x))) {
    throw Exception(bad_input("The signal ({}) of {} is not {}.", x.type().text(), name,
                              is_complex ? "f32, f64, c64 or c128" : "f32 or f64"));
  }
}

Value as_complex(Value x, std::string_view name) {
  require_numbers(x, name, true);
  if (is_complex_value(x)) return x;
  return complex_of({x, broadcast(constant_like(x, 0.0), x.shape())});
}

Value with_zeros_behind(Value x, std::int64_t axis, std::int64_t count) {
  Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
  high[static_cast<std::size_t>(axis)] = count;
  return pad(x, low, high);
}

/// `points` of an axis.
Value fitted(Value x, std::int64_t axis, std::int64_t points) {
  if (points < 0) throw Exception(bad_input("A transform of ({}) points is none.", points));
  const Dim& dim = x.shape()[static_cast<std::size_t>(axis)];
  if (points == 0 || dim == Dim(points)) return x;
  if (!dim.is_static())
    throw Exception(bad_input("The axis ({}) to be cut to ({}) is no number.", dim.text(), points));
  if (points < dim.value()) return part_of_axis(x, axis, 0, points);
  const std::int64_t more = points - dim.value();
  if (!is_complex_value(x)) return with_zeros_behind(x, axis, more);
  return complex_of({with_zeros_behind(apply(op::Real{}, {x}), axis, more),
                     with_zeros_behind(apply(op::Imag{}, {x}), axis, more)});
}

Value one_axis(Value x, std::int64_t points, std::int64_t axis, bool inverse, FftNorm norm) {
  x = as_complex(x, inverse ? "ifft" : "fft");
  axis = axis_of(x, axis);
  return apply(op::Fft{.axis = axis, .inverse = inverse, .norm = norm}, {fitted(x, axis, points)});
}

/// The axes counted from the front, each once.
Axes axes_of(Value x, const Axes& axes) {
  Axes result;
  if (axes.empty()) {
    for (int i = 0; i < x.rank(); ++i) result.push_back(i);
  }
  for (const std::int64_t axis : axes) result.push_back(axis_of(x, axis));
  if (std::set<std::int64_t>(result.begin(), result.end()).size() != result.size() ||
      result.empty()) {
    throw Exception(bad_input("The axes of a transform of {} are none, or one of them twice.",
                              x.type().text()));
  }
  return result;
}

Value over(Value x, const Axes& axes, bool inverse, FftNorm norm) {
  for (const std::int64_t axis : axes) x = one_axis(x, 0, axis, inverse, norm);
  return x;
}

}  // namespace

Value fft(Value x, std::int64_t points, std::int64_t axis, FftNorm norm) {
  return one_axis(x, points, axis, false, norm);
}
Value ifft(Value x, std::int64_t points, std::int64_t axis, FftNorm norm) {
  return one_axis(x, points, axis, true, norm);
}

Value rfft(Value x, std::int64_t points, std::int64_t axis, FftNorm norm) {
  require_numbers(x, "rfft", false);
  axis = axis_of(x, axis);
  return apply(op::Rfft{.axis = axis, .norm = norm}, {fitted(x, axis, points)});
}

Value irfft(Value x, std::int64_t points, std::int64_t axis, FftNorm norm) {
  x = as_complex(x, "irfft");
  axis = axis_of(x, axis);
  if (points != 0) x = fitted(x, axis, points / 2 + 1);
  return apply(op::Irfft{.axis = axis, .length = points, .norm = norm}, {x});
}

Value fftn(Value x, const Axes& axes, FftNorm norm) {
  x = as_complex(x, "fftn");
  return over(x, axes_of(x, axes), false, norm);
}
Value ifftn(Value x, const Axes& axes, FftNorm norm) {
  x = as_complex(x, "ifftn");
  return over(x, axes_of(x, axes), true, norm);
}

Value rfftn(Value x, const Axes& axes, FftNorm norm) {
  require_numbers(x, "rfftn", false);
  Axes rest = axes_of(x, axes);
  const std::int64_t last = rest.back();
  rest.pop_back();
  return over(rfft(x, 0, last, norm), rest, false, norm);
}

Value irfftn(Value x, std::int64_t last_points, const Axes& axes, FftNorm norm) {
  x = as_complex(x, "irfftn");
  Axes rest = axes_of(x, axes);
  const std::int64_t last = rest.back();
  rest.pop_back();
  return irfft(over(x, rest, true, norm), last_points, last, norm);
}

}  // namespace rlx
