// The control flow that all emitters use.
#include "codegen/llvm/emitter.hpp"

#include <llvm/IR/Constants.h>

namespace rlx::codegen {

llvm::Value* Emitter::quotient(llvm::Value* dividend, std::int64_t divisor,
                               std::int64_t most) const {
  // The inverse is too large by 1 / whole at most: a product stays below the next whole number
  // where most / whole is less than 1 / divisor.
  constexpr int bits = 30;
  constexpr std::int64_t whole = std::int64_t{1} << bits;
  if (most >= whole / divisor) return builder.CreateUDiv(dividend, i64(divisor));
  return builder.CreateLShr(builder.CreateMul(dividend, i64(whole / divisor + 1)), bits);
}

void Emitter::loop(llvm::Value* first, llvm::Value* last, std::int64_t step,
                   const std::function<void(llvm::Value*)>& body) {
  loop(first, last, step, {}, [&](llvm::Value* index, std::vector<llvm::Value*>) {
    body(index);
    return std::vector<llvm::Value*>{};
  });
}

std::vector<llvm::Value*> Emitter::loop(
    llvm::Value* first, llvm::Value* last, std::int64_t step, std::vector<llvm::Value*> carried,
    const std::function<std::vector<llvm::Value*>(llvm::Value*, std::vector<llvm::Value*>)>& body) {
  const auto* first_constant = llvm::dyn_cast<llvm::ConstantInt>(first);
  const auto* last_constant = llvm::dyn_cast<llvm::ConstantInt>(last);
  bool entered = false;
  if (first_constant && last_constant) {
    const std::int64_t from = first_constant->getSExtValue(), to = last_constant->getSExtValue();
    if (from >= to) return carried;
    if (from + step >= to) return body(first, std::move(carried));
    entered = true;
  }
  llvm::BasicBlock* before = builder.GetInsertBlock();
  llvm::BasicBlock* block = new_block("loop");
  llvm::BasicBlock* exit = new_block("loop_end");
  if (entered) {
    builder.CreateBr(block);
  } else {
    builder.CreateCondBr(builder.CreateICmpSLT(first, last), block, exit);
  }

  builder.SetInsertPoint(block);
  llvm::PHINode* index = builder.CreatePHI(builder.getInt64Ty(), 2);
  index->addIncoming(first, before);
  std::vector<llvm::Value*> inside;
  for (llvm::Value* value : carried) {
    llvm::PHINode* phi = builder.CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    inside.push_back(phi);
  }
  const std::vector<llvm::Value*> results = body(index, inside);
  llvm::Value* next = builder.CreateNSWAdd(index, i64(step));
  llvm::BasicBlock* latch = builder.GetInsertBlock();
  builder.CreateCondBr(builder.CreateICmpSLT(next, last), block, exit);
  index->addIncoming(next, latch);
  for (std::size_t i = 0; i < results.size(); ++i) {
    llvm::cast<llvm::PHINode>(inside[i])->addIncoming(results[i], latch);
  }

  builder.SetInsertPoint(exit);
  if (entered) return results;
  std::vector<llvm::Value*> merged;
  for (std::size_t i = 0; i < results.size(); ++i) {
    llvm::PHINode* phi = builder.CreatePHI(results[i]->getType(), 2);
    phi->addIncoming(carried[i], before);
    phi->addIncoming(results[i], latch);
    merged.push_back(phi);
  }
  return merged;
}

void Emitter::when(llvm::Value* condition, const std::function<void()>& body) {
  llvm::BasicBlock* block = new_block("then");
  llvm::BasicBlock* exit = new_block("then_end");
  builder.CreateCondBr(condition, block, exit);
  builder.SetInsertPoint(block);
  body();
  builder.CreateBr(exit);
  builder.SetInsertPoint(exit);
}

}  // namespace rlx::codegen
