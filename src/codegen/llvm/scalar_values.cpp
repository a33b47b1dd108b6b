// Register and memory forms of every element type: rounding of narrow floats, casts, constants.
#include "codegen/llvm/scalar_values.hpp"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <cmath>

namespace rlx::codegen {
namespace {

/// Layout of a float type narrower than f32; see base/half.hpp for the same conversions in C++.
struct NarrowFormat {
  int exponent, mantissa;
  std::uint32_t max_finite, overflow, nan;
  bool infinite;  ///< has infinities
};

NarrowFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {5, 10, 0x7bff, 0x7c00, 0x7e00, true};
    case DType::f8e4m3fn: return {4, 3, 0x7e, 0x7f, 0x7f, false};
    default: return {5, 2, 0x7b, 0x7c, 0x7e, true};
  }
}

llvm::Type* like(llvm::Value* value, llvm::Type* scalar) {
  return with_lanes(scalar, lanes_of(value));
}

llvm::Constant* number(llvm::Type* type, std::uint64_t value) {
  return llvm::ConstantInt::get(type, value);
}

llvm::Constant* real(llvm::Type* type, double value) { return llvm::ConstantFP::get(type, value); }

/// f32 to the bits of a narrow format (in i32). Normal results round by integer addition, subnormal
/// ones by a float addition whose least step is the format's.
llvm::Value* narrow_bits(Emitter& emitter, const NarrowFormat& format, llvm::Value* value) {
  auto& b = emitter.builder;
  llvm::Type* words = like(value, b.getInt32Ty());
  const int bias = (1 << (format.exponent - 1)) - 1, shift = 23 - format.mantissa;
  llvm::Value* bits = b.CreateBitCast(value, words);
  llvm::Value* sign = b.CreateShl(b.CreateLShr(bits, 31), format.exponent + format.mantissa);
  llvm::Value* magnitude = b.CreateAnd(bits, 0x7fffffff);
  llvm::Value* odd = b.CreateAnd(b.CreateLShr(magnitude, shift), 1);
  const std::uint32_t adjust =
      (1u << (shift - 1)) - 1u - (static_cast<std::uint32_t>(127 - bias) << 23);
  llvm::Value* normal =
      b.CreateLShr(b.CreateAdd(b.CreateAdd(magnitude, number(words, adjust)), odd), shift);
  const double step = std::ldexp(1.0, 1 - bias - format.mantissa + 23);
  llvm::Constant* magic = real(value->getType(), step);
  llvm::Value* small = b.CreateSub(
      b.CreateBitCast(b.CreateFAdd(b.CreateBitCast(magnitude, value->getType()), magic), words),
      b.CreateBitCast(magic, words));
  const auto least_normal = static_cast<std::uint64_t>(128 - bias) << 23;
  llvm::Value* result =
      b.CreateSelect(b.CreateICmpULT(magnitude, number(words, least_normal)), small, normal);
  result = b.CreateSelect(b.CreateICmpUGT(result, number(words, format.max_finite)),
                          number(words, format.overflow), result);
  result = b.CreateSelect(b.CreateICmpUGT(magnitude, number(words, 0x7f800000)),
                          number(words, format.nan), result);
  return b.CreateOr(sign, result);
}

/// Bits of a narrow format (in i32) to f32: multiplying by a power of two also normalises the
/// subnormal ones.
llvm::Value* widen_bits(Emitter& emitter, const NarrowFormat& format, llvm::Value* bits) {
  auto& b = emitter.builder;
  llvm::Type* words = bits->getType();
  llvm::Type* floats = like(bits, b.getFloatTy());
  const int bias = (1 << (format.exponent - 1)) - 1, width = format.exponent + format.mantissa;
  llvm::Value* magnitude = b.CreateAnd(bits, number(words, (1u << width) - 1u));
  llvm::Value* sign = b.CreateShl(b.CreateLShr(bits, width), 31);
  llvm::Value* shifted = b.CreateShl(magnitude, 23 - format.mantissa);
  llvm::Value* scaled =
      b.CreateFMul(b.CreateBitCast(shifted, floats), real(floats, std::ldexp(1.0, 127 - bias)));
  llvm::Value* special =
      b.CreateOr(shifted, number(words, format.infinite ? 0x7f800000 : 0x7fc00000));
  llvm::Value* is_special = b.CreateICmpUGT(magnitude, number(words, format.max_finite));
  llvm::Value* result = b.CreateSelect(is_special, special, b.CreateBitCast(scaled, words));
  return b.CreateBitCast(b.CreateOr(result, sign), floats);
}

/// f32 to bf16 bits in the upper half of an i32, the lower half undefined. AVX512-BF16 has an
/// instruction for it, but that flushes subnormals.
llvm::Value* bfloat_high_bits(Emitter& emitter, llvm::Value* value) {
  auto& b = emitter.builder;
  llvm::Type* words = like(value, b.getInt32Ty());
  llvm::Value* bits = b.CreateBitCast(value, words);
  llvm::Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), 1);
  llvm::Value* rounded = b.CreateAdd(b.CreateAdd(bits, number(words, 0x7fff)), odd);
  llvm::Value* nan = b.CreateOr(bits, number(words, 0x400000));
  return b.CreateSelect(b.CreateFCmpUNO(value, value), nan, rounded);
}

/// Saturating conversion of a real value to an integer type; NaN gives 0.
llvm::Value* real_to_integer(Emitter& emitter, DType to, llvm::Value* value) {
  auto& b = emitter.builder;
  llvm::Type* reals = value->getType();
  const bool is_signed = is_signed_integer(to);
  const int width = to == DType::i4 || to == DType::u4 ? 4 : static_cast<int>(size_of(to) * 8);
  const int precision = reals->getScalarType()->isDoubleTy() ? 53 : 24;
  const double beyond = std::ldexp(1.0, is_signed ? width - 1 : width);
  const double low = is_signed ? -beyond : 0;
  llvm::Type* result_type = value_type(emitter, to, lanes_of(value));
  if (is_signed) {
    value = b.CreateSelect(b.CreateFCmpUNO(value, value), real(reals, 0), value);
    value = b.CreateSelect(b.CreateFCmpOLT(value, real(reals, low)), real(reals, low), value);
  } else {
    value = b.CreateSelect(b.CreateFCmpOGT(value, real(reals, 0)), value, real(reals, 0));
  }
  if (width < precision) {
    const double high = beyond - 1;
    value = b.CreateSelect(b.CreateFCmpOGT(value, real(reals, high)), real(reals, high), value);
    if (width < 32) {
      return b.CreateTrunc(b.CreateFPToSI(value, like(value, b.getInt32Ty())), result_type);
    }
    return is_signed ? b.CreateFPToSI(value, result_type) : b.CreateFPToUI(value, result_type);
  }
  llvm::Value* over = b.CreateFCmpOGE(value, real(reals, beyond));
  value = b.CreateSelect(over, real(reals, 0), value);
  llvm::Value* result =
      is_signed ? b.CreateFPToSI(value, result_type) : b.CreateFPToUI(value, result_type);
  const std::uint64_t ones = width == 64 ? ~0ull : (1ull << width) - 1;
  return b.CreateSelect(over, number(result_type, is_signed ? ones >> 1 : ones), result);
}

llvm::Value* integer_to_real(Emitter& emitter, DType from, llvm::Type* type, llvm::Value* value) {
  auto& b = emitter.builder;
  if (from == DType::boolean) return b.CreateSelect(value, real(type, 1), real(type, 0));
  return is_signed_integer(from) ? b.CreateSIToFP(value, type) : b.CreateUIToFP(value, type);
}

}  // namespace

llvm::Type* with_lanes(llvm::Type* scalar, unsigned lanes) {
  return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, lanes);
}

llvm::Type* value_type(Emitter& emitter, DType dtype, unsigned lanes) {
  auto& b = emitter.builder;
  llvm::Type* scalar = nullptr;
  if (dtype == DType::f64) {
    scalar = b.getDoubleTy();
  } else if (is_float(dtype)) {
    scalar = b.getFloatTy();
  } else if (dtype == DType::boolean) {
    scalar = b.getInt1Ty();
  } else {
    scalar = b.getIntNTy(static_cast<unsigned>(size_of(dtype) * 8));
  }
  return with_lanes(scalar, lanes);
}

llvm::Type* memory_type(Emitter& emitter, DType dtype) {
  if (dtype == DType::f64) return emitter.builder.getDoubleTy();
  if (dtype == DType::f32) return emitter.builder.getFloatTy();
  return emitter.builder.getIntNTy(static_cast<unsigned>(size_of(dtype) * 8));
}

unsigned lanes_of(const llvm::Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? vector->getNumElements() : 1;
}

llvm::Value* splat(Emitter& emitter, llvm::Value* value, unsigned lanes) {
  if (lanes_of(value) == lanes) return value;
  return emitter.builder.CreateVectorSplat(lanes, value);
}

llvm::Constant* constant_of(Emitter& emitter, DType dtype, unsigned lanes, double value,
                            std::int64_t integer) {
  llvm::Type* type = value_type(emitter, dtype, lanes);
  if (is_float(dtype)) return real(type, value);
  if (dtype == DType::boolean) return number(type, integer != 0);
  return llvm::ConstantInt::getSigned(type, integer);
}

llvm::Constant* lane_numbers(Emitter& emitter, unsigned lanes) {
  std::vector<llvm::Constant*> numbers;
  for (unsigned i = 0; i < lanes; ++i) numbers.push_back(emitter.i64(i));
  return llvm::ConstantVector::get(numbers);
}

llvm::Value* decode(Emitter& emitter, DType dtype, llvm::Value* memory) {
  auto& b = emitter.builder;
  switch (dtype) {
    case DType::boolean: return b.CreateICmpNE(memory, number(memory->getType(), 0));
    case DType::bf16: {
      llvm::Value* wide = b.CreateZExt(memory, like(memory, b.getInt32Ty()));
      return b.CreateBitCast(b.CreateShl(wide, 16), like(memory, b.getFloatTy()));
    }
    case DType::f16:
      if (emitter.machine.f16c) {
        llvm::Value* half = b.CreateBitCast(memory, like(memory, b.getHalfTy()));
        return b.CreateFPExt(half, like(memory, b.getFloatTy()));
      }
      [[fallthrough]];
    case DType::f8e4m3fn:
    case DType::f8e5m2:
      return widen_bits(emitter, format_of(dtype),
                        b.CreateZExt(memory, like(memory, b.getInt32Ty())));
    default: return memory;
  }
}

llvm::Value* encode(Emitter& emitter, DType dtype, llvm::Value* value) {
  auto& b = emitter.builder;
  llvm::Type* type = like(value, memory_type(emitter, dtype));
  switch (dtype) {
    case DType::boolean: return b.CreateZExt(value, type);
    case DType::bf16:
      return b.CreateTrunc(b.CreateLShr(bfloat_high_bits(emitter, value), 16), type);
    case DType::f16:
      if (emitter.machine.f16c) {
        return b.CreateBitCast(b.CreateFPTrunc(value, like(value, b.getHalfTy())), type);
      }
      [[fallthrough]];
    case DType::f8e4m3fn:
    case DType::f8e5m2: return b.CreateTrunc(narrow_bits(emitter, format_of(dtype), value), type);
    default: return value;
  }
}

llvm::Value* fit(Emitter& emitter, DType dtype, llvm::Value* value) {
  auto& b = emitter.builder;
  switch (dtype) {
    case DType::bf16: {
      llvm::Value* high = b.CreateAnd(bfloat_high_bits(emitter, value),
                                      number(like(value, b.getInt32Ty()), 0xffff0000u));
      return b.CreateBitCast(high, value->getType());
    }
    case DType::f16:
      if (emitter.machine.f16c) {
        return b.CreateFPExt(b.CreateFPTrunc(value, like(value, b.getHalfTy())), value->getType());
      }
      [[fallthrough]];
    case DType::f8e4m3fn:
    case DType::f8e5m2:
      return widen_bits(emitter, format_of(dtype), narrow_bits(emitter, format_of(dtype), value));
    case DType::i4: return b.CreateAShr(b.CreateShl(value, 4), 4);
    case DType::u4: return b.CreateAnd(value, 15);
    default: return value;
  }
}

llvm::Value* emit_cast(Emitter& emitter, DType from, DType to, llvm::Value* value) {
  auto& b = emitter.builder;
  if (from == to) return value;
  llvm::Type* type = value_type(emitter, to, lanes_of(value));
  if (to == DType::boolean) {
    if (is_real(value)) return b.CreateFCmpUNE(value, real(value->getType(), 0));
    return b.CreateICmpNE(value, number(value->getType(), 0));
  }
  if (is_float(to)) {
    llvm::Value* result =
        is_real(value) ? b.CreateFPCast(value, type) : integer_to_real(emitter, from, type, value);
    return to == DType::f32 || to == DType::f64 ? result : fit(emitter, to, result);
  }
  if (is_real(value)) return real_to_integer(emitter, to, value);
  return fit(emitter, to, b.CreateIntCast(value, type, is_signed_integer(from)));
}

}  // namespace rlx::codegen
