// Reduction of large angles (Payne and Hanek): multiplies by those bits of 2/pi that matter to the
// angle's quadrant.
#include "codegen/llvm/real_math.hpp"

namespace rlx::codegen {
namespace {

/// 2/pi as a string of bits, behind 64 zeros.
constexpr std::uint64_t two_over_pi[] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
    0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

llvm::Value* table_of(Emitter& emitter) {
  if (llvm::GlobalVariable* known = emitter.module.getNamedGlobal("two_over_pi")) return known;
  llvm::Constant* data = llvm::ConstantDataArray::get(emitter.builder.getContext(), two_over_pi);
  auto* table = new llvm::GlobalVariable(emitter.module, data->getType(), true,
                                         llvm::GlobalValue::PrivateLinkage, data, "two_over_pi");
  table->setAlignment(llvm::Align(8));
  return table;
}

/// With |x| = m 2^(e-52): x 2/pi mod 4 is m times a window of 192 bits that begins e - 54 bits
/// behind the point, mod 2^192, as a fraction of 4. The upper 128 bits of that product hold the
/// quadrant and 126 bits of the fraction.
Reduced reduce_one(Real x) {
  Emitter& emitter = *x.emitter;
  auto& b = x.builder();
  llvm::Type* wide = b.getInt128Ty();
  auto extended = [&](llvm::Value* word) { return b.CreateZExt(word, wide); };
  llvm::Value* bits = abs(x).bits();
  llvm::Value* mantissa = b.CreateOr(b.CreateAnd(bits, (1ull << 52) - 1), 1ull << 52);
  // Small lanes and NaN are not used: their window is put inside the table.
  llvm::Value* field = b.CreateLShr(bits, 52);
  field = b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, field, b.getInt64(1023));
  field = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, field, b.getInt64(2046));
  llvm::Value* position = b.CreateSub(field, b.getInt64(1023 - 10));
  llvm::Value* word = b.CreateLShr(position, 6);
  llvm::Value* shift = b.CreateAnd(position, 63);
  llvm::Value* table = table_of(emitter);
  llvm::Value* raw[4];
  for (int i = 0; i < 4; ++i) {
    llvm::Value* slot = b.CreateGEP(b.getInt64Ty(), table, b.CreateAdd(word, b.getInt64(i)));
    raw[i] = b.CreateLoad(b.getInt64Ty(), slot);
  }
  llvm::Value* window[3];
  for (int i = 0; i < 3; ++i) {
    window[i] =
        b.CreateIntrinsic(llvm::Intrinsic::fshl, {b.getInt64Ty()}, {raw[i], raw[i + 1], shift});
  }
  llvm::Value* m = extended(mantissa);
  llvm::Value* product = b.CreateShl(b.CreateMul(m, extended(window[0])), 64);
  product = b.CreateAdd(product, b.CreateMul(m, extended(window[1])));
  product = b.CreateAdd(product, b.CreateLShr(b.CreateMul(m, extended(window[2])), 64));

  llvm::Value* half = b.CreateShl(llvm::ConstantInt::get(wide, 1), 125);
  llvm::Value* quadrant =
      b.CreateTrunc(b.CreateLShr(b.CreateAdd(product, half), 126), b.getInt64Ty());
  llvm::Value* fraction = b.CreateAShr(b.CreateShl(product, 2), 2);
  llvm::Value* high = b.CreateTrunc(b.CreateAShr(fraction, 64), b.getInt64Ty());
  llvm::Value* low = b.CreateTrunc(fraction, b.getInt64Ty());
  // The upper part converts exactly, so that cancellation near multiples of pi/2 loses nothing.
  llvm::Value* top = b.CreateAnd(high, ~2047ull);
  const Real upper{&emitter, b.CreateSIToFP(top, b.getDoubleTy())};
  const Real middle{&emitter, b.CreateSIToFP(b.CreateAnd(high, 2047), b.getDoubleTy())};
  const Real lower{&emitter, b.CreateUIToFP(low, b.getDoubleTy())};
  const Real rest = upper * 0x1p-62 + (middle * 0x1p-62 + lower * 0x1p-126);
  const Real angle = rest * 0x1.921fb54442d18p+0;
  llvm::Value* negative = is_negative(x).value;
  const Truth infinite = !(abs(x) < infinity);
  return {select(infinite, not_a_number, select(Truth{&emitter, negative}, -angle, angle)),
          b.CreateSelect(negative, b.CreateNeg(quadrant), quadrant)};
}

}  // namespace

Reduced reduce_large_angle(Real x) {
  Emitter& emitter = *x.emitter;
  auto& b = x.builder();
  const unsigned lanes = lanes_of(x.value);
  if (lanes == 1) return reduce_one(x);
  llvm::Value* empty = llvm::PoisonValue::get(x.value->getType());
  llvm::Value* empty_words = llvm::PoisonValue::get(x.words());
  const std::vector<llvm::Value*> results = emitter.loop(
      emitter.i64(0), emitter.i64(lanes), 1, {empty, empty_words},
      [&](llvm::Value* lane, std::vector<llvm::Value*> state) {
        const Reduced one = reduce_one({&emitter, b.CreateExtractElement(x.value, lane)});
        return std::vector<llvm::Value*>{b.CreateInsertElement(state[0], one.rest.value, lane),
                                         b.CreateInsertElement(state[1], one.quadrant, lane)};
      });
  return {{&emitter, results[0]}, results[1]};
}

}  // namespace rlx::codegen
