// What the functions of a contraction's parts share: the functions themselves, coordinates, loads.
#include <llvm/IR/InlineAsm.h>

#include "base/error.hpp"
#include "codegen/llvm/contraction.hpp"
#include "codegen/llvm/scalar_emitter.hpp"

namespace rlx::codegen {

using llvm::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<std::int64_t>;

PartFunction::PartFunction(Emitter& parent, const std::string& name,
                           const std::vector<llvm::Type*>& parameters)
    : caller_(parent.builder.saveIP()), emitter_(parent) {
  llvm::LLVMContext& context = parent.builder.getContext();
  auto* type = llvm::FunctionType::get(parent.builder.getVoidTy(), parameters, false);
  auto* function =
      llvm::Function::Create(type, llvm::Function::InternalLinkage, name, parent.module);
  function->addFnAttrs(llvm::AttrBuilder(context, parent.function->getAttributes().getFnAttrs()));
  emitter_.function = function;
  emitter_.begin = emitter_.end = emitter_.scratch = nullptr;
  emitter_.buffers.assign(parent.buffers.size(), nullptr);
  parent.builder.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
}

PartFunction::~PartFunction() { emitter_.builder.restoreIP(caller_); }

Value* PartFunction::rounds_that_count(std::int64_t k_of_round, std::int64_t most) {
  llvm::IRBuilder<>& builder = emitter_.builder;
  Value* k = argument(static_cast<unsigned>(emitter_.function->arg_size()) - 1);
  Value* rounds = builder.CreateUDiv(builder.CreateAdd(k, builder.getInt64(k_of_round - 1)),
                                     builder.getInt64(k_of_round));
  return builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rounds, builder.getInt64(most));
}

void PartFunction::load_buffers(unsigned argument_index) {
  llvm::IRBuilder<>& builder = emitter_.builder;
  for (std::size_t i = 0; i < emitter_.buffers.size(); ++i) {
    Value* slot = builder.CreateConstGEP1_64(builder.getPtrTy(), argument(argument_index), i);
    emitter_.buffers[i] = builder.CreateLoad(builder.getPtrTy(), slot);
  }
}

Result<BodyFunction> emit_body(Emitter& emitter, const std::string& name,
                               const std::function<Result<KernelShape>(Emitter&)>& emit) {
  llvm::Type* pointer = emitter.builder.getPtrTy();
  llvm::Type* integer = emitter.builder.getInt64Ty();
  PartFunction part(emitter, name, {pointer, integer, integer, pointer});
  part.load_buffers(0);
  Emitter& inner = part.emitter();
  inner.begin = part.argument(1);
  inner.end = part.argument(2);
  inner.scratch = part.argument(3);
  RLX_ASSIGN(const KernelShape shape, emit(inner));
  emitter.builder.CreateRetVoid();
  return BodyFunction{part.function(), shape};
}

namespace {

/// Those of a vector of places: division by constants costs half as much on 32 bits.
Values vector_coordinates(llvm::IRBuilder<>& builder, Value* linear, const Integers& extents,
                          std::int64_t total) {
  llvm::Type* type = linear->getType();
  if (total < (std::int64_t{1} << 31)) type = type->getWithNewBitWidth(32);
  Values coordinates(extents.size(), linear);
  Value* rest = builder.CreateZExtOrTrunc(linear, type);
  for (std::size_t i = extents.size(); i-- > 0;) {
    Value* extent = llvm::ConstantInt::get(type, extents[i]);
    coordinates[i] = i == 0 ? rest : builder.CreateURem(rest, extent);
    if (i > 0) rest = builder.CreateUDiv(rest, extent);
    coordinates[i] = builder.CreateZExt(coordinates[i], linear->getType());
  }
  return coordinates;
}

}  // namespace

std::vector<Value*> emit_coordinates(Emitter& emitter, Value* linear, const Integers& extents,
                                     bool rarely) {
  llvm::IRBuilder<>& builder = emitter.builder;
  std::int64_t total = 1;
  for (std::int64_t extent : extents) total *= extent;
  Values coordinates(extents.size(), linear);
  if (extents.size() < 2) return coordinates;
  if (linear->getType()->isVectorTy()) return vector_coordinates(builder, linear, extents, total);
  Value* rest = linear;
  for (std::size_t i = extents.size(); i-- > 1;) {
    coordinates[i] = emitter.i64(0);
    if (extents[i] != 1 || rarely) {
      Value* whole = emitter.quotient(rest, extents[i], total);
      coordinates[i] = builder.CreateSub(rest, builder.CreateMul(whole, emitter.i64(extents[i])));
      rest = whole;
    }
    total /= extents[i];
  }
  coordinates[0] = rest;
  return coordinates;
}

std::vector<Value*> emit_linear_sums(Emitter& emitter, Value* linear, const Integers& extents,
                                     const std::vector<Integers>& steps, const Integers& starts) {
  llvm::IRBuilder<>& builder = emitter.builder;
  const Values coordinates = emit_coordinates(emitter, linear, extents);
  const auto constant = [&](std::int64_t value) {
    return llvm::ConstantInt::get(linear->getType(), static_cast<std::uint64_t>(value), true);
  };
  Values sums;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    Value* sum = constant(starts[s]);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (steps[s][i] == 0) continue;
      Value* part = steps[s][i] == 1 ? coordinates[i]
                                     : builder.CreateMul(coordinates[i], constant(steps[s][i]));
      sum = builder.CreateAdd(part, sum);
    }
    sums.push_back(sum);
  }
  return sums;
}

Value* emit_asking(Emitter& emitter, Value* from, std::int64_t bytes) {
  constexpr std::int64_t line = 64;
  constexpr bool write = false;
  constexpr unsigned second_level = 2;
  const auto at = [&](std::int64_t offset) {
    return emitter.builder.CreateConstGEP1_64(emitter.builder.getInt8Ty(), from,
                                              static_cast<std::uint64_t>(offset));
  };
  for (std::int64_t offset = 0; offset < bytes; offset += line)
    emit_prefetch(emitter, at(offset), write, second_level);
  return at(bytes);
}

void hold_back(Emitter& emitter, Value* sum, Values& rows, Value*& columns) {
  const auto behind_sum = [&](Value* pointer) {
    auto* type =
        llvm::FunctionType::get(pointer->getType(), {pointer->getType(), sum->getType()}, false);
    auto* nothing = llvm::InlineAsm::get(type, "", "=r,0,x", false);
    return emitter.builder.CreateCall(type, nothing, {pointer, sum});
  };
  columns = behind_sum(columns);
  if (rows.size() == 1) rows[0] = behind_sum(rows[0]);
}

Value* emit_widening_load(Emitter& emitter, DType from, DType accumulator, Value* pointer,
                          unsigned lanes, Value* mask) {
  Value* value = emit_load(emitter, from, pointer, 1, lanes, mask);
  if (from == accumulator) return value;
  // Registers hold narrow floats as f32 already.
  if (accumulator == DType::f32 && value->getType()->getScalarType()->isFloatTy()) return value;
  return emit_scalar(emitter, ScalarNode{.op = ScalarOp::cast, .dtype = accumulator}, from, value);
}

}  // namespace rlx::codegen
