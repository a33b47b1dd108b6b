// Rows of exponentials: the maximum of the next row is found while the powers of this one are
// computed, so that neither waits for the other.
#include "codegen/llvm/attention_softmax.hpp"

#include "codegen/llvm/real_math.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

constexpr std::int64_t element_bytes = 4;

/// 2^t for t at most 0, within 2e-7; nothing below 2^-125.
Real power_of_two(Real t) {
  auto& b = t.builder();
  const auto polynomial_of = [](Real r) {
    return polynomial(r,
                      {1.0, 0.693147004, 0.240222424, 0.0555073358, 0.00967151299, 0.00132647285});
  };
  Real power = t;
  if (t.emitter->machine.masks && lanes_of(t.value) * element_bytes == 64) {
    // AVX-512 rounds and scales in an instruction each.
    const Real n{t.emitter, b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, t.value)};
    power = scale(polynomial_of(t - n), Rounded{n, nullptr});
  } else {
    const Real shifted = t + 0x1.8p23;
    const Real p = polynomial_of(t - (shifted - 0x1.8p23));
    // The low bits of `shifted` are the whole number.
    power = t.from_bits(b.CreateAdd(p.bits(), b.CreateShl(shifted.bits(), 23)));
  }
  return select(t < -125.0, 0.0, power);
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
  Value* row_at(Value* row) {
    Value* element = builder_.CreateMul(row, builder_.getInt64(softmax_.row_elements));
    return at(softmax_.rows_buffer,
              builder_.CreateAdd(element, builder_.getInt64(softmax_.rows_offset)));
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

  /// Walks over a row's registers: `body` gets a register's pointer, which sum it adds to, and
  /// whether it is the last one, of which some lanes do not exist.
  Values over_row(Value* row, Values sums,
                  const std::function<Value*(Value* pointer, Value* sum, bool tail)>& body) {
    const auto abreast = static_cast<std::int64_t>(sums.size());
    const std::int64_t whole = softmax_.columns / lanes_;
    const std::int64_t rounds = whole / abreast;
    Value* start = row_at(row);
    const auto place = [&](Value* first, std::int64_t number) {
      return builder_.CreateGEP(builder_.getFloatTy(), first, builder_.getInt64(number * lanes_));
    };
    sums = emitter_.loop(emitter_.i64(0), emitter_.i64(rounds * abreast * lanes_), abreast * lanes_,
                         std::move(sums), [&](Value* column, Values inner) {
                           Value* first = builder_.CreateGEP(builder_.getFloatTy(), start, column);
                           for (std::int64_t i = 0; i < abreast; ++i)
                             inner[i] = body(place(first, i), inner[i], false);
                           return inner;
                         });
    for (std::int64_t i = rounds * abreast; i < whole; ++i)
      sums[i % abreast] = body(place(start, i), sums[i % abreast], false);
    if (softmax_.columns % lanes_ != 0)
      sums[whole % abreast] = body(place(start, whole), sums[whole % abreast], true);
    return sums;
  }

  /// A row without numbers has no maximum that matters: its powers are no numbers either way.
  Value* emit_max(Value* row) {
    Value* lowest = llvm::ConstantFP::get(type_, -infinity);
    const Values parts =
        over_row(row, Values(4, lowest), [&](Value* pointer, Value* sum, bool tail) {
          Real x = load(pointer);
          if (tail) x = only_columns(x, -infinity);
          return larger(x, {&emitter_, sum}).value;
        });
    const Real max = larger(larger({&emitter_, parts[0]}, {&emitter_, parts[1]}),
                            larger({&emitter_, parts[2]}, {&emitter_, parts[3]}));
    return across_lanes(max, larger).value;
  }

  void emit_powers(Value* row, Value* max) {
    const Real highest{&emitter_, splat(emitter_, max, lanes_)};
    Value* zero = llvm::ConstantFP::get(type_, 0);
    const Values parts = over_row(row, Values(2, zero), [&](Value* pointer, Value* sum, bool tail) {
      constexpr double log2_e = 1.44269504088896341;
      Real power = power_of_two((load(pointer) - highest) * log2_e);
      if (tail) power = only_columns(power, 0);
      emit_store(emitter_, DType::f32, power.value, pointer, 1, lanes_);
      return (Real{&emitter_, sum} + power).value;
    });
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

RowEpilogue emit_softmax_rows(Emitter& emitter, const SoftmaxRows& softmax) {
  llvm::Type* pointer = emitter.builder.getPtrTy();
  llvm::Type* integer = emitter.builder.getInt64Ty();
  PartFunction part(emitter, "softmax_rows", {pointer, integer, integer, pointer});
  SoftmaxEmitter(part, softmax).emit();
  return {part.function(), 0};
}

}  // namespace rlx::codegen
