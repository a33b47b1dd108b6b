// What the builders of signal processing share.
#include "ops/signal_tools.hpp"

#include <algorithm>
#include <numeric>

namespace rlx {

Value constant_like(Value signal, const Tensor& values) {
  const Value constant = signal.graph().constant(values);
  return signal.dtype() == f64 ? constant : cast(constant, signal.dtype());
}

Value constant_like(Value signal, Dims dims, const std::vector<double>& values) {
  return constant_like(signal,
                       Tensor::of<double>(std::move(dims), std::span<const double>(values)));
}

Value constant_like(Value signal, double value) {
  return signal.graph().constant(signal.dtype(), value);
}

void require_signal(Value signal, std::string_view name) {
  if (!signal) throw Exception(bad_input("The signal of {} is left out.", name));
  if ((signal.dtype() != f32 && signal.dtype() != f64) || signal.rank() < 1) {
    throw Exception(bad_input("The signal ({}) of {} is not f32 or f64 of at least one axis.",
                              signal.type().text(), name));
  }
}

std::int64_t static_samples(Value signal, std::string_view name) {
  const Dim& samples = signal.shape().back();
  if (!samples.is_static()) {
    throw Exception(
        bad_input("The length ({}) of the signal of {} must be a number.", samples.text(), name));
  }
  return samples.value();
}

Shape leading(const Value& x, std::size_t count, std::initializer_list<Dim> rest) {
  Shape shape(x.shape().begin(), x.shape().end() - static_cast<std::ptrdiff_t>(count));
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

Value part_of_axis(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  const auto rank = static_cast<std::size_t>(x.rank());
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis);
  const Dim& dim = x.shape()[at];
  if (begin < 0) begin += dim.value();
  if (end < 0) end += dim.value();
  if (begin == 0 && (end == op::slice_end || dim == Dim(end))) return x;
  Axes starts(rank, 0), limits;
  for (const Dim& each : x.shape())
    limits.push_back(each.is_static() ? each.value() : op::slice_end);
  starts[at] = begin;
  if (end != op::slice_end) limits[at] = end;
  return slice(x, starts, limits);
}

Value reversed(Value x, std::int64_t axis) {
  return apply(op::Reverse{.axes = {axis < 0 ? axis + x.rank() : axis}}, {x});
}

Value swapped(Value x) {
  Axes perm(static_cast<std::size_t>(x.rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}

Value widened(Value x, std::int64_t low, std::int64_t high) {
  return extended(x, low, high, Extension::zeros);
}

Value extended(Value signal, std::int64_t low, std::int64_t high, Extension extension) {
  if (low == 0 && high == 0) return signal;
  if (extension == Extension::odd) {
    const std::int64_t samples = static_samples(signal, "an odd extension");
    if (std::max(low, high) >= samples) {
      throw Exception(bad_input("The signal {} is too short to be extended by ({}) samples.",
                                signal.type().text(), std::max(low, high)));
    }
    const Value two = constant_like(signal, 2);
    const Value first = part_of_axis(signal, -1, 0, 1);
    const Value last = part_of_axis(signal, -1, samples - 1, samples);
    const Value before = two * first - reversed(part_of_axis(signal, -1, 1, low + 1));
    const Value behind =
        two * last - reversed(part_of_axis(signal, -1, samples - 1 - high, samples - 1));
    return concat({before, signal, behind}, signal.rank() - 1);
  }
  Axes before(static_cast<std::size_t>(signal.rank()), 0), behind = before;
  before.back() = low;
  behind.back() = high;
  PadMode mode = PadMode::constant;
  if (extension == Extension::reflect) mode = PadMode::reflect;
  if (extension == Extension::edge) mode = PadMode::edge;
  return apply(op::Pad{.low = before, .high = behind, .mode = mode}, {signal});
}

Parts spectrum_parts(Value frames, std::int64_t n_fft, bool onesided) {
  const Dim& length = frames.shape().back();
  if (length.is_static()) frames = widened(frames, 0, n_fft - length.value());
  const Value bins = apply(op::Rfft{}, {frames});
  Parts parts{apply(op::Real{}, {bins}), apply(op::Imag{}, {bins})};
  if (onesided || n_fft < 3) return parts;
  // Bin n - k of a real signal is the conjugate of bin k.
  const auto mirrored = [&](Value x) { return reversed(part_of_axis(x, -1, 1, (n_fft + 1) / 2)); };
  const std::int64_t axis = frames.rank() - 1;
  return {concat({parts.re, mirrored(parts.re)}, axis),
          concat({parts.im, -mirrored(parts.im)}, axis)};
}

Parts first_bins(Value spectrum, std::int64_t bins) {
  const Value first = part_of_axis(spectrum, -1, 0, bins);
  if (is_complex(spectrum.dtype())) return {apply(op::Real{}, {first}), apply(op::Imag{}, {first})};
  const std::int64_t block = spectrum.shape().back().value() / 2;
  return {first, part_of_axis(spectrum, -1, block, block + bins)};
}

Value power_of(const Parts& parts) { return parts.re * parts.re + parts.im * parts.im; }

Value complex_of(const Parts& parts) { return apply(op::MakeComplex{}, {parts.re, parts.im}); }

Value detrended(Value lines, Detrend detrend, std::int64_t length) {
  if (detrend == Detrend::none) return lines;
  // In f64: what is taken off may be much larger than what is left.
  const std::int64_t axis = lines.rank() - 1;
  const DType dtype = lines.dtype();
  lines = cast(lines, f64);
  lines = lines - mean(lines, {axis}, true);
  if (detrend == Detrend::constant || length < 2) return cast(lines, dtype);
  // The slope is that of the points about their middle.
  std::vector<double> about(static_cast<std::size_t>(length));
  double energy = 0;
  for (std::int64_t j = 0; j < length; ++j) {
    const double x = static_cast<double>(j) - static_cast<double>(length - 1) / 2;
    about[static_cast<std::size_t>(j)] = x;
    energy += x * x;
  }
  const Value x = constant_like(lines, {length}, about);
  const Value slope = sum(lines * x, {axis}, true) * constant_like(lines, 1 / energy);
  return cast(lines - slope * x, dtype);
}

}  // namespace rlx
