// The shared object's entry: a kernel becomes a module of one function, and that a relocatable ELF
// object.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "codegen/llvm/emitter.hpp"

namespace rlx::codegen {
namespace {

constexpr const char* kernel_symbol = "rlx_kernel";
constexpr const char* triple = "x86_64-unknown-linux-gnu";

/// LLVM's name of the least CPU of an ISA class.
const char* generic_cpu(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "x86-64-v4";
    case Isa::avx2: return "x86-64-v3";
    default: return "x86-64";
  }
}

class LlvmGenerator : public CodeGenerator {
 public:
  LlvmGenerator() {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // The emitters write their loops as they should run: these passes cost a quarter of the time
    // and gain nothing. Constants stay memory operands, where hoisting would spill registers.
    const char* const options[] = {"rlx", "-disable-lsr", "-enable-misched=false",
                                   "-disable-machine-licm"};
    llvm::cl::ParseCommandLineOptions(std::size(options), options);
  }

  std::string version() const override { return "LLVM " LLVM_VERSION_STRING; }

  Result<KernelCode> generate(const loop::Kernel& kernel, const Target& target) const override {
    Result<std::unique_ptr<llvm::TargetMachine>> taken = take_machine(target);
    if (!taken) return taken.error();
    std::unique_ptr<llvm::TargetMachine> machine = std::move(*taken);
    Result<KernelCode> code = generate_with(*machine, kernel, target);
    give_back(target, std::move(machine));
    return code;
  }

 private:
  struct Idle {
    Target target;
    std::unique_ptr<llvm::TargetMachine> machine;
  };

  /// A target machine costs 0.3 ms to make, so idle ones wait here for the next kernel.
  Result<std::unique_ptr<llvm::TargetMachine>> take_machine(const Target& target) const {
    {
      const std::lock_guard lock(mutex_);
      for (auto idle = idle_.begin(); idle != idle_.end(); ++idle) {
        if (!(idle->target == target)) continue;
        std::unique_ptr<llvm::TargetMachine> machine = std::move(idle->machine);
        idle_.erase(idle);
        return machine;
      }
    }
    std::string message;
    const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(triple, message);
    if (!llvm_target) {
      return Error{ErrorKind::internal, "LLVM has no such target (" + message + ")."};
    }
    const std::string cpu = target.cpu.empty() ? generic_cpu(target.isa) : target.cpu;
    std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
        triple, cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
        llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less));
    if (!machine) return Error{ErrorKind::internal, "LLVM cannot make code for (" + cpu + ")."};
    return machine;
  }

  void give_back(const Target& target, std::unique_ptr<llvm::TargetMachine> machine) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back({target, std::move(machine)});
  }

  static Result<KernelCode> generate_with(llvm::TargetMachine& machine, const loop::Kernel& kernel,
                                          const Target& target);

  mutable std::mutex mutex_;
  mutable std::vector<Idle> idle_;
};

/// The function's frame: arguments, attributes, the buffers' base pointers.
llvm::Function* declare_kernel(llvm::Module& module) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  llvm::Type* count = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {pointer, count, count, pointer}, false);
  auto* function =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, kernel_symbol, module);
  function->setDSOLocal(true);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr("prefer-vector-width", "512");
  return function;
}

Result<KernelCode> LlvmGenerator::generate_with(llvm::TargetMachine& machine,
                                                const loop::Kernel& kernel, const Target& target) {
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  module.setTargetTriple(triple);
  module.setDataLayout(machine.createDataLayout());
  llvm::Function* function = declare_kernel(module);

  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  Emitter emitter{.builder = builder,
                  .module = module,
                  .function = function,
                  .machine = machine_of(target),
                  .kernel = kernel,
                  .buffers = {},
                  .begin = function->getArg(1),
                  .end = function->getArg(2),
                  .scratch = function->getArg(3)};
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    llvm::Value* slot = builder.CreateConstGEP1_64(builder.getPtrTy(), function->getArg(0), i);
    emitter.buffers.push_back(builder.CreateLoad(builder.getPtrTy(), slot));
  }
  const auto* nest = std::get_if<loop::Nest>(&kernel.body);
  const auto* contraction = std::get_if<loop::Contraction>(&kernel.body);
  const auto* chain = std::get_if<loop::Chain>(&kernel.body);
  Result<KernelShape> shape =
      nest          ? emit_nest(emitter, *nest)
      : contraction ? emit_contraction(emitter, *contraction)
      : chain       ? emit_chain(emitter, *chain)
                    : emit_recurrence(emitter, std::get<loop::Recurrence>(kernel.body));
  if (!shape) return shape.error();
  builder.CreateRetVoid();

  std::string fault;
  llvm::raw_string_ostream fault_stream(fault);
  if (llvm::verifyModule(module, &fault_stream)) {
    return Error{ErrorKind::internal, "The generated code is malformed (" + fault + ")."};
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return Error{ErrorKind::internal, "LLVM cannot write object files for this target."};
  }
  passes.run(module);

  KernelCode code;
  code.object.resize(bytes.size());
  std::memcpy(code.object.data(), bytes.data(), bytes.size());
  code.symbol = kernel_symbol;
  code.work_items = shape->work_items;
  code.scratch_bytes = shape->scratch_bytes;
  return code;
}

}  // namespace
}  // namespace rlx::codegen

extern "C" __attribute__((visibility("default"))) const rlx::codegen::CodeGenerator*
rlx_code_generator() {
  static const rlx::codegen::LlvmGenerator generator;
  return &generator;
}
