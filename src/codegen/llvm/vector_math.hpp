// Elementary functions on f32 and f64 vectors (or scalars), inline, without calls into a math
// library.
#pragma once

#include "codegen/llvm/emitter.hpp"

namespace rlx::codegen {

/// exp ... erf of a value of type float, double or a vector of them. Within 2 ulp (f32) over the
/// whole range.
llvm::Value* emit_unary_math(Emitter& emitter, ScalarOp op, llvm::Value* x);

/// 1 + erf(x) and 1 + tanh(x) in f32 with fused multiply-adds, as GELU wants them: within 4e-7.
llvm::Value* emit_one_plus_erf(Emitter& emitter, llvm::Value* x);
llvm::Value* emit_one_plus_tanh(Emitter& emitter, llvm::Value* x);

/// 1 + e^x in f32 with fused multiply-adds, as sigmoids want it: within 2 ulp.
llvm::Value* emit_one_plus_exp(Emitter& emitter, llvm::Value* x);

/// 1 / (1 + e^x) in f32 with fused multiply-adds, as sigmoids want it: within 4 ulp. On processors
/// with masked registers without a division, and 0 where it is no normal number.
llvm::Value* emit_logistic(Emitter& emitter, llvm::Value* x);

/// e^x in f32 for x up to 0, 0 where that is no normal number, as a softmax wants it beside 1:
/// subnormal numbers take some processors a hundred times as long.
llvm::Value* emit_normal_exp(Emitter& emitter, llvm::Value* x);

/// pow, atan2, rem (C fmod, exact) and mod (sign of the divisor).
llvm::Value* emit_binary_math(Emitter& emitter, ScalarOp op, llvm::Value* a, llvm::Value* b);

/// a * b + c: fused where the machine can, else rounded twice.
llvm::Value* multiply_add(Emitter& emitter, llvm::Value* a, llvm::Value* b, llvm::Value* c);

}  // namespace rlx::codegen
