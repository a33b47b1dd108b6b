// The multiply-adds of a register block: one k a step, or a group of them where the machine adds up
// products of pairs or quads.
#pragma once

#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {

class ProductEmitter {
 public:
  /// `emitter` is that of the part whose code it is.
  ProductEmitter(const ContractionContext& context, Emitter& emitter);

  /// A register of columns at `at`, of a whole group of k; columns off the mask (null: none) are
  /// not read.
  llvm::Value* columns(llvm::Value* at, llvm::Value* mask);
  /// An element of A, or the first `group` of a group in an i32: as they lie in memory, or bytes as
  /// i16. The rest of a group that ends early is 0.
  llvm::Value* element(llvm::Value* at, std::int64_t group);
  /// sum + a * b in every lane, or the sum of the products of a group.
  llvm::Value* add(llvm::Value* sum, llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* byte_pairs(llvm::Value* at);
  llvm::Value* group_as_it_lies(llvm::Value* at, std::int64_t group);
  llvm::Value* add_pairs(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* bytes_at(llvm::Value* pointer, std::int64_t offset);

  const ContractionContext& context_;
  const ContractionPlan& plan_;
  Emitter& emitter_;
  llvm::IRBuilder<>& builder_;
  std::int64_t a_bytes_;
};

}  // namespace rlx::codegen
