// One operation of a scalar expression, and the combining steps of reductions.
#include "codegen/llvm/scalar_emitter.hpp"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "codegen/llvm/scalar_values.hpp"

namespace rlx::codegen {
namespace {

using Value = llvm::Value;

llvm::Constant* number(Value* like, std::int64_t value) {
  return llvm::ConstantInt::getSigned(like->getType(), value);
}
llvm::Constant* real(Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}

unsigned width_of(Value* value) { return value->getType()->getScalarSizeInBits(); }

Value* emit_sign(Emitter& emitter, DType dtype, Value* a) {
  auto& b = emitter.builder;
  if (is_real(a)) {
    Value* one = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, real(a, 1), a);
    return b.CreateSelect(b.CreateFCmpUEQ(a, real(a, 0)), a, one);
  }
  Value* nonzero = b.CreateICmpNE(a, number(a, 0));
  Value* positive = b.CreateZExt(nonzero, a->getType());
  if (!is_signed_integer(dtype)) return positive;
  return b.CreateSelect(b.CreateICmpSLT(a, number(a, 0)), number(a, -1), positive);
}

/// Rounding without SSE4.1: adding and taking away 2^23 (2^52) rounds to nearest even; the rest
/// corrects by one.
Value* round_by_addition(Emitter& emitter, ScalarOp op, Value* a) {
  auto& b = emitter.builder;
  Value* big = real(a, a->getType()->getScalarType()->isDoubleTy() ? 0x1p52 : 0x1p23);
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
  auto with_sign = [&](Value* x) {
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, a);
  };
  Value* nearest = b.CreateFSub(b.CreateFAdd(magnitude, big), big);
  Value* result = nullptr;
  if (op == ScalarOp::trunc) {
    Value* over = b.CreateFCmpOGT(nearest, magnitude);
    result = b.CreateFSub(nearest, b.CreateSelect(over, real(a, 1), real(a, 0)));
  } else {
    result = with_sign(nearest);
    if (op == ScalarOp::floor) {
      Value* over = b.CreateFCmpOGT(result, a);
      result = b.CreateFSub(result, b.CreateSelect(over, real(a, 1), real(a, 0)));
    } else if (op == ScalarOp::ceil) {
      Value* under = b.CreateFCmpOLT(result, a);
      result = b.CreateFAdd(result, b.CreateSelect(under, real(a, 1), real(a, 0)));
    }
  }
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, big), with_sign(result), a);
}

Value* emit_round(Emitter& emitter, ScalarOp op, Value* a) {
  auto& b = emitter.builder;
  if (!is_real(a)) return a;
  if (emitter.machine.isa == Isa::portable) return round_by_addition(emitter, op, a);
  switch (op) {
    case ScalarOp::floor: return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
    case ScalarOp::ceil: return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
    case ScalarOp::trunc: return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
    default: return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a);
  }
}

/// Integer division and remainders. Divisors 0 and -1 would trap, so they are replaced and their
/// results selected.
Value* emit_integer_divide(Emitter& emitter, ScalarOp op, DType dtype, Value* a, Value* d) {
  auto& b = emitter.builder;
  Value* zero = number(a, 0);
  Value* by_zero = b.CreateICmpEQ(d, zero);
  if (!is_signed_integer(dtype)) {
    Value* divisor = b.CreateSelect(by_zero, number(a, 1), d);
    Value* result = op == ScalarOp::div ? b.CreateUDiv(a, divisor) : b.CreateURem(a, divisor);
    return b.CreateSelect(by_zero, zero, result);
  }
  Value* by_minus_one = b.CreateICmpEQ(d, number(a, -1));
  Value* divisor = b.CreateSelect(b.CreateOr(by_zero, by_minus_one), number(a, 1), d);
  if (op == ScalarOp::div) {
    Value* result = b.CreateSelect(by_minus_one, b.CreateNeg(a), b.CreateSDiv(a, divisor));
    return b.CreateSelect(by_zero, zero, result);
  }
  Value* rest = b.CreateSRem(a, divisor);
  if (op == ScalarOp::mod) {
    Value* differs = b.CreateICmpSLT(b.CreateXor(rest, d), zero);
    Value* correct = b.CreateAnd(b.CreateICmpNE(rest, zero), differs);
    rest = b.CreateSelect(correct, b.CreateAdd(rest, d), rest);
  }
  return b.CreateSelect(by_zero, zero, rest);
}

/// Integer power by squaring, wrapping; negative exponents give the truncated reciprocal (0 but for
/// bases 1 and -1).
Value* emit_integer_power(Emitter& emitter, DType dtype, Value* a, Value* e) {
  auto& b = emitter.builder;
  Value* result = number(a, 1);
  Value* square = a;
  const unsigned bits = width_of(a);
  for (unsigned i = 0; i < bits; ++i) {
    Value* set = b.CreateICmpNE(b.CreateAnd(b.CreateLShr(e, i), number(e, 1)), number(e, 0));
    result = b.CreateSelect(set, b.CreateMul(result, square), result);
    if (i + 1 < bits) square = b.CreateMul(square, square);
  }
  if (!is_signed_integer(dtype)) return result;
  Value* odd = b.CreateICmpNE(b.CreateAnd(e, number(e, 1)), number(e, 0));
  Value* reciprocal = b.CreateSelect(
      b.CreateICmpEQ(a, number(a, 1)), number(a, 1),
      b.CreateSelect(b.CreateICmpEQ(a, number(a, -1)),
                     b.CreateSelect(odd, number(a, -1), number(a, 1)), number(a, 0)));
  return b.CreateSelect(b.CreateICmpSLT(e, number(e, 0)), reciprocal, result);
}

Value* emit_shift(Emitter& emitter, ScalarOp op, DType dtype, Value* a, Value* count) {
  auto& b = emitter.builder;
  const unsigned width = dtype == DType::i4 || dtype == DType::u4 ? 4 : width_of(a);
  Value* inside = b.CreateICmpULT(count, number(count, width));
  if (op == ScalarOp::shift_right && is_signed_integer(dtype)) {
    return b.CreateAShr(a, b.CreateSelect(inside, count, number(count, width - 1)));
  }
  Value* safe = b.CreateSelect(inside, count, number(count, 0));
  Value* shifted = op == ScalarOp::shift_left ? b.CreateShl(a, safe) : b.CreateLShr(a, safe);
  return b.CreateSelect(inside, shifted, number(a, 0));
}

Value* emit_compare(Emitter& emitter, ScalarOp op, DType dtype, Value* x, Value* y) {
  auto& b = emitter.builder;
  const bool floats = is_real(x), is_signed = is_signed_integer(dtype);
  switch (op) {
    case ScalarOp::equal: return floats ? b.CreateFCmpOEQ(x, y) : b.CreateICmpEQ(x, y);
    case ScalarOp::not_equal: return floats ? b.CreateFCmpUNE(x, y) : b.CreateICmpNE(x, y);
    case ScalarOp::less:
      if (floats) return b.CreateFCmpOLT(x, y);
      return is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
    case ScalarOp::less_equal:
      if (floats) return b.CreateFCmpOLE(x, y);
      return is_signed ? b.CreateICmpSLE(x, y) : b.CreateICmpULE(x, y);
    case ScalarOp::greater: return emit_compare(emitter, ScalarOp::less, dtype, y, x);
    default: return emit_compare(emitter, ScalarOp::less_equal, dtype, y, x);
  }
}

/// A constant on all lanes, and no NaN.
bool is_number(const Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number && !number->getValueAPF().isNaN();
}

/// min and max. The comparison instruction gives y where either is NaN, so only a NaN in x needs
/// care.
Value* emit_extreme(Emitter& emitter, bool larger, DType dtype, Value* x, Value* y) {
  auto& b = emitter.builder;
  if (is_real(x)) {
    // Beside a number one instruction does it: where the comparison fails, for NaN too, x stays.
    if (is_number(x)) std::swap(x, y);
    if (is_number(y)) {
      Value* beyond = larger ? b.CreateFCmpOGT(y, x) : b.CreateFCmpOLT(y, x);
      return b.CreateSelect(beyond, y, x);
    }
    Value* wins = larger ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
    Value* result = b.CreateSelect(wins, x, y);
    return b.CreateSelect(b.CreateFCmpUNO(x, x), x, result);
  }
  if (dtype == DType::boolean) return larger ? b.CreateOr(x, y) : b.CreateAnd(x, y);
  const bool is_signed = is_signed_integer(dtype);
  const auto id = larger ? (is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                         : (is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
  return b.CreateBinaryIntrinsic(id, x, y);
}

Value* emit_integer_arithmetic(Emitter& emitter, ScalarOp op, DType dtype, Value* x, Value* y) {
  auto& b = emitter.builder;
  const bool logical = dtype == DType::boolean;
  switch (op) {
    case ScalarOp::add: return logical ? b.CreateOr(x, y) : b.CreateAdd(x, y);
    case ScalarOp::sub: return logical ? b.CreateXor(x, y) : b.CreateSub(x, y);
    case ScalarOp::mul: return logical ? b.CreateAnd(x, y) : b.CreateMul(x, y);
    case ScalarOp::pow:
      return logical ? b.CreateOr(x, b.CreateNot(y)) : emit_integer_power(emitter, dtype, x, y);
    default: return logical ? b.CreateAnd(x, y) : emit_integer_divide(emitter, op, dtype, x, y);
  }
}

Value* emit_arithmetic(Emitter& emitter, ScalarOp op, DType dtype, Value* x, Value* y) {
  auto& b = emitter.builder;
  if (!is_real(x)) return emit_integer_arithmetic(emitter, op, dtype, x, y);
  switch (op) {
    case ScalarOp::add: return b.CreateFAdd(x, y);
    case ScalarOp::sub: return b.CreateFSub(x, y);
    case ScalarOp::mul: return b.CreateFMul(x, y);
    case ScalarOp::div: return b.CreateFDiv(x, y);
    default: return emit_binary_math(emitter, op, x, y);
  }
}

Value* emit_unary(Emitter& emitter, const ScalarNode& node, DType operand, Value* a) {
  auto& b = emitter.builder;
  switch (node.op) {
    case ScalarOp::neg:
      if (operand == DType::boolean) return a;
      return is_real(a) ? b.CreateFNeg(a) : b.CreateNeg(a);
    case ScalarOp::abs:
      if (is_real(a)) return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      if (!is_signed_integer(operand)) return a;
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b.getFalse());
    case ScalarOp::sign: return emit_sign(emitter, operand, a);
    case ScalarOp::sqrt: return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case ScalarOp::rsqrt:
      return b.CreateFDiv(real(a, 1), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
    case ScalarOp::reciprocal:
      if (is_real(a)) return b.CreateFDiv(real(a, 1), a);
      return emit_integer_divide(emitter, ScalarOp::div, operand, number(a, 1), a);
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::round:
    case ScalarOp::trunc: return emit_round(emitter, node.op, a);
    case ScalarOp::bit_not: return b.CreateNot(a);
    case ScalarOp::is_nan:
      if (!is_real(a)) return constant_of(emitter, boolean, lanes_of(a), 0, 0);
      return b.CreateFCmpUNO(a, a);
    case ScalarOp::is_inf:
      if (!is_real(a)) return constant_of(emitter, boolean, lanes_of(a), 0, 0);
      return b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a), real(a, INFINITY));
    case ScalarOp::cast: return emit_cast(emitter, operand, node.dtype, a);
    case ScalarOp::bitcast: {
      llvm::Type* type = with_lanes(memory_type(emitter, node.dtype), lanes_of(a));
      return decode(emitter, node.dtype, b.CreateBitCast(encode(emitter, operand, a), type));
    }
    default: return emit_unary_math(emitter, node.op, a);
  }
}

Value* emit_binary(Emitter& emitter, const ScalarNode& node, DType operand, Value* x, Value* y) {
  auto& b = emitter.builder;
  switch (node.op) {
    case ScalarOp::min: return emit_extreme(emitter, false, operand, x, y);
    case ScalarOp::max: return emit_extreme(emitter, true, operand, x, y);
    case ScalarOp::bit_and: return b.CreateAnd(x, y);
    case ScalarOp::bit_or: return b.CreateOr(x, y);
    case ScalarOp::bit_xor: return b.CreateXor(x, y);
    case ScalarOp::shift_left:
    case ScalarOp::shift_right: return emit_shift(emitter, node.op, operand, x, y);
    case ScalarOp::equal:
    case ScalarOp::not_equal:
    case ScalarOp::less:
    case ScalarOp::less_equal:
    case ScalarOp::greater:
    case ScalarOp::greater_equal: return emit_compare(emitter, node.op, operand, x, y);
    default: return emit_arithmetic(emitter, node.op, operand, x, y);
  }
}

/// Whether the operation's result may lie outside of what a narrow type holds.
bool must_fit(ScalarOp op) {
  switch (op) {
    case ScalarOp::select:
    case ScalarOp::min:
    case ScalarOp::max:
    case ScalarOp::cast:
    case ScalarOp::bitcast: return false;
    default: return true;
  }
}

}  // namespace

Value* emit_scalar(Emitter& emitter, const ScalarNode& node, DType operand, Value* a, Value* b,
                   Value* c) {
  unsigned lanes = 1;
  for (Value* value : {a, b, c}) {
    if (value) lanes = std::max(lanes, lanes_of(value));
  }
  a = splat(emitter, a, lanes);
  Value* result = nullptr;
  if (node.op == ScalarOp::select) {
    result = emitter.builder.CreateSelect(a, splat(emitter, b, lanes), splat(emitter, c, lanes));
  } else if (b) {
    result = emit_binary(emitter, node, operand, a, splat(emitter, b, lanes));
  } else {
    result = emit_unary(emitter, node, operand, a);
  }
  return must_fit(node.op) ? fit(emitter, node.dtype, result) : result;
}

Value* emit_combine(Emitter& emitter, ReduceKind kind, DType dtype, Value* accumulator,
                    Value* value) {
  auto& b = emitter.builder;
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::prod: {
      const ScalarOp op = kind == ReduceKind::sum ? ScalarOp::add : ScalarOp::mul;
      return fit(emitter, dtype, emit_arithmetic(emitter, op, dtype, accumulator, value));
    }
    case ReduceKind::min: return emit_extreme(emitter, false, dtype, accumulator, value);
    case ReduceKind::max: return emit_extreme(emitter, true, dtype, accumulator, value);
    case ReduceKind::any: return b.CreateOr(accumulator, value);
    default: return b.CreateAnd(accumulator, value);
  }
}

Value* emit_reduce_lanes(Emitter& emitter, ReduceKind kind, DType dtype, Value* value) {
  auto& b = emitter.builder;
  for (unsigned lanes = lanes_of(value); lanes > 1; lanes /= 2) {
    std::vector<int> low, high;
    for (unsigned i = 0; i < lanes / 2; ++i) {
      low.push_back(static_cast<int>(i));
      high.push_back(static_cast<int>(i + lanes / 2));
    }
    value = emit_combine(emitter, kind, dtype, b.CreateShuffleVector(value, low),
                         b.CreateShuffleVector(value, high));
  }
  return lanes_of(value) == 1 && value->getType()->isVectorTy()
             ? b.CreateExtractElement(value, std::uint64_t{0})
             : value;
}

}  // namespace rlx::codegen
