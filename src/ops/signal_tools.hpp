// What the builders of signal processing share: constants of a signal's dtype, checks, extensions,
// spectra as pairs of reals.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/apply.hpp"
#include "rlx/signal.hpp"

namespace rlx {

/// The f64 values as a constant of the signal's dtype.
Value constant_like(Value signal, const Tensor& values);
Value constant_like(Value signal, Dims dims, const std::vector<double>& values);
Value constant_like(Value signal, double value);

/// Throws where the signal is not f32 or f64 of at least one axis.
void require_signal(Value signal, std::string_view name);
/// The number of samples; throws where it is a symbol.
std::int64_t static_samples(Value signal, std::string_view name);

/// The leading axes of a shape (all but the last `count`), then these.
Shape leading(const Value& x, std::size_t count, std::initializer_list<Dim> rest);
/// [begin, end) of one axis, counted from the end where negative; slice_end for all that is left.
Value part_of_axis(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end);
Value reversed(Value x, std::int64_t axis = -1);
/// Swaps the last two axes.
Value swapped(Value x);
/// Zeros (or fewer elements) at the ends of the last axis.
Value widened(Value x, std::int64_t low, std::int64_t high);
Value extended(Value signal, std::int64_t low, std::int64_t high, Extension extension);

/// A spectrum's two parts.
struct Parts {
  Value re, im;
};
/// rfft of the last axis, zeros put behind it up to n_fft points; all n_fft bins where not
/// onesided.
Parts spectrum_parts(Value frames, std::int64_t n_fft, bool onesided);
/// Of the first bins of a spectrum: complex bins, or a block of real parts and one of imaginary
/// ones.
Parts first_bins(Value spectrum, std::int64_t bins);
Value power_of(const Parts& parts);
Value complex_of(const Parts& parts);

/// Each line (last axis) without its mean or its line of least squares.
Value detrended(Value lines, Detrend detrend, std::int64_t length);

}  // namespace rlx
