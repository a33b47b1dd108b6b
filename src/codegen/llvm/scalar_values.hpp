// How scalar values lie in registers and in memory, and the conversions between the two.
#pragma once

#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

/// Whether register values of that type are float or double.
inline bool is_real(const llvm::Value* value) {
  return value->getType()->getScalarType()->isFloatingPointTy();
}

/// The type of elements in memory: float, double or an integer of the element's size.
llvm::Type* memory_type(Emitter& emitter, DType dtype);

/// `scalar` or <lanes x scalar>.
llvm::Type* with_lanes(llvm::Type* scalar, unsigned lanes);

/// Memory values to register values and back.
llvm::Value* decode(Emitter& emitter, DType dtype, llvm::Value* memory);
llvm::Value* encode(Emitter& emitter, DType dtype, llvm::Value* value);

/// Brings the f32 or i8 result of an operation into what `dtype` can hold (rounds f16, wraps i4).
llvm::Value* fit(Emitter& emitter, DType dtype, llvm::Value* value);

/// Numeric conversion with the semantics of ScalarOp::cast.
llvm::Value* emit_cast(Emitter& emitter, DType from, DType to, llvm::Value* value);

/// 0, 1, 2, ... as i64 lanes.
llvm::Constant* lane_numbers(Emitter& emitter, unsigned lanes);

/// Reads or writes at a vector of pointers; mask null or <lanes x i1>.
llvm::Value* emit_gather(Emitter& emitter, DType dtype, llvm::Value* pointers, llvm::Value* mask,
                         llvm::Value* fill);
void emit_scatter(Emitter& emitter, DType dtype, llvm::Value* value, llvm::Value* pointers,
                  llvm::Value* mask);
/// Elements of a row of so many, at `places` (lanes of integers, in order and within the row, the
/// last less than `registers` registers behind the first): read as whole registers, 1 or 2, of
/// which lanes are picked. Of AVX2 and AVX-512 registers whose lanes take 4 bytes.
llvm::Value* emit_picked(Emitter& emitter, DType dtype, llvm::Value* row, llvm::Value* places,
                         std::int64_t extent, int registers);

}  // namespace rlx::codegen
