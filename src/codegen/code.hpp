// Machine code of kernels: targets, the entry point's signature, object code, and the generator
// that makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/loop.hpp"
#include "rlx/result.hpp"

namespace rlx::codegen {

/// Vector width class of the generated code. `portable` is plain x86-64 (SSE2), or on another
/// architecture what every compiler has: registers of 16 bytes, no fused multiply-add. `neon` is
/// the baseline of AArch64.
enum class Isa : std::uint8_t { portable, avx2, avx512, neon };

/// Entry point of every kernel: works on items [begin, end) of its work items. `scratch` has
/// scratch_bytes for this worker alone, aligned to 64. May run at the same time on disjoint ranges.
/// buffers[i] is the base of kernel.buffers[i].
using KernelFunction = void (*)(void* const* buffers, std::int64_t begin, std::int64_t end,
                                void* scratch);

/// What the machine code is made for.
struct Target {
  Isa isa = Isa::portable;
  std::string
      cpu;  ///< LLVM's name of the CPU to schedule for ("znver4"), empty for the ISA's generic one
  std::string features;  ///< what of AVX512-VNNI, BF16, ... may be used, LLVM's spelling
                         ///< ("+avx512vnni,+avx512bf16")
  bool operator==(const Target&) const = default;
};

/// Object code (ELF, relocatable) that holds one kernel under `symbol`, with what the caller must
/// know to run it.
struct KernelCode {
  std::vector<std::byte> object;
  std::string symbol;
  std::int64_t work_items =
      0;  ///< the range that calls share out; an item is the smallest useful unit (a row, a tile)
  std::int64_t scratch_bytes = 0;  ///< for each worker
};

/// What the code of a kernel is but for numbers in it (extents, distances, bounds). Kernels of
/// equal structure need be compiled once: see CodeGenerator::generate_open.
struct KernelOutline {
  std::string structure;
  std::vector<std::int64_t> numbers;  ///< in an order that the structure gives
  std::int64_t work_items = 0, scratch_bytes = 0;
};

/// The name of an absolute symbol that stands for a number.
inline std::string number_symbol(std::int32_t index) { return "N" + std::to_string(index); }

/// Makes code. The one implementation holds LLVM and lives in a shared object of its own, opened
/// when first needed.
class CodeGenerator {
 public:
  virtual ~CodeGenerator() = default;
  /// Same target and kernel: same bytes. Thread-safe. Errors: `unsupported` where this generator
  /// cannot express the kernel.
  virtual Result<KernelCode> generate(const loop::Kernel& kernel, const Target& target) const = 0;
  /// Nothing where this generator, machine or kernel has no open code.
  virtual std::optional<KernelOutline> outline(const loop::Kernel&, const Target&) const {
    return std::nullopt;
  }
  /// The kernel's code with number i of its outline as the absolute symbol `names[i]`
  /// (number_symbol), -1 as it is.
  virtual Result<KernelCode> generate_open(const loop::Kernel& kernel, const Target& target,
                                           std::span<const std::int32_t> names) const {
    (void)names;
    return generate(kernel, target);
  }
  /// "LLVM 19.1.7": part of the cache key.
  virtual std::string version() const = 0;
};

/// Exported by the shared object.
using CodeGeneratorEntry = const CodeGenerator* (*)();
inline constexpr const char* code_generator_symbol = "rlx_code_generator";

}  // namespace rlx::codegen
