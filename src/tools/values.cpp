// Summaries and comparisons of values.
#include "tools/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.hpp"

namespace rlx::tools {
namespace {

template <class T>
T load(const TensorView& view, std::int64_t index) {
  T value;
  std::memcpy(&value, view.data + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <class Narrow>
double widened(const TensorView& view, std::int64_t index) {
  return to_float(load<Narrow>(view, index));
}

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Whether two parts of numbers agree.
bool near(double got, double wanted, Tolerance tolerance) {
  if (std::isnan(got) || std::isnan(wanted)) return std::isnan(got) && std::isnan(wanted);
  if (std::isinf(got) || std::isinf(wanted)) return got == wanted;
  return std::abs(got - wanted) <= tolerance.atol + tolerance.rtol * std::abs(wanted);
}

bool near(std::complex<double> got, std::complex<double> wanted, bool complex,
          Tolerance tolerance) {
  if (!complex) return near(got.real(), wanted.real(), tolerance);
  const bool finite = std::isfinite(got.real()) && std::isfinite(got.imag()) &&
                      std::isfinite(wanted.real()) && std::isfinite(wanted.imag());
  if (finite) return std::abs(got - wanted) <= tolerance.atol + tolerance.rtol * std::abs(wanted);
  return near(got.real(), wanted.real(), tolerance) && near(got.imag(), wanted.imag(), tolerance);
}

std::string number_text(std::complex<double> value, bool complex) {
  return complex ? fmt::format("({:.7g}, {:.7g})", value.real(), value.imag())
                 : fmt::format("{:.7g}", value.real());
}

std::string position_text(std::int64_t index, std::span<const std::int64_t> dims) {
  std::vector<std::int64_t> position(dims.size());
  for (std::size_t i = dims.size(); i-- > 0;) {
    position[i] = index % dims[i];
    index /= dims[i];
  }
  return fmt::format("[{}]", fmt::join(position, ","));
}

}  // namespace

std::complex<double> element(const TensorView& view, std::int64_t index) {
  switch (view.dtype) {
    case DType::f32: return load<float>(view, index);
    case DType::f64: return load<double>(view, index);
    case DType::f16: return widened<Half>(view, index);
    case DType::bf16: return widened<BFloat16>(view, index);
    case DType::f8e4m3fn: return widened<Float8E4M3FN>(view, index);
    case DType::f8e5m2: return widened<Float8E5M2>(view, index);
    case DType::f8e4m3fnuz: return widened<Float8E4M3FNUZ>(view, index);
    case DType::f8e5m2fnuz: return widened<Float8E5M2FNUZ>(view, index);
    case DType::f4e2m1: return widened<Float4E2M1>(view, index);
    case DType::i2:
    case DType::i4:
    case DType::i8: return load<std::int8_t>(view, index);
    case DType::i16: return load<std::int16_t>(view, index);
    case DType::i32: return load<std::int32_t>(view, index);
    case DType::i64: return static_cast<double>(load<std::int64_t>(view, index));
    case DType::u16: return load<std::uint16_t>(view, index);
    case DType::u32: return load<std::uint32_t>(view, index);
    case DType::u64: return static_cast<double>(load<std::uint64_t>(view, index));
    case DType::c64: return std::complex<double>(load<std::complex<float>>(view, index));
    case DType::c128: return load<std::complex<double>>(view, index);
    case DType::u2:
    case DType::u4:
    case DType::u8:
    case DType::boolean: return load<std::uint8_t>(view, index);
  }
  return 0;
}

std::string type_text(const TensorView& view) {
  return fmt::format("{}[{}]", name_of(view.dtype), fmt::join(view.dims, ","));
}

std::string summary(const TensorView& view) {
  const std::int64_t count = view.elements();
  if (count == 0) return "no elements";
  const bool complex = is_complex(view.dtype);
  double low = INFINITY, high = -INFINITY, sum = 0;
  std::int64_t nans = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::complex<double> number = element(view, i);
    const double value = complex ? std::abs(number) : number.real();
    if (std::isnan(value)) {
      ++nans;
      continue;
    }
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
  }
  std::string text;
  if (nans < count) {
    text = fmt::format("{}min {:.6g} mean {:.6g} max {:.6g}", complex ? "magnitude: " : "", low,
                       sum / static_cast<double>(count - nans), high);
  }
  if (nans) text += fmt::format("{}{} NaN", text.empty() ? "" : ", ", nans);
  text += ", first";
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 4); ++i) {
    text += " " + number_text(element(view, i), complex);
  }
  return text;
}

std::optional<std::string> difference(const TensorView& got, const TensorView& wanted,
                                      Tolerance tolerance) {
  if (got.dtype != wanted.dtype ||
      !std::equal(got.dims.begin(), got.dims.end(), wanted.dims.begin(), wanted.dims.end())) {
    return fmt::format("is {}, not {}", type_text(got), type_text(wanted));
  }
  if (same_bytes(got, wanted)) return std::nullopt;
  const bool complex = is_complex(got.dtype);
  const bool exact = !is_float(got.dtype) && !complex;
  if (is_float(got.dtype) && size_of(got.dtype) <= 2) {
    tolerance = {std::max(tolerance.rtol, 1e-2), std::max(tolerance.atol, 1e-2)};
  }
  const std::size_t size = size_of(got.dtype);
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    const bool good = exact ? std::memcmp(got.data + at, wanted.data + at, size) == 0
                            : near(element(got, i), element(wanted, i), complex, tolerance);
    if (!good && wrong++ == 0) first = i;
  }
  if (wrong == 0) return std::nullopt;
  return fmt::format("has {} of {} values wrong, the first at {}: {} instead of {}", wrong,
                     got.elements(), position_text(first, got.dims),
                     number_text(element(got, first), complex),
                     number_text(element(wanted, first), complex));
}

}  // namespace rlx::tools
