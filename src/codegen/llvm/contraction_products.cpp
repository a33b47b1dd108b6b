// Emits multiply-adds, and what they multiply.
#include "codegen/llvm/contraction_products.hpp"

#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/scalar_emitter.hpp"
#include "codegen/llvm/vector_math.hpp"

namespace rlx::codegen {

using llvm::Value;

ScaledColumns::ScaledColumns(const ContractionContext& context, Emitter& emitter, Value* scales,
                             Value* zeros, Value* at, unsigned vectors)
    : emitter_(&emitter) {
  const unsigned lanes = context.plan.lanes;
  const auto load = [&](DType dtype, Value* from, std::int64_t column) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    Value* offset = emitter.builder.getInt64(column * size);
    if (at) {
      Value* moved = emitter.builder.CreateMul(at, emitter.builder.getInt64(size));
      offset = emitter.builder.CreateAdd(offset, moved);
    }
    Value* pointer = emitter.builder.CreateGEP(emitter.builder.getInt8Ty(), from, offset);
    return emit_widening_load(emitter, dtype, DType::f32, pointer, lanes);
  };
  for (unsigned v = 0; v < vectors; ++v) {
    const std::int64_t column = std::int64_t{v} * lanes;
    scales_.push_back(load(DType::f32, scales, column));
    if (!context.has_zeros()) continue;
    Value* zero = load(context.b_dtype(), zeros, column);
    added_.push_back(emitter.builder.CreateFNeg(emitter.builder.CreateFMul(zero, scales_.back())));
  }
}

Value* ScaledColumns::scaled(Value* b, unsigned vector) const {
  if (added_.empty()) return emitter_->builder.CreateFMul(b, scales_[vector]);
  return multiply_add(*emitter_, b, scales_[vector], added_[vector]);
}

Value* emit_nibbles(const ContractionContext& context, Emitter& emitter, Value* at, bool odd) {
  llvm::IRBuilder<>& builder = emitter.builder;
  const unsigned lanes = context.plan.lanes;
  const bool is_signed = context.b_dtype() == DType::i8;
  llvm::Type* words = llvm::FixedVectorType::get(builder.getInt32Ty(), lanes);
  llvm::Type* bytes = llvm::FixedVectorType::get(builder.getInt8Ty(), lanes);
  Value* pair = builder.CreateZExt(builder.CreateAlignedLoad(bytes, at, llvm::Align(1)), words);
  const auto number = [&](std::uint64_t value) { return llvm::ConstantInt::get(words, value); };
  if (lanes == 16) {  // looked up among the 16, by the low four bits
    std::vector<llvm::Constant*> all;
    for (int i = 0; i < 16; ++i)
      all.push_back(llvm::ConstantFP::get(builder.getFloatTy(), is_signed && i > 7 ? i - 16 : i));
    return builder.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
        {llvm::ConstantVector::get(all), odd ? builder.CreateLShr(pair, number(4)) : pair});
  }
  llvm::Type* reals = value_type(emitter, DType::f32, lanes);
  if (!is_signed) {
    Value* nibble = odd ? builder.CreateLShr(pair, number(4)) : builder.CreateAnd(pair, number(15));
    return builder.CreateSIToFP(nibble, reals);  // below 16: the same, and one instruction
  }
  Value* high = builder.CreateShl(pair, number(odd ? 24 : 28));
  return builder.CreateSIToFP(builder.CreateAShr(high, number(28)), reals);
}

ProductEmitter::ProductEmitter(const ContractionContext& context, Emitter& emitter)
    : context_(context),
      plan_(context.plan),
      emitter_(emitter),
      builder_(emitter.builder),
      a_bytes_(static_cast<std::int64_t>(size_of(context.a_dtype()))) {}

Value* ProductEmitter::bytes_at(Value* pointer, std::int64_t offset) {
  if (offset == 0) return pointer;
  return builder_.CreateGEP(builder_.getInt8Ty(), pointer, builder_.getInt64(offset));
}

Value* ProductEmitter::columns(Value* at, Value* mask) {
  if (context_.packed_byte_pairs()) return byte_pairs(at);
  const DType type = plan_.unit > 1 ? DType::i32 : context_.contraction.accumulator;
  return emit_widening_load(emitter_, context_.column_dtype(), type, at, plan_.lanes, mask);
}

// A register of columns, two k each, widened from bytes: a panel is always whole.
Value* ProductEmitter::byte_pairs(Value* at) {
  const unsigned count = 2 * plan_.lanes;
  llvm::Type* bytes = llvm::FixedVectorType::get(builder_.getInt8Ty(), count);
  llvm::Type* words = llvm::FixedVectorType::get(builder_.getInt16Ty(), count);
  Value* loaded = builder_.CreateAlignedLoad(bytes, at, llvm::Align(1));
  Value* wide = context_.b_dtype() == DType::i8 ? builder_.CreateSExt(loaded, words)
                                                : builder_.CreateZExt(loaded, words);
  return builder_.CreateBitCast(wide,
                                llvm::FixedVectorType::get(builder_.getInt32Ty(), plan_.lanes));
}

Value* ProductEmitter::add(Value* sum, Value* a, Value* b) {
  switch (plan_.products) {
    case Products::word_pairs: return add_pairs(sum, a, b);
    case Products::bf16_pairs: {
      llvm::Type* pairs = llvm::FixedVectorType::get(builder_.getBFloatTy(), plan_.lanes * 2);
      return builder_.CreateIntrinsic(
          llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
          {sum, builder_.CreateBitCast(a, pairs), builder_.CreateBitCast(b, pairs)});
    }
    case Products::byte_quads:
      return builder_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum, a, b});
    case Products::single: break;
  }
  if (context_.contraction.accumulator == DType::i32)
    return builder_.CreateAdd(sum, builder_.CreateMul(a, b));
  return multiply_add(emitter_, a, b, sum);
}

Value* ProductEmitter::element(Value* at, std::int64_t group) {
  const bool words = plan_.products == Products::word_pairs && a_bytes_ == 2;
  if (words || plan_.products == Products::bf16_pairs || plan_.products == Products::byte_quads)
    return group_as_it_lies(at, group);
  const DType accumulator = context_.contraction.accumulator;
  if (group == 2 && context_.a_dtype() == DType::u8) {
    // Both bytes at once: 0x00hh00ll.
    Value* both = builder_.CreateAlignedLoad(builder_.getInt16Ty(), at, llvm::Align(1));
    both = builder_.CreateZExt(both, builder_.getInt32Ty());
    both = builder_.CreateOr(both, builder_.CreateShl(both, builder_.getInt32(8)));
    return builder_.CreateAnd(both, builder_.getInt32(0x00ff00ff));
  }
  Value* low = emit_widening_load(emitter_, context_.a_dtype(), accumulator, at, 1);
  if (plan_.unit == 1) return low;
  low = builder_.CreateAnd(low, builder_.getInt32(0xffff));
  if (group == 1) return low;
  Value* high =
      emit_widening_load(emitter_, context_.a_dtype(), accumulator, bytes_at(at, a_bytes_), 1);
  return builder_.CreateOr(low, builder_.CreateShl(high, builder_.getInt32(16)));
}

Value* ProductEmitter::group_as_it_lies(Value* at, std::int64_t group) {
  if (group == plan_.unit)
    return builder_.CreateAlignedLoad(builder_.getInt32Ty(), at, llvm::Align(1));
  llvm::Type* element = builder_.getIntNTy(static_cast<unsigned>(a_bytes_) * 8);
  Value* result = builder_.getInt32(0);
  for (std::int64_t i = 0; i < group; ++i) {
    Value* one = builder_.CreateAlignedLoad(element, bytes_at(at, i * a_bytes_), llvm::Align(1));
    Value* wide = builder_.CreateZExt(one, builder_.getInt32Ty());
    result = builder_.CreateOr(
        result, builder_.CreateShl(wide, static_cast<std::uint64_t>(i * a_bytes_ * 8)));
  }
  return result;
}

// sum + a.low * b.low + a.high * b.high in every lane, exact in i32.
Value* ProductEmitter::add_pairs(Value* sum, Value* a, Value* b) {
  const unsigned lanes = plan_.lanes;
  if (emitter_.machine.vnni && lanes == 16) {
    return builder_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpwssd_512, {}, {sum, a, b});
  }
  llvm::Type* pairs = llvm::FixedVectorType::get(builder_.getInt16Ty(), lanes * 2);
  if (!emitter_.machine.pair_products) {
    const auto half = [&](Value* of, bool high) {
      Value* moved = high ? of : builder_.CreateShl(of, 16);
      return builder_.CreateAShr(moved, 16);
    };
    Value* low = builder_.CreateMul(half(a, false), half(b, false));
    Value* high = builder_.CreateMul(half(a, true), half(b, true));
    return builder_.CreateAdd(sum, builder_.CreateAdd(low, high));
  }
  const auto multiply = lanes == 16  ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                        : lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                     : llvm::Intrinsic::x86_sse2_pmadd_wd;
  Value* products = builder_.CreateIntrinsic(
      multiply, {}, {builder_.CreateBitCast(a, pairs), builder_.CreateBitCast(b, pairs)});
  return builder_.CreateAdd(sum, products);
}

}  // namespace rlx::codegen
