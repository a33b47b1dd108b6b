// Element types of tensors: names, sizes and classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rlx {

/// Element type. Every tensor has exactly this type in memory (SPEC section 2).
enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,  ///< one byte, 0 or 1; named "bool" in texts
  c64,
  c128,  ///< complex: two f32, two f64 (real part first)
  f8e4m3fn,
  f8e5m2,
  i4,
  u4,  ///< held one element a byte in memory, sign- or zero-extended
  f8e4m3fnuz,
  f8e5m2fnuz,  ///< no infinities, no negative zero
  f4e2m1,
  i2,
  u2,  ///< held one element a byte
};

inline constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, f64 = DType::f64;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType boolean = DType::boolean, c64 = DType::c64, c128 = DType::c128;
inline constexpr DType f8e4m3fn = DType::f8e4m3fn, f8e5m2 = DType::f8e5m2;
inline constexpr DType i4 = DType::i4, u4 = DType::u4, i2 = DType::i2, u2 = DType::u2;
inline constexpr DType f8e4m3fnuz = DType::f8e4m3fnuz, f8e5m2fnuz = DType::f8e5m2fnuz;
inline constexpr DType f4e2m1 = DType::f4e2m1;

inline constexpr int dtype_count = 24;

/// Bytes of one element in memory.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
    case DType::u64:
    case DType::c64: return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16: return 2;
    case DType::c128: return 16;
    default: return 1;
  }
}

constexpr bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

/// Real floating point, floats of 8 and 4 bits included.
constexpr bool is_float(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f64:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::f4e2m1: return true;
    default: return false;
  }
}

constexpr bool is_signed_integer(DType dtype) {
  switch (dtype) {
    case DType::i2:
    case DType::i4:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: return true;
    default: return false;
  }
}

constexpr bool is_unsigned_integer(DType dtype) {
  switch (dtype) {
    case DType::u2:
    case DType::u4:
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64: return true;
    default: return false;
  }
}

constexpr bool is_integer(DType dtype) {
  return is_signed_integer(dtype) || is_unsigned_integer(dtype);
}

/// Bits of the values of an integer dtype; below 8 for those held one a byte.
constexpr int integer_bits(DType dtype) {
  if (dtype == DType::i4 || dtype == DType::u4) return 4;
  if (dtype == DType::i2 || dtype == DType::u2) return 2;
  return static_cast<int>(size_of(dtype)) * 8;
}

/// "f32", "bool", ... as texts, JSON and error messages spell it.
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[dtype_count] = {
      "f32",    "f16", "bf16", "f64",        "i8",         "i16",    "i32",  "i64",
      "u8",     "u16", "u32",  "u64",        "bool",       "c64",    "c128", "f8e4m3fn",
      "f8e5m2", "i4",  "u4",   "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1", "i2",   "u2"};
  return names[static_cast<int>(dtype)];
}

/// The type of that name, or nothing.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < dtype_count; ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace rlx
