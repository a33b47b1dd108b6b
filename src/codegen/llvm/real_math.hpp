// Formulas over float or double values (scalars or vectors) written with operators; each operator
// emits one instruction.
#pragma once

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <array>
#include <initializer_list>
#include <limits>

#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {

/// A condition on each lane.
struct Truth {
  Emitter* emitter;
  llvm::Value* value;
};

/// Floats or doubles on each lane.
struct Real {
  Emitter* emitter;
  llvm::Value* value;

  llvm::IRBuilder<>& builder() const { return emitter->builder; }
  bool is_double() const { return value->getType()->getScalarType()->isDoubleTy(); }
  /// The same constant on every lane.
  Real of(double number) const {
    return {emitter, llvm::ConstantFP::get(value->getType(), number)};
  }
  /// Integers as wide as the lanes.
  llvm::Type* words() const {
    llvm::Type* word = is_double() ? builder().getInt64Ty() : builder().getInt32Ty();
    return with_lanes(word, lanes_of(value));
  }
  llvm::Constant* word(std::int64_t number) const {
    return llvm::ConstantInt::getSigned(words(), number);
  }
  llvm::Value* bits() const { return builder().CreateBitCast(value, words()); }
  Real from_bits(llvm::Value* bits) const {
    return {emitter, builder().CreateBitCast(bits, value->getType())};
  }
};

inline Real operator+(Real a, Real b) {
  return {a.emitter, a.builder().CreateFAdd(a.value, b.value)};
}
inline Real operator-(Real a, Real b) {
  return {a.emitter, a.builder().CreateFSub(a.value, b.value)};
}
inline Real operator*(Real a, Real b) {
  return {a.emitter, a.builder().CreateFMul(a.value, b.value)};
}
inline Real operator/(Real a, Real b) {
  return {a.emitter, a.builder().CreateFDiv(a.value, b.value)};
}
inline Real operator+(Real a, double b) { return a + a.of(b); }
inline Real operator-(Real a, double b) { return a - a.of(b); }
inline Real operator*(Real a, double b) { return a * a.of(b); }
inline Real operator/(Real a, double b) { return a / a.of(b); }
inline Real operator-(double a, Real b) { return b.of(a) - b; }
inline Real operator/(double a, Real b) { return b.of(a) / b; }
inline Real operator-(Real a) { return {a.emitter, a.builder().CreateFNeg(a.value)}; }

inline Truth operator<(Real a, Real b) {
  return {a.emitter, a.builder().CreateFCmpOLT(a.value, b.value)};
}
inline Truth operator>(Real a, Real b) {
  return {a.emitter, a.builder().CreateFCmpOGT(a.value, b.value)};
}
inline Truth operator==(Real a, Real b) {
  return {a.emitter, a.builder().CreateFCmpOEQ(a.value, b.value)};
}
inline Truth operator<(Real a, double b) { return a < a.of(b); }
inline Truth operator>(Real a, double b) { return a > a.of(b); }
inline Truth operator==(Real a, double b) { return a == a.of(b); }
inline Truth operator&(Truth a, Truth b) {
  return {a.emitter, a.emitter->builder.CreateAnd(a.value, b.value)};
}
inline Truth operator|(Truth a, Truth b) {
  return {a.emitter, a.emitter->builder.CreateOr(a.value, b.value)};
}
inline Truth operator^(Truth a, Truth b) {
  return {a.emitter, a.emitter->builder.CreateXor(a.value, b.value)};
}
inline Truth operator!(Truth a) { return {a.emitter, a.emitter->builder.CreateNot(a.value)}; }

inline Real select(Truth condition, Real yes, Real no) {
  return {yes.emitter, yes.builder().CreateSelect(condition.value, yes.value, no.value)};
}
inline Real select(Truth condition, double yes, Real no) {
  return select(condition, no.of(yes), no);
}
inline Truth is_nan(Real x) { return {x.emitter, x.builder().CreateFCmpUNO(x.value, x.value)}; }
/// The sign bit, also of zeros and NaN.
inline Truth is_negative(Real x) {
  return {x.emitter, x.builder().CreateICmpSLT(x.bits(), x.word(0))};
}
inline Real abs(Real x) {
  return {x.emitter, x.builder().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x.value)};
}
inline Real sqrt(Real x) {
  return {x.emitter, x.builder().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x.value)};
}
inline Real copysign(Real magnitude, Real sign) {
  return {sign.emitter, sign.builder().CreateBinaryIntrinsic(llvm::Intrinsic::copysign,
                                                             magnitude.value, sign.value)};
}
/// x limited from above or below; NaN stays NaN.
inline Real at_most(Real x, double limit) { return select(x > limit, limit, x); }
inline Real at_least(Real x, double limit) { return select(x < limit, limit, x); }

inline Real fma(Real a, Real b, Real c) {
  return {a.emitter, multiply_add(*a.emitter, a.value, b.value, c.value)};
}
/// The same constant on every lane, as an operand in memory where that saves an instruction.
Real operand(Real like, double number);
inline Real fma(Real a, Real b, double c) { return fma(a, b, operand(a, c)); }
inline Real fma(Real a, double b, Real c) { return fma(a, a.of(b), c); }

/// c0 + c1 x + c2 x^2 + ...
Real polynomial(Real x, std::initializer_list<double> coefficients);

/// The integer nearest to x * factor (below 2^22 or 2^51), as a real and as words.
struct Rounded {
  Real real;
  llvm::Value* integer;
};
Rounded nearest(Real x, double factor = 1);

/// x * 2^n for whole n of at most twice the exponent range; rounds once.
Real scale(Real x, llvm::Value* n);
Real scale(Real x, const Rounded& n);
/// The same of the floor of n, by an instruction of processors with masked registers.
Real scale(Real x, Real n);

/// Floats of which one instruction of AVX-512 picks one for each lane of `words`, by its low five
/// bits; `like` has the lanes, too.
using Lookup = std::array<float, 32>;
Real looked_up(const Lookup& numbers, Real like, llvm::Value* words);
inline bool has_lookups(Real x) { return x.emitter->machine.masks && !x.is_double(); }

/// 1 / x within 2^-14 of it, where there are lookups.
Real about_reciprocal(Real x);

/// 2^(i / 32).
const Lookup& powers_of_steps();

/// n of x * factor = n + r, |r| <= 1/64, in steps of 1/32 (for less than 2^17), with its floor as
/// words; and 2^(n - floor(n)), looked up.
struct Stepped {
  Rounded n;
  Real power;
};
Stepped nearest_step(Real x, double factor = 1);

/// x = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)), for positive finite x.
struct Split {
  Real mantissa;
  Real exponent;
};
Split split(Real x);

/// The value with float computed in double and rounded back.
Real widened(Real x);
Real narrowed(Real x);

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// x - quadrant * pi/2 in [-pi/4, pi/4] and the quadrant as words, for doubles of any size.
struct Reduced {
  Real rest;
  llvm::Value* quadrant;
};
Reduced reduce_angle(Real x);
/// Only for large doubles (|x| >= 2^20), lane by lane.
Reduced reduce_large_angle(Real x);
/// Whether any lane holds.
llvm::Value* any(Truth truth);

Real emit_unary_f32(ScalarOp op, Real x);
Real emit_unary_f64(ScalarOp op, Real x);
Real atan2_f64(Real y, Real x);
/// precise: the logarithm in double-double, as results in double need.
Real power_f64(Real x, Real y, bool precise);
/// C fmod by long division on the bits: exact.
Real remainder(Real x, Real y);

}  // namespace rlx::codegen
