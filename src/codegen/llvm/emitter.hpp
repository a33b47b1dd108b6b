// What every emitter of LLVM IR shares: the machine's facts, one kernel function under
// construction, and its bodies.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <span>
#include <vector>

#include "codegen/machine.hpp"

namespace rlx::codegen {

/// One kernel function under construction. `builder` stands at the end of the block where code goes
/// next.
struct Emitter {
  llvm::IRBuilder<>& builder;
  llvm::Module& module;
  llvm::Function* function = nullptr;  ///< void(ptr buffers, i64 begin, i64 end, ptr scratch)
  Machine machine;
  const loop::Kernel& kernel;
  std::vector<llvm::Value*> buffers;  ///< base pointers, loaded at the entry
  llvm::Value* begin = nullptr;       ///< i64
  llvm::Value* end = nullptr;         ///< i64
  llvm::Value* scratch = nullptr;     ///< ptr, aligned to 64

  llvm::Constant* i64(std::int64_t value) const { return builder.getInt64(value); }
  /// `dividend` (i64, 0 to `most`) by a number in which kernels of one family may differ, as a
  /// product with its inverse; by a constant where that is not exact.
  llvm::Value* quotient(llvm::Value* dividend, std::int64_t divisor, std::int64_t most) const;
  llvm::BasicBlock* new_block(const char* name) {
    return llvm::BasicBlock::Create(builder.getContext(), name, function);
  }
  /// for (i = first; i < last; i += step) body(i); the builder stands behind the loop afterwards.
  /// Counts must be i64.
  void loop(llvm::Value* first, llvm::Value* last, std::int64_t step,
            const std::function<void(llvm::Value*)>& body);
  /// The same with values carried from round to round: body gets and returns them, and so does the
  /// loop.
  std::vector<llvm::Value*> loop(
      llvm::Value* first, llvm::Value* last, std::int64_t step, std::vector<llvm::Value*> carried,
      const std::function<std::vector<llvm::Value*>(llvm::Value*, std::vector<llvm::Value*>)>&
          body);
  /// if (condition) body().
  void when(llvm::Value* condition, const std::function<void()>& body);
};

/// Whole lines, for parts of scratch.
constexpr std::int64_t align_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// What the runtime must know of an emitted body.
struct KernelShape {
  std::int64_t work_items = 0;
  std::int64_t scratch_bytes = 0;
};

/// Emit the whole body; the builder stands before the final `ret void` afterwards.
/// `rows`: a work item is one point of the parallel dims, row-major (the epilogue of whole rows).
Result<KernelShape> emit_nest(Emitter& emitter, const loop::Nest& nest, bool rows = false);
Result<KernelShape> emit_contraction(Emitter& emitter, const loop::Contraction& contraction);
Result<KernelShape> emit_chain(Emitter& emitter, const loop::Chain& chain);
Result<KernelShape> emit_strips(Emitter& emitter, const loop::Strips& strips);
Result<KernelShape> emit_recurrence(Emitter& emitter, const loop::Recurrence& recurrence);

}  // namespace rlx::codegen
