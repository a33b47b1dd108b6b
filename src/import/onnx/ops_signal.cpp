// Fourier transforms, windows, mel filters.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"
#include "rlx/signal.hpp"

namespace rlx::onnx {
namespace {

// ONNX keeps complex numbers as a last axis of 2 (of 1 for reals).
bool has_complex_axis(const Value& x) {
  const auto parts = static_dim(x, -1);
  if (parts != 1 && parts != 2) fail("The last axis must be 1 or 2, not ({}).", parts);
  return parts == 2;
}

Value without_last(const Value& x) {
  return reshape(x, Shape(x.shape().begin(), x.shape().end() - 1));
}

Value part(const Value& x, std::int64_t index) {
  return without_last(slice_axis(x, x.rank() - 1, index, index + 1));
}

Value to_complex(NodeContext& c, const Value& x) {
  if (!has_complex_axis(x)) {
    const Value real = without_last(x);
    return c.add(op::MakeComplex{}, {real, filled_like(c, scalar_like(c, real, 0), real)});
  }
  return c.add(op::MakeComplex{}, {part(x, 0), part(x, 1)});
}

Value from_complex(NodeContext& c, const Value& x) {
  const Axes last{x.rank()};
  return concat(
      {unsqueeze_axes(c.add(op::Real{}, {x}), last), unsqueeze_axes(c.add(op::Imag{}, {x}), last)},
      x.rank());
}

// Cuts or pads the axis with zeros at its end.
Value with_length(const Value& x, std::int64_t axis, std::int64_t length) {
  const auto now = static_dim(x, axis);
  if (length < now) return slice_axis(x, axis, 0, length);
  if (length == now) return x;
  Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
  high[static_cast<std::size_t>(axis)] = length - now;
  return pad(x, low, high);
}

std::int64_t scalar_operand(NodeContext& c, int input, const char* what) {
  const Axes numbers = known_or_fail(c, input, what);
  if (numbers.size() != 1) fail("The {} is no scalar.", what);
  return numbers[0];
}

// The transform of x [..., n, ..., 1 or 2] as ONNX says it; f16 is computed in f32.
Value transformed(NodeContext& c, Value x, std::int64_t axis, std::optional<std::int64_t> length,
                  bool inverse, bool onesided) {
  const DType dtype = x.dtype();
  if (dtype != f32 && dtype != f64) x = cast(x, f32);
  const auto n = static_dim(x, axis);
  Value y;
  if (inverse && onesided) {
    const auto result = length.value_or(2 * (n - 1));
    if (result <= 0) fail("The length ({}) is not positive.", result);
    const Value bins = to_complex(c, with_length(x, axis, result / 2 + 1));
    y = unsqueeze_axes(c.add(op::Irfft{axis, result}, {bins}), {x.rank() - 1});
  } else {
    if (length.value_or(n) <= 0) fail("The length ({}) is not positive.", length.value_or(n));
    x = with_length(x, axis, length.value_or(n));
    const bool real = !has_complex_axis(x);
    if (real && !inverse && onesided) {
      y = from_complex(c, c.add(op::Rfft{axis}, {without_last(x)}));
    } else {
      const Value spectrum = c.add(op::Fft{axis, inverse}, {to_complex(c, x)});
      y = from_complex(c, spectrum);
      if (onesided) y = slice_axis(y, axis, 0, length.value_or(n) / 2 + 1);
    }
  }
  return y.dtype() == dtype ? y : cast(y, dtype);
}

void dft(NodeContext& c) {
  const Value x = c.in(0);
  std::int64_t axis = c.version() < 20 ? c.integer("axis", 1) : -2;
  if (c.version() >= 20 && c.has(2)) axis = scalar_operand(c, 2, "axis");
  axis = normal_axis(axis, x.rank());
  if (axis == x.rank() - 1) fail("The axis ({}) holds the parts of numbers.", axis);
  std::optional<std::int64_t> length;
  if (c.has(1)) length = scalar_operand(c, 1, "length");
  c.set(transformed(c, x, axis, length, c.flag("inverse"), c.flag("onesided")));
}

// [B, T, 1 or 2] -> [B, frames, bins, 2].
void stft(NodeContext& c) {
  const Value x = c.in(0);
  const auto step = scalar_operand(c, 1, "step");
  const bool onesided = c.flag("onesided", true);
  Value window = c.optional(2);
  std::int64_t length = 0;
  if (c.has(3)) {
    length = scalar_operand(c, 3, "frame length");
  } else if (window) {
    length = static_dim(window, 0);
  } else {
    fail("Neither a window nor a frame length is given.");
  }
  const bool is_complex_signal = x.rank() == 3 && has_complex_axis(x);
  Value frames;
  const Value real = x.rank() == 3 ? part(x, 0) : x;
  frames = unsqueeze_axes(c.add(op::Frame{length, step}, {real}), {-1});
  if (is_complex_signal) {
    const Value imaginary = c.add(op::Frame{length, step}, {part(x, 1)});
    frames = concat({frames, unsqueeze_axes(imaginary, {-1})}, 3);
  }
  if (window) frames = frames * reshape(window, {length, 1});
  c.set(transformed(c, frames, 2, std::nullopt, false, onesided));
}

// ---- windows ------------------------------------------------------------------------------------

std::int64_t window_size(NodeContext& c) {
  const auto size = scalar_operand(c, 0, "size");
  if (size < 0 || size > (1 << 24)) fail("The size ({}) of the window is wrong.", size);
  return size;
}

void put_window(NodeContext& c, std::int64_t size, const std::vector<double>& values) {
  c.set(constant_of(c, c.element_type("output_datatype", f32), {size}, values));
}

/// a0 - a1 cos(t) + a2 cos(2 t) of t = 2 pi n / N; N is the size, or one less for symmetric
/// windows. SciPy and rlx::window have other numbers for Hamming's window, and 1 for windows of one
/// point.
void cosine_window(NodeContext& c, double a0, double a1, double a2) {
  const std::int64_t size = window_size(c);
  const bool is_periodic = c.flag("periodic", true);
  const double period = static_cast<double>(is_periodic ? size : size - 1);
  std::vector<double> values;
  for (std::int64_t n = 0; n < size; ++n) {
    const double t = 2 * std::numbers::pi * static_cast<double>(n) / period;
    // The symmetric window of one point divides by zero.
    const bool is_point = size == 1 && !is_periodic;
    values.push_back(is_point ? 1 : a0 - a1 * std::cos(t) + a2 * std::cos(2 * t));
  }
  put_window(c, size, values);
}

void hann_window(NodeContext& c) { cosine_window(c, 0.5, 0.5, 0); }
void hamming_window(NodeContext& c) { cosine_window(c, 25.0 / 46, 21.0 / 46, 0); }
void blackman_window(NodeContext& c) { cosine_window(c, 0.42, 0.5, 0.08); }

double real_operand(NodeContext& c, int input) {
  const auto numbers = c.known_reals(c.in(input));
  if (!numbers) fail_unsupported("Its inputs must be known before it runs.");
  if (numbers->size() != 1) fail("Input ({}) is no scalar.", input);
  return (*numbers)[0];
}

// Triangular filters [bins, mels], equally spaced on the scale mel = 2595 log10(1 + f / 700).
void mel_weight_matrix(NodeContext& c) {
  const auto mels = scalar_operand(c, 0, "number of filters");
  const auto length = scalar_operand(c, 1, "transform length");
  const auto rate = scalar_operand(c, 2, "sample rate");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(real_operand(c, 3)), high = mel(real_operand(c, 4));
  if (mels <= 0 || length <= 0 || rate <= 0 || mels * (length / 2 + 1) > (1 << 26)) {
    fail("({}) filters of ({}) points at ({}) Hz are impossible.", mels, length, rate);
  }
  const auto bins = length / 2 + 1;
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < mels + 2; ++i) {
    const double at = low + static_cast<double>(i) * (high - low) / static_cast<double>(mels + 2);
    const double hertz = 700 * (std::pow(10, at / 2595) - 1);
    const double bin =
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    edges.push_back(std::clamp(static_cast<std::int64_t>(bin), std::int64_t{0}, bins));
  }
  std::vector<double> weights(static_cast<std::size_t>(bins * mels), 0);
  const auto put = [&](std::int64_t bin, std::int64_t filter, double weight) {
    if (bin < bins) weights[static_cast<std::size_t>(bin * mels + filter)] = weight;
  };
  for (std::int64_t i = 0; i < mels; ++i) {
    const auto left = edges[static_cast<std::size_t>(i)];
    const auto centre = edges[static_cast<std::size_t>(i + 1)];
    const auto right = edges[static_cast<std::size_t>(i + 2)];
    if (left == centre) put(centre, i, 1);
    for (auto j = left; j <= centre && left < centre; ++j) {
      put(j, i, static_cast<double>(j - left) / static_cast<double>(centre - left));
    }
    for (auto j = centre; j < right; ++j) {
      put(j, i, static_cast<double>(right - j) / static_cast<double>(right - centre));
    }
  }
  c.set(constant_of(c, c.element_type("output_datatype", f32), {bins, mels}, weights));
}

constexpr OpEntry entries[] = {
    {"DFT", 17, dft},
    {"STFT", 17, stft},
    {"HannWindow", 17, hann_window},
    {"HammingWindow", 17, hamming_window},
    {"BlackmanWindow", 17, blackman_window},
    {"MelWeightMatrix", 17, mel_weight_matrix},
};

}  // namespace

OpEntries signal_entries() { return entries; }

}  // namespace rlx::onnx
