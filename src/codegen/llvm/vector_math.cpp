// Shared steps of the elementary functions, and the choice of formula by type.
#include "codegen/llvm/vector_math.hpp"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "codegen/llvm/nest_plan.hpp"
#include "codegen/llvm/real_math.hpp"

namespace rlx::codegen {

llvm::Value* multiply_add(Emitter& emitter, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  auto& builder = emitter.builder;
  if (!emitter.machine.fma) return builder.CreateFAdd(builder.CreateFMul(a, b), c);
  return builder.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

/// LLVM fills a register of AVX2 with a number from memory before each use of it, as no instruction
/// there takes a number for all lanes: numbers lie in memory as whole registers instead, which
/// multiply-adds read by themselves.
Real operand(Real like, double number) {
  Emitter& emitter = *like.emitter;
  const Machine& machine = emitter.machine;
  if (like.is_double() || machine.masks || !machine.fma || machine.vector_bytes != 32 ||
      lanes_of(like.value) % 8 != 0)
    return like.of(number);
  auto* constant = llvm::cast<llvm::Constant>(like.of(number).value);
  const std::string name = "number_" + std::to_string(lanes_of(like.value)) + "_" +
                           std::to_string(std::bit_cast<std::uint32_t>(static_cast<float>(number)));
  llvm::GlobalVariable* global = emitter.module.getNamedGlobal(name);
  if (global == nullptr) {
    global = new llvm::GlobalVariable(emitter.module, constant->getType(), true,
                                      llvm::GlobalValue::PrivateLinkage, constant, name);
    global->setAlignment(llvm::Align(machine.vector_bytes));
    global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  }
  auto& b = emitter.builder;
  llvm::LoadInst* load =
      b.CreateAlignedLoad(constant->getType(), global, llvm::Align(machine.vector_bytes));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.getContext(), {}));
  return {&emitter, load};
}

Real polynomial(Real x, std::initializer_list<double> coefficients) {
  auto next = std::rbegin(coefficients);
  Real sum = x.of(*next++);
  for (; next != std::rend(coefficients); ++next) sum = fma(sum, x, *next);
  return sum;
}

Rounded nearest(Real x, double factor) {
  const Real magic = x.of(x.is_double() ? 0x1.8p52 : 0x1.8p23);
  const Real shifted = factor == 1 ? x + magic : fma(x, factor, magic);
  return {shifted - magic, x.builder().CreateSub(shifted.bits(), magic.bits())};
}

Real scale(Real x, llvm::Value* n) {
  auto& b = x.builder();
  const int mantissa = x.is_double() ? 52 : 23, bias = x.is_double() ? 1023 : 127;
  auto power = [&](llvm::Value* exponent) {
    return x.from_bits(b.CreateShl(b.CreateAdd(exponent, x.word(bias)), mantissa));
  };
  llvm::Value* half = b.CreateAShr(n, 1);
  return x * power(half) * power(b.CreateSub(n, half));
}

namespace {

/// An operation of registers of so many lanes, on operands of more, of as many or of fewer lanes
/// (powers of two). Of a register that they do not fill, the other lanes hold anything.
template <std::size_t count, class Op>
llvm::Value* by_registers(Emitter& emitter, unsigned lanes,
                          const std::array<llvm::Value*, count>& operands, const Op& op) {
  auto& b = emitter.builder;
  const unsigned all = lanes_of(operands[0]);
  const auto part = [&](llvm::Value* value, unsigned first) -> llvm::Value* {
    llvm::Type* type = with_lanes(value->getType()->getScalarType(), lanes);
    if (all == 1)
      return b.CreateInsertElement(llvm::PoisonValue::get(type), value, std::uint64_t{0});
    if (all < lanes)
      return b.CreateInsertVector(type, llvm::PoisonValue::get(type), value, b.getInt64(0));
    return b.CreateExtractVector(type, value, b.getInt64(first));
  };
  llvm::Value* result = nullptr;
  for (unsigned first = 0; first < all; first += lanes) {
    std::array<llvm::Value*, count> parts;
    for (std::size_t i = 0; i < count; ++i) parts[i] = part(operands[i], first);
    llvm::Value* done = op(parts);
    llvm::Type* type = with_lanes(done->getType()->getScalarType(), all);
    if (all == 1) return b.CreateExtractElement(done, std::uint64_t{0});
    if (all < lanes) return b.CreateExtractVector(type, done, b.getInt64(0));
    if (result == nullptr) result = llvm::PoisonValue::get(type);
    result = b.CreateInsertVector(type, result, done, b.getInt64(first));
  }
  return result;
}

/// AVX-512's instruction for registers of a size, by the doubles and floats in it.
struct ScaleBy {
  unsigned doubles;
  llvm::Intrinsic::ID of_doubles, of_floats;
};
constexpr ScaleBy scales[] = {
    {2, llvm::Intrinsic::x86_avx512_mask_scalef_pd_128,
     llvm::Intrinsic::x86_avx512_mask_scalef_ps_128},
    {4, llvm::Intrinsic::x86_avx512_mask_scalef_pd_256,
     llvm::Intrinsic::x86_avx512_mask_scalef_ps_256},
    {8, llvm::Intrinsic::x86_avx512_mask_scalef_pd_512,
     llvm::Intrinsic::x86_avx512_mask_scalef_ps_512},
};

}  // namespace

/// The results are the same.
Real scale(Real x, const Rounded& n) {
  return x.emitter->machine.masks ? scale(x, n.real) : scale(x, n.integer);
}

Real scale(Real x, Real n) {
  auto& b = x.builder();
  const unsigned all = lanes_of(x.value), per_double = x.is_double() ? 1 : 2;
  const ScaleBy* by = std::begin(scales);
  while (by + 1 != std::end(scales) && by->doubles * per_double < all) ++by;
  const unsigned lanes = by->doubles * per_double;
  // Lanes that hold anything are left out: subnormal numbers would take long.
  const std::uint64_t used = (std::uint64_t{1} << std::min(all, lanes)) - 1;
  const auto scaled = [&](const std::array<llvm::Value*, 2>& parts) {
    llvm::Value* none = llvm::Constant::getNullValue(parts[0]->getType());
    std::vector<llvm::Value*> operands{parts[0], parts[1], none,
                                       b.getIntN(std::max(lanes, 8U), used)};
    constexpr int current_rounding = 4;
    if (by->doubles == 8) operands.push_back(b.getInt32(current_rounding));
    return b.CreateIntrinsic(x.is_double() ? by->of_doubles : by->of_floats, {}, operands);
  };
  return {x.emitter, by_registers(*x.emitter, lanes, std::array{x.value, n.value}, scaled)};
}

Real looked_up(const Lookup& numbers, Real like, llvm::Value* words) {
  constexpr std::size_t lanes = 16;
  auto& b = like.builder();
  const auto half = [&](std::size_t first) {
    return llvm::ConstantDataVector::get(b.getContext(),
                                         llvm::ArrayRef(numbers).slice(first, lanes));
  };
  const auto pick = [&](const std::array<llvm::Value*, 1>& index) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                             {half(0), index[0], half(lanes)});
  };
  return {like.emitter, by_registers(*like.emitter, lanes, std::array{words}, pick)};
}

Real about_reciprocal(Real x) {
  auto& b = x.builder();
  const auto invert = [&](const std::array<llvm::Value*, 1>& value) {
    return b.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
        {value[0], llvm::Constant::getNullValue(value[0]->getType()), b.getInt16(0xffff)});
  };
  constexpr unsigned lanes = 16;
  return {x.emitter, by_registers(*x.emitter, lanes, std::array{x.value}, invert)};
}

const Lookup& powers_of_steps() {
  static const Lookup powers = [] {
    Lookup lookup;
    for (std::size_t i = 0; i < lookup.size(); ++i)
      lookup[i] = std::exp2(static_cast<float>(i) / static_cast<float>(lookup.size()));
    return lookup;
  }();
  return powers;
}

Stepped nearest_step(Real x, double factor) {
  // The least bit of the sum counts one step.
  const Real rounder = x.of(0x1.8p18);
  const Real shifted = factor == 1 ? x + rounder : fma(x, factor, rounder);
  auto& b = x.builder();
  llvm::Value* whole = b.CreateAShr(b.CreateSub(shifted.bits(), rounder.bits()), 5);
  return {{shifted - rounder, whole}, looked_up(powers_of_steps(), x, shifted.bits())};
}

Split split(Real x) {
  auto& b = x.builder();
  const bool wide = x.is_double();
  const int mantissa = wide ? 52 : 23;
  const Truth subnormal = x < (wide ? 0x1p-1022 : 0x1p-126);
  const Real normal = select(subnormal, x * (wide ? 0x1p52 : 0x1p23), x);
  llvm::Value* bits = normal.bits();
  const std::int64_t root_half = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  llvm::Value* distance = b.CreateSub(bits, x.word(root_half));
  llvm::Value* exponent = b.CreateAShr(distance, mantissa);
  const Real m = x.from_bits(b.CreateSub(bits, b.CreateShl(exponent, mantissa)));
  const Real shift = select(subnormal, x.of(wide ? -52 : -23), x.of(0));
  llvm::Type* type = x.value->getType();
  if (!wide) return {m, Real{x.emitter, b.CreateSIToFP(exponent, type)} + shift};
  // 64-bit conversions are slow before AVX-512, and adding to a large number does the same.
  const Real magic = x.of(0x1.8p52);
  const Real converted = x.from_bits(b.CreateAdd(exponent, magic.bits())) - magic;
  return {m, converted + shift};
}

Real widened(Real x) {
  auto& b = x.builder();
  return {x.emitter, b.CreateFPExt(x.value, with_lanes(b.getDoubleTy(), lanes_of(x.value)))};
}

Real narrowed(Real x) {
  auto& b = x.builder();
  return {x.emitter, b.CreateFPTrunc(x.value, with_lanes(b.getFloatTy(), lanes_of(x.value)))};
}

llvm::Value* any(Truth truth) {
  if (lanes_of(truth.value) == 1) return truth.value;
  return truth.emitter->builder.CreateOrReduce(truth.value);
}

Real remainder(Real x, Real y) {
  auto& b = x.builder();
  const bool wide = x.is_double();
  const int mantissa = wide ? 52 : 23;
  llvm::Value* implicit = x.word(std::int64_t{1} << mantissa);
  struct Parts {
    llvm::Value *fraction, *exponent;
  };
  auto parts = [&](Real value) {
    llvm::Value* bits = abs(value).bits();
    llvm::Value* field = b.CreateLShr(bits, mantissa);
    llvm::Value* fraction = b.CreateAnd(bits, b.CreateSub(implicit, x.word(1)));
    llvm::Value* normal = b.CreateICmpNE(field, x.word(0));
    return Parts{b.CreateSelect(normal, b.CreateOr(fraction, implicit), fraction),
                 b.CreateSelect(normal, field, x.word(1))};
  };
  const Parts dividend = parts(x), divisor = parts(y);
  // Shift and subtract: as many rounds as the lane with the largest difference of exponents needs.
  llvm::Value* steps = b.CreateSub(dividend.exponent, divisor.exponent);
  llvm::Value* rounds =
      lanes_of(steps) == 1 ? steps : b.CreateIntMaxReduce(steps, /*IsSigned=*/true);
  rounds = b.CreateSExt(rounds, b.getInt64Ty());
  auto subtract = [&](llvm::Value* rest, llvm::Value* active) {
    llvm::Value* fits = b.CreateAnd(active, b.CreateICmpUGE(rest, divisor.fraction));
    return b.CreateSelect(fits, b.CreateSub(rest, divisor.fraction), rest);
  };
  const std::vector<llvm::Value*> done = x.emitter->loop(
      x.emitter->i64(0), rounds, 1, {dividend.fraction, steps},
      [&](llvm::Value*, std::vector<llvm::Value*> state) {
        llvm::Value* active = b.CreateICmpSGT(state[1], x.word(0));
        llvm::Value* rest = subtract(state[0], active);
        return std::vector<llvm::Value*>{b.CreateSelect(active, b.CreateShl(rest, 1), rest),
                                         b.CreateSub(state[1], x.word(1))};
      });
  llvm::Value* reached = b.CreateICmpSGE(steps, x.word(0));
  llvm::Value* rest = subtract(done[0], reached);
  // The rest is a whole number of the divisor's least steps (of the dividend's where that is
  // smaller).
  llvm::Value* exponent = b.CreateSelect(reached, divisor.exponent, dividend.exponent);
  const Real whole = {x.emitter, b.CreateUIToFP(rest, x.value->getType())};
  const int bias = wide ? 1075 : 150;
  Real result = scale(whole, b.CreateSub(exponent, x.word(bias)));
  const Real limit = x.of(infinity);
  result = select(abs(x) < abs(y), abs(x), result);
  result = select((y == 0.0) | (abs(x) == limit) | is_nan(x) | is_nan(y), not_a_number, result);
  return copysign(result, x);
}

namespace {

/// x^(q / 4) for a constant q of -16 to 16 as products of x and its square roots. Each step rounds
/// once, at most seven do.
std::optional<Real> power_of_quarters(Real x, Real exponent) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(exponent.value);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  if (!number) return std::nullopt;
  const double known = number->getValueAPF().convertToDouble();
  const int count = quarters_of(known);
  if (count < 0) return std::nullopt;
  // Roots of powers have no sign: those of -0 are 0, those of -infinity infinity.
  if (count % 4 != 0) x = select(x == -infinity, infinity, x + 0.0);
  std::optional<Real> product;
  const auto take = [&](Real factor) { product = product ? *product * factor : factor; };
  Real power = x;
  for (int rest = count / 4; rest > 0; rest /= 2) {
    if (rest & 1) take(power);
    if (rest > 1) power = power * power;
  }
  if (count % 4 != 0) {
    const Real root = sqrt(x);
    if (count & 2) take(root);
    if (count & 1) take(sqrt(root));
  }
  if (!product) product = x.of(1);
  return known < 0 ? 1.0 / *product : *product;
}

}  // namespace

llvm::Value* emit_unary_math(Emitter& emitter, ScalarOp op, llvm::Value* value) {
  const Real x{&emitter, value};
  return x.is_double() ? emit_unary_f64(op, x).value : emit_unary_f32(op, x).value;
}

llvm::Value* emit_binary_math(Emitter& emitter, ScalarOp op, llvm::Value* left,
                              llvm::Value* right) {
  const Real a{&emitter, left}, b{&emitter, right};
  switch (op) {
    case ScalarOp::pow:
      if (const auto simple = power_of_quarters(a, b)) return simple->value;
      if (a.is_double()) return power_f64(a, b, true).value;
      return narrowed(power_f64(widened(a), widened(b), false)).value;
    case ScalarOp::atan2:
      if (a.is_double()) return atan2_f64(a, b).value;
      return narrowed(atan2_f64(widened(a), widened(b))).value;
    case ScalarOp::mod: {
      const Real rest = remainder(a, b);
      const Truth correct = (!(rest == 0.0)) & (is_negative(rest) ^ is_negative(b));
      return select(rest == 0.0, copysign(rest, b), select(correct, rest + b, rest)).value;
    }
    default: return remainder(a, b).value;
  }
}

}  // namespace rlx::codegen
