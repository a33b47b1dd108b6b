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

#include "base/error.hpp"
#include "codegen/llvm/emitter.hpp"
#include "codegen/llvm/outline.hpp"

namespace rlx::codegen {
namespace {

constexpr const char* kernel_symbol = "rlx_kernel";
#if defined(__aarch64__)
constexpr const char* triple = "aarch64-unknown-linux-gnu";
/// Whether instructions can hold a symbol's value as they hold a constant.
constexpr bool has_absolute_symbols = false;

void initialize_llvm_target() {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

/// LLVM's name of the least CPU of an ISA class.
const char* generic_cpu(Isa) { return "generic"; }
#else
constexpr const char* triple = "x86_64-unknown-linux-gnu";
constexpr bool has_absolute_symbols = true;

void initialize_llvm_target() {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
}

const char* generic_cpu(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "x86-64-v4";
    case Isa::avx2: return "x86-64-v3";
    default: return "x86-64";
  }
}
#endif

class LlvmGenerator : public CodeGenerator {
 public:
  LlvmGenerator() {
    initialize_llvm_target();
    // The emitters write their loops as they should run: these passes cost a quarter of the time
    // and gain nothing. Constants stay memory operands, where hoisting would spill registers.
    const char* const options[] = {"rlx", "-disable-lsr", "-enable-misched=false",
                                   "-disable-machine-licm"};
    llvm::cl::ParseCommandLineOptions(std::size(options), options);
  }

  std::string version() const override { return "LLVM " LLVM_VERSION_STRING; }

  Result<KernelCode> generate(const loop::Kernel& kernel, const Target& target) const override {
    return generate_open(kernel, target, {});
  }

  std::optional<KernelOutline> outline(const loop::Kernel& kernel,
                                       const Target& target) const override {
    if (!has_absolute_symbols) return std::nullopt;
    Result<std::unique_ptr<Pipeline>> pipeline = take_pipeline(target);
    if (!pipeline.ok()) return std::nullopt;
    llvm::LLVMContext context;
    llvm::Module module("kernel", context);
    const Result<KernelShape> shape = emit_kernel(module, **pipeline, kernel);
    give_back(*std::move(pipeline));
    std::optional<KernelOutline> outline;
    if (!shape.ok()) return outline;
    outline = outline_of(module);
    if (!outline) return outline;
    outline->work_items = shape->work_items;
    outline->scratch_bytes = shape->scratch_bytes;
    return outline;
  }

  Result<KernelCode> generate_open(const loop::Kernel& kernel, const Target& target,
                                   std::span<const std::int32_t> names) const override {
    RLX_ASSIGN(std::unique_ptr<Pipeline> pipeline, take_pipeline(target));
    Result<KernelCode> code = generate_with(*pipeline, kernel, names);
    // After an error the passes may not have run to their end.
    if (code.ok()) give_back(std::move(pipeline));
    return code;
  }

 private:
  /// A target machine and its passes, which write the object of one module after another. Making
  /// them costs more than running them on a small kernel, so idle ones wait for the next.
  struct Pipeline {
    Target target;
    std::unique_ptr<llvm::TargetMachine> machine;
    llvm::SmallVector<char, 0> bytes;  ///< of the last module's object
    llvm::raw_svector_ostream stream{bytes};
    llvm::legacy::PassManager passes;
  };

  Result<std::unique_ptr<Pipeline>> take_pipeline(const Target& target) const {
    {
      const std::lock_guard lock(mutex_);
      for (auto idle = idle_.begin(); idle != idle_.end(); ++idle) {
        if (!((*idle)->target == target)) continue;
        std::unique_ptr<Pipeline> pipeline = std::move(*idle);
        idle_.erase(idle);
        return pipeline;
      }
    }
    return make_pipeline(target);
  }

  static Result<std::unique_ptr<Pipeline>> make_pipeline(const Target& target) {
    std::string message;
    const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(triple, message);
    if (!llvm_target) {
      return Error{ErrorKind::internal, "LLVM has no such target (" + message + ")."};
    }
    const std::string cpu = target.cpu.empty() ? generic_cpu(target.isa) : target.cpu;
    auto pipeline = std::make_unique<Pipeline>();
    pipeline->target = target;
    pipeline->machine.reset(llvm_target->createTargetMachine(
        triple, cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
        llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less));
    if (!pipeline->machine) {
      return Error{ErrorKind::internal, "LLVM cannot make code for (" + cpu + ")."};
    }
    if (pipeline->machine->addPassesToEmitFile(pipeline->passes, pipeline->stream, nullptr,
                                               llvm::CodeGenFileType::ObjectFile)) {
      return Error{ErrorKind::internal, "LLVM cannot write object files for this target."};
    }
    return pipeline;
  }

  void give_back(std::unique_ptr<Pipeline> pipeline) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(pipeline));
  }

  static Result<KernelShape> emit_kernel(llvm::Module& module, const Pipeline& pipeline,
                                         const loop::Kernel& kernel);
  static Result<KernelCode> generate_with(Pipeline& pipeline, const loop::Kernel& kernel,
                                          std::span<const std::int32_t> names);

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Pipeline>> idle_;
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

Result<KernelShape> LlvmGenerator::emit_kernel(llvm::Module& module, const Pipeline& pipeline,
                                               const loop::Kernel& kernel) {
  module.setTargetTriple(triple);
  module.setDataLayout(pipeline.machine->createDataLayout());
  llvm::Function* function = declare_kernel(module);

  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  Emitter emitter{.builder = builder,
                  .module = module,
                  .function = function,
                  .machine = machine_of(pipeline.target),
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
  const auto* strips = std::get_if<loop::Strips>(&kernel.body);
  Result<KernelShape> shape =
      nest          ? emit_nest(emitter, *nest)
      : contraction ? emit_contraction(emitter, *contraction)
      : chain       ? emit_chain(emitter, *chain)
      : strips      ? emit_strips(emitter, *strips)
                    : emit_recurrence(emitter, std::get<loop::Recurrence>(kernel.body));
  if (shape.ok()) builder.CreateRetVoid();
  return shape;
}

Result<KernelCode> LlvmGenerator::generate_with(Pipeline& pipeline, const loop::Kernel& kernel,
                                                std::span<const std::int32_t> names) {
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  RLX_ASSIGN(const KernelShape shape, emit_kernel(module, pipeline, kernel));
  if (!names.empty()) name_numbers(module, names);

  std::string fault;
  llvm::raw_string_ostream fault_stream(fault);
  if (llvm::verifyModule(module, &fault_stream)) {
    return Error{ErrorKind::internal, "The generated code is malformed (" + fault + ")."};
  }
  pipeline.bytes.clear();
  pipeline.passes.run(module);

  KernelCode code;
  code.object.resize(pipeline.bytes.size());
  std::memcpy(code.object.data(), pipeline.bytes.data(), pipeline.bytes.size());
  code.symbol = kernel_symbol;
  code.work_items = shape.work_items;
  code.scratch_bytes = shape.scratch_bytes;
  return code;
}

}  // namespace
}  // namespace rlx::codegen

extern "C" __attribute__((visibility("default"))) const rlx::codegen::CodeGenerator*
rlx_code_generator() {
  static const rlx::codegen::LlvmGenerator generator;
  return &generator;
}
