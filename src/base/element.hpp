// Element types as C++ types: reference evaluations are written once, as templates over them.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "rlx/dtype.hpp"

namespace rlx {

/// Calls `function` with a value of the C++ type that holds elements of `dtype` (bool as uint8_t,
/// i4 and u4 as int8_t and uint8_t) and returns what it returns.
template <class Function>
decltype(auto) with_element_type(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f32: return function(float{});
    case DType::f64: return function(double{});
    case DType::f16: return function(Half(0.0f));
    case DType::bf16: return function(BFloat16(0.0f));
    case DType::f8e4m3fn: return function(Float8E4M3FN(0.0f));
    case DType::f8e5m2: return function(Float8E5M2(0.0f));
    case DType::f8e4m3fnuz: return function(Float8E4M3FNUZ(0.0f));
    case DType::f8e5m2fnuz: return function(Float8E5M2FNUZ(0.0f));
    case DType::f4e2m1: return function(Float4E2M1(0.0f));
    case DType::c64: return function(std::complex<float>{});
    case DType::c128: return function(std::complex<double>{});
    case DType::i8:
    case DType::i4:
    case DType::i2: return function(std::int8_t{});
    case DType::i16: return function(std::int16_t{});
    case DType::i32: return function(std::int32_t{});
    case DType::i64: return function(std::int64_t{});
    case DType::u16: return function(std::uint16_t{});
    case DType::u32: return function(std::uint32_t{});
    case DType::u64: return function(std::uint64_t{});
    case DType::u8:
    case DType::u4:
    case DType::u2:
    case DType::boolean: break;
  }
  return function(std::uint8_t{});
}

template <class T>
inline constexpr bool is_complex_type = false;
template <class T>
inline constexpr bool is_complex_type<std::complex<T>> = true;

/// The type in which the reference computes: f64, complex f64, or a 64-bit integer of the same
/// sign.
template <class T>
struct WideType {
  using Type =
      std::conditional_t<!std::is_integral_v<T>, double,
                         std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
};
template <class T>
struct WideType<std::complex<T>> {
  using Type = std::complex<double>;
};
template <class T>
using Wide = typename WideType<T>::Type;

template <class T>
Wide<T> widen(T value) {
  if constexpr (is_complex_type<T> || std::is_integral_v<T> || std::is_same_v<T, double>) {
    return static_cast<Wide<T>>(value);
  } else {
    return to_float(value);
  }
}

/// Rounds to nearest even; integers wrap.
template <class T>
T narrow(const Wide<T>& value) {
  if constexpr (is_complex_type<T> || std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

template <class T>
bool is_nan_value(const T& value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

}  // namespace rlx
