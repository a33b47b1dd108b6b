// Walks over modules: their structure as bytes, and the places of their numbers.
#include "codegen/llvm/outline.hpp"

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Support/raw_ostream.h>

#include <limits>
#include <string>
#include <vector>

namespace rlx::codegen {
namespace {

/// The operand of an address computation that counts elements, not fields.
bool is_single_index(const llvm::Instruction& instruction, unsigned operand) {
  return operand == 1 && instruction.getNumOperands() == 2;
}

bool takes_numbers(const llvm::CallInst& call, unsigned operand) {
  const llvm::Function* const callee = call.getCalledFunction();
  if (callee == nullptr || operand >= call.arg_size()) return false;
  switch (callee->getIntrinsicID()) {
    case llvm::Intrinsic::not_intrinsic:
    case llvm::Intrinsic::smin:
    case llvm::Intrinsic::smax:
    case llvm::Intrinsic::umin: return true;
    default: return false;
  }
}

/// The number at this place, where it can be a symbol. Divisors cannot: division by a constant is
/// multiplication.
const llvm::ConstantInt* number_at(const llvm::Instruction& instruction, unsigned operand) {
  const auto* number = llvm::dyn_cast<llvm::ConstantInt>(instruction.getOperand(operand));
  if (number == nullptr || number->getBitWidth() < 32 || number->getBitWidth() > 64) return nullptr;
  switch (instruction.getOpcode()) {
    case llvm::Instruction::Add:
    case llvm::Instruction::Sub:
    case llvm::Instruction::Mul:
    case llvm::Instruction::ICmp:
    case llvm::Instruction::Select:
    case llvm::Instruction::PHI: return number;
    case llvm::Instruction::GetElementPtr:
      return is_single_index(instruction, operand) ? number : nullptr;
    case llvm::Instruction::Call:
      return takes_numbers(llvm::cast<llvm::CallInst>(instruction), operand) ? number : nullptr;
    default: return nullptr;
  }
}

/// Addresses count bytes.
std::int64_t unit_of(const llvm::Instruction& instruction) {
  const auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&instruction);
  if (address == nullptr) return 1;
  const llvm::DataLayout& layout = instruction.getModule()->getDataLayout();
  return static_cast<std::int64_t>(
      layout.getTypeAllocSize(address->getSourceElementType()).getFixedValue());
}

class Outliner {
 public:
  explicit Outliner(const llvm::Module& module) : module_(module) {}

  std::optional<KernelOutline> outline() {
    for (const llvm::GlobalVariable& global : module_.globals()) {
      if (!global.hasInitializer()) return std::nullopt;
      add(global.getName());
      add_type(global.getType());
      add_constant(*global.getInitializer());
    }
    for (const llvm::Function& function : module_) add_function(function);
    if (!complete_) return std::nullopt;
    return std::move(outline_);
  }

 private:
  /// Four bytes where these do.
  void add(std::uint64_t value) {
    constexpr std::uint32_t longer = std::numeric_limits<std::uint32_t>::max();
    const std::uint32_t begin = value < longer ? static_cast<std::uint32_t>(value) : longer;
    outline_.structure.append(reinterpret_cast<const char*>(&begin), sizeof(begin));
    if (begin == longer)
      outline_.structure.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void add(llvm::StringRef text) {
    add(text.size());
    outline_.structure.append(text.data(), text.size());
  }

  /// A number, which the type's text follows where it is new.
  void add_type(llvm::Type* type) {
    const auto [known, is_new] = types_.try_emplace(type, types_.size());
    add(known->second);
    if (!is_new) return;
    std::string text;
    llvm::raw_string_ostream stream(text);
    type->print(stream);
    add(text);
  }

  void add_attributes(const llvm::AttributeList& attributes) {
    add(attributes.getNumAttrSets());
    for (const unsigned index : attributes.indexes()) add(attributes.getAsString(index));
  }

  void add_constant(const llvm::Constant& constant) {
    add(constant.getValueID());
    add_type(constant.getType());
    if (const auto* integer = llvm::dyn_cast<llvm::ConstantInt>(&constant)) {
      add_bits(integer->getValue());
    } else if (const auto* real = llvm::dyn_cast<llvm::ConstantFP>(&constant)) {
      add_bits(real->getValueAPF().bitcastToAPInt());
    } else if (const auto* data = llvm::dyn_cast<llvm::ConstantDataSequential>(&constant)) {
      add(data->getRawDataValues());
    } else if (const auto* vector = llvm::dyn_cast<llvm::ConstantVector>(&constant)) {
      for (const llvm::Use& each : vector->operands())
        add_constant(*llvm::cast<llvm::Constant>(each.get()));
    } else if (const auto* global = llvm::dyn_cast<llvm::GlobalValue>(&constant)) {
      add(global->getName());
    } else if (!llvm::isa<llvm::ConstantAggregateZero, llvm::ConstantPointerNull, llvm::UndefValue>(
                   constant)) {
      complete_ = false;
    }
  }

  void add_assembly(const llvm::InlineAsm& assembly) {
    add_type(assembly.getFunctionType());
    add(llvm::StringRef(assembly.getAsmString()));
    add(llvm::StringRef(assembly.getConstraintString()));
    add(assembly.hasSideEffects());
    add(assembly.isAlignStack());
    add(assembly.getDialect());
    add(assembly.canThrow());
  }

  void add_bits(const llvm::APInt& value) {
    for (unsigned i = 0; i < value.getNumWords(); ++i) add(value.getRawData()[i]);
  }

  void add_function(const llvm::Function& function) {
    add(function.getName());
    add_type(function.getFunctionType());
    add(function.getLinkage());
    add(function.getCallingConv());
    add_attributes(function.getAttributes());
    values_.clear();
    for (const llvm::Argument& argument : function.args()) number(argument);
    for (const llvm::BasicBlock& block : function) {
      number(block);
      for (const llvm::Instruction& instruction : block) number(instruction);
    }
    for (const llvm::BasicBlock& block : function) {
      add(block.size());
      for (const llvm::Instruction& instruction : block) add_instruction(instruction);
    }
  }

  void number(const llvm::Value& value) { values_.try_emplace(&value, values_.size()); }

  void add_instruction(const llvm::Instruction& instruction) {
    add(instruction.getOpcode());
    add_type(instruction.getType());
    add(instruction.getRawSubclassOptionalData());
    add_details(instruction);
    add_notes(instruction);
    add(instruction.getNumOperands());
    for (unsigned i = 0; i < instruction.getNumOperands(); ++i) {
      const llvm::Value* const operand = instruction.getOperand(i);
      if (const llvm::ConstantInt* number = number_at(instruction, i)) {
        add(std::numeric_limits<std::uint64_t>::max());
        add_type(number->getType());
        outline_.numbers.push_back(number->getSExtValue() * unit_of(instruction));
      } else if (const auto* constant = llvm::dyn_cast<llvm::Constant>(operand)) {
        add_constant(*constant);
      } else if (const auto* text = llvm::dyn_cast<llvm::InlineAsm>(operand)) {
        add_assembly(*text);
      } else if (const auto known = values_.find(operand); known != values_.end()) {
        add(known->second);
      } else {
        complete_ = false;
      }
    }
  }

  /// Metadata: that what is loaded never changes, and nothing else.
  void add_notes(const llvm::Instruction& instruction) {
    llvm::SmallVector<std::pair<unsigned, llvm::MDNode*>, 2> notes;
    instruction.getAllMetadata(notes);
    add(notes.size());
    for (const auto& [kind, node] : notes) {
      if (kind != llvm::LLVMContext::MD_invariant_load) complete_ = false;
    }
  }

  /// What stands beside the operands.
  void add_details(const llvm::Instruction& instruction) {
    if (const auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction)) {
      add(load->getAlign().value());
      add(load->isVolatile() || load->isAtomic());
      if (load->isAtomic()) complete_ = false;
    } else if (const auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction)) {
      add(store->getAlign().value());
      add(store->isVolatile());
      if (store->isAtomic()) complete_ = false;
    } else if (const auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&instruction)) {
      add_type(address->getSourceElementType());
    } else if (const auto* memory = llvm::dyn_cast<llvm::AllocaInst>(&instruction)) {
      add_type(memory->getAllocatedType());
      add(memory->getAlign().value());
    } else if (const auto* compare = llvm::dyn_cast<llvm::CmpInst>(&instruction)) {
      add(compare->getPredicate());
    } else if (const auto* shuffle = llvm::dyn_cast<llvm::ShuffleVectorInst>(&instruction)) {
      for (const int lane : shuffle->getShuffleMask()) add(static_cast<std::uint64_t>(lane));
    } else if (const auto* phi = llvm::dyn_cast<llvm::PHINode>(&instruction)) {
      for (const llvm::BasicBlock* block : phi->blocks()) add(values_.lookup(block));
    } else if (const auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction)) {
      add(call->getTailCallKind());
      add(call->getCallingConv());
      add_attributes(call->getAttributes());
      if (call->hasOperandBundles()) complete_ = false;
    } else if (!llvm::isa<llvm::BinaryOperator, llvm::UnaryOperator, llvm::CastInst,
                          llvm::BranchInst, llvm::ReturnInst, llvm::SelectInst, llvm::FreezeInst,
                          llvm::ExtractElementInst, llvm::InsertElementInst>(instruction)) {
      complete_ = false;
    }
  }

  const llvm::Module& module_;
  KernelOutline outline_;
  llvm::DenseMap<llvm::Type*, std::uint64_t> types_;
  llvm::DenseMap<const llvm::Value*, std::uint64_t> values_;  ///< of one function
  bool complete_ = true;
};

/// The address of a variable that lies where the number says. It has no bytes, so that LLVM must
/// not take it that two of them lie apart.
llvm::Constant* symbol_of(llvm::Module& module, std::int32_t name, llvm::Type* type) {
  llvm::LLVMContext& context = module.getContext();
  const std::string text = number_symbol(name);
  llvm::GlobalVariable* symbol = module.getNamedGlobal(text);
  if (symbol == nullptr) {
    llvm::Type* const nothing = llvm::ArrayType::get(llvm::Type::getInt8Ty(context), 0);
    symbol = new llvm::GlobalVariable(module, nothing, false, llvm::GlobalValue::ExternalLinkage,
                                      nullptr, text);
    symbol->setVisibility(llvm::GlobalValue::HiddenVisibility);
    symbol->setDSOLocal(true);
    const auto bound = [&](std::int64_t value) {
      return llvm::ConstantAsMetadata::get(
          llvm::ConstantInt::getSigned(llvm::Type::getInt64Ty(context), value));
    };
    symbol->setMetadata(llvm::LLVMContext::MD_absolute_symbol,
                        llvm::MDNode::get(context, {bound(std::numeric_limits<std::int32_t>::min()),
                                                    bound(std::int64_t{1} << 31)}));
  }
  llvm::Constant* value = llvm::ConstantExpr::getPtrToInt(symbol, llvm::Type::getInt64Ty(context));
  return type->isIntegerTy(64) ? value : llvm::ConstantExpr::getTrunc(value, type);
}

void name_number(llvm::Instruction& instruction, unsigned operand, std::int32_t name) {
  llvm::Type* const type = instruction.getOperand(operand)->getType();
  instruction.setOperand(operand, symbol_of(*instruction.getModule(), name, type));
  if (auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&instruction)) {
    llvm::Type* const byte = llvm::Type::getInt8Ty(instruction.getContext());
    address->setSourceElementType(byte);
    address->setResultElementType(byte);
  }
}

}  // namespace

std::optional<KernelOutline> outline_of(const llvm::Module& module) {
  return Outliner(module).outline();
}

void name_numbers(llvm::Module& module, std::span<const std::int32_t> names) {
  std::size_t next = 0;
  for (llvm::Function& function : module) {
    for (llvm::BasicBlock& block : function) {
      for (llvm::Instruction& instruction : block) {
        for (unsigned i = 0; i < instruction.getNumOperands(); ++i) {
          if (number_at(instruction, i) == nullptr) continue;
          const std::int32_t name = next < names.size() ? names[next] : -1;
          ++next;
          if (name >= 0) name_number(instruction, i, name);
        }
      }
    }
  }
}

}  // namespace rlx::codegen
