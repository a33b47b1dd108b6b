// Rows of exponentials: the maximum of the next row is found while the powers of this one are
// computed, so that neither waits for the other.
#include "codegen/llvm/attention_softmax.hpp"

#include <bit>

#include "codegen/llvm/real_math.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;
using Reals = std::vector<Real>;

constexpr std::int64_t element_bytes = 4;

/// 2^r of each for r in [-1/2, 1/2], within 2e-7, term by term for all of them.
Reals small_powers(const Reals& rests) {
  Reals powers(rests.size(), rests[0].of(0.00132647285));
  for (const double term : {0.00967151299, 0.0555073358, 0.240222424, 0.693147004, 1.0}) {
    for (std::size_t i = 0; i < rests.size(); ++i) powers[i] = fma(powers[i], rests[i], term);
  }
  return powers;
}

/// 2^t for t at most 0, within 2e-7; nothing, or next to it, below 2^-125. Powers of steps of 1/32
/// are looked up, without what their number adds to the exponent and the fraction.
Real stepped_power(Real t) {
  static const Lookup powers = [] {
    Lookup lookup = powers_of_steps();
    for (std::uint32_t step = 0; step < lookup.size(); ++step)
      lookup[step] =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(lookup[step]) - (step << 18));
    return lookup;
  }();
  constexpr double rounder = 0x1.8p18, least = -127;  // the sum's least bit counts steps
  const Real limited = at_least(t, least);
  const Real shifted = limited + rounder;
  const Real r = limited - (shifted - rounder);
  auto& b = t.builder();
  const Real step = looked_up(powers, t, shifted.bits());
  const Real power = t.from_bits(b.CreateAdd(step.bits(), b.CreateShl(shifted.bits(), 18)));
  return fma(power, r * polynomial(r, {0.693157342, 0.240228718}), power);
}

/// 2^t of each for t at most 0; nothing, or next to it, below 2^-125.
Reals powers_of_two(Reals exponents) {
  if (has_lookups(exponents[0])) {
    for (Real& t : exponents) t = stepped_power(t);
    return exponents;
  }
  // The sum's low bits are the whole number, which is added to the exponent of p. That of
  // p(0) = 1 is 127: what it becomes at -127 is zero.
  constexpr double rounder = 0x1.8p23, least = -127;
  Reals limited, shifted, rests;
  for (const Real t : exponents) limited.push_back(at_least(t, least));
  for (const Real t : limited) shifted.push_back(t + rounder);
  for (const Real n : shifted) rests.push_back(n - rounder);
  for (std::size_t i = 0; i < rests.size(); ++i) rests[i] = limited[i] - rests[i];
  Reals powers = small_powers(rests);
  for (std::size_t i = 0; i < powers.size(); ++i) {
    auto& b = powers[i].builder();
    Value* exponent = b.CreateShl(shifted[i].bits(), 23);
    powers[i] = powers[i].from_bits(b.CreateAdd(powers[i].bits(), exponent));
  }
  return powers;
}

class SoftmaxEmitter {
 public:
  SoftmaxEmitter(PartFunction& part, const SoftmaxRows& softmax)
      : part_(part),
        softmax_(softmax),
        emitter_(part.emitter()),
        builder_(emitter_.builder),
        lanes_(emitter_.machine.lanes(element_bytes)),
        type_(value_type(emitter_, DType::f32, lanes_)) {}

  void emit() {
    part_.load_buffers(0);
    Value *begin = part_.argument(1), *end = part_.argument(2);
    Value* last = builder_.CreateSub(end, builder_.getInt64(1));
    emitter_.loop(begin, end, 1, {emit_max(begin)}, [&](Value* row, Values max) {
      Value* next = builder_.CreateBinaryIntrinsic(
          llvm::Intrinsic::smin, builder_.CreateAdd(row, builder_.getInt64(1)), last);
      Value* next_max = emit_max(next);
      emit_powers(row, max[0]);
      return Values{next_max};
    });
    builder_.CreateRetVoid();
  }

 private:
  Value* at(std::int32_t buffer, Value* element) {
    return builder_.CreateGEP(builder_.getFloatTy(), emitter_.buffers[buffer], element);
  }
  Value* row_at(const SoftmaxRows::Rows& rows, Value* row, DType dtype) {
    const auto bytes = static_cast<std::int64_t>(size_of(dtype));
    Value* offset = builder_.CreateMul(row, builder_.getInt64(rows.row_elements * bytes));
    offset = builder_.CreateAdd(offset, builder_.getInt64(rows.offset * bytes));
    return builder_.CreateGEP(builder_.getInt8Ty(), emitter_.buffers[rows.buffer], offset);
  }
  Real load(Value* pointer) {
    return {&emitter_, emit_load(emitter_, DType::f32, pointer, 1, lanes_)};
  }

  /// The lanes of a row's last register that exist; the others hold what they do not count.
  Real only_columns(Real x, double other) {
    const auto left = static_cast<unsigned>(softmax_.columns % lanes_);
    std::vector<llvm::Constant*> exists;
    for (unsigned lane = 0; lane < lanes_; ++lane) exists.push_back(builder_.getInt1(lane < left));
    return select(Truth{&emitter_, llvm::ConstantVector::get(exists)}, x, x.of(other));
  }

  /// Walks over a row's registers, so many together. `body` gets their pointers, those of their
  /// powers, whether the last of them lacks some lanes, and the sums, to which it adds.
  Values over_row(Value* row, std::int64_t together, Values sums,
                  const std::function<void(const Values& pointers, const Values& powers, bool tail,
                                           Values& sums)>& body) {
    const std::int64_t registers = (softmax_.columns + lanes_ - 1) / lanes_;
    const std::int64_t whole = softmax_.columns / lanes_ / together * together;
    const DType narrow = softmax_.powers_dtype;
    Value* values = row_at(softmax_.values, row, DType::f32);
    Value* powers = row_at(softmax_.powers, row, narrow);
    const auto places = [&](Value* start, DType dtype, Value* column, std::int64_t begin,
                            std::int64_t end) {
      const auto bytes = static_cast<std::int64_t>(size_of(dtype));
      Value* first = builder_.CreateGEP(builder_.getInt8Ty(), start,
                                        builder_.CreateMul(column, builder_.getInt64(bytes)));
      Values pointers;
      for (std::int64_t i = begin; i < end; ++i)
        pointers.push_back(
            builder_.CreateGEP(builder_.getInt8Ty(), first, builder_.getInt64(i * lanes_ * bytes)));
      return pointers;
    };
    sums = emitter_.loop(emitter_.i64(0), emitter_.i64(whole * lanes_), together * lanes_,
                         std::move(sums), [&](Value* column, Values inner) {
                           body(places(values, DType::f32, column, 0, together),
                                places(powers, narrow, column, 0, together), false, inner);
                           return inner;
                         });
    if (whole < registers) {
      Value* none = builder_.getInt64(0);
      body(places(values, DType::f32, none, whole, registers),
           places(powers, narrow, none, whole, registers), softmax_.columns % lanes_ != 0, sums);
    }
    return sums;
  }

  /// A row without numbers has no maximum that matters: its powers are no numbers either way.
  Value* emit_max(Value* row) {
    Value* lowest = llvm::ConstantFP::get(type_, -infinity);
    const auto raise = [&](const Values& pointers, const Values&, bool tail, Values& sums) {
      for (std::size_t i = 0; i < pointers.size(); ++i) {
        Real x = load(pointers[i]);
        if (tail && i + 1 == pointers.size()) x = only_columns(x, -infinity);
        sums[i] = larger(x, {&emitter_, sums[i]}).value;
      }
    };
    const Values parts = over_row(row, 4, Values(4, lowest), raise);
    const Real max = larger(larger({&emitter_, parts[0]}, {&emitter_, parts[1]}),
                            larger({&emitter_, parts[2]}, {&emitter_, parts[3]}));
    return across_lanes(max, larger).value;
  }

  void emit_powers(Value* row, Value* max) {
    const Real highest{&emitter_, splat(emitter_, max, lanes_)};
    Value* zero = llvm::ConstantFP::get(type_, 0);
    const std::int64_t together = emitter_.machine.masks ? 2 : 4;
    const auto add = [&](const Values& pointers, const Values& places, bool tail, Values& sums) {
      constexpr double log2_e = 1.44269504088896341;
      Reals powers;
      for (Value* pointer : pointers) powers.push_back(load(pointer) - highest);
      for (Real& power : powers) power = power * log2_e;
      powers = powers_of_two(powers);
      if (tail) powers.back() = only_columns(powers.back(), 0);
      for (std::size_t i = 0; i < pointers.size(); ++i) {
        emit_store(emitter_, softmax_.powers_dtype, powers[i].value, places[i], 1, lanes_);
        sums[i % 2] = (Real{&emitter_, sums[i % 2]} + powers[i]).value;
      }
    };
    const Values parts = over_row(row, together, Values(2, zero), add);
    const Real sums = Real{&emitter_, parts[0]} + Real{&emitter_, parts[1]};
    const Real sum = across_lanes(sums, [](Real a, Real b) { return a + b; });
    Value* element = builder_.CreateAdd(row, builder_.getInt64(softmax_.factors_offset));
    emit_store(emitter_, DType::f32, (1.0 / sum).value, at(softmax_.factors_buffer, element), 1, 1);
  }

  /// As one instruction of most machines: where either is no number it is b.
  static Real larger(Real a, Real b) { return select(a > b, a, b); }

  static Real across_lanes(Real x, Real (*combine)(Real, Real)) {
    auto& b = x.builder();
    for (unsigned lanes = lanes_of(x.value); lanes > 1; lanes /= 2) {
      std::vector<int> low, high;
      for (unsigned i = 0; i < lanes / 2; ++i) {
        low.push_back(static_cast<int>(i));
        high.push_back(static_cast<int>(i + lanes / 2));
      }
      x = combine({x.emitter, b.CreateShuffleVector(x.value, low)},
                  {x.emitter, b.CreateShuffleVector(x.value, high)});
    }
    return {x.emitter, b.CreateExtractElement(x.value, std::uint64_t{0})};
  }

  PartFunction& part_;
  const SoftmaxRows& softmax_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  unsigned lanes_;
  llvm::Type* type_;
};

}  // namespace

BodyFunction emit_softmax_rows(Emitter& emitter, const SoftmaxRows& softmax) {
  llvm::Type* pointer = emitter.builder.getPtrTy();
  llvm::Type* integer = emitter.builder.getInt64Ty();
  PartFunction part(emitter, "softmax_rows", {pointer, integer, integer, pointer});
  SoftmaxEmitter(part, softmax).emit();
  return {part.function(), {}};
}

}  // namespace rlx::codegen
