// What code to make for the machine we run on: its instruction set, LLVM's name of its CPU, and the
// features that may be used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/code.hpp"
#include "rlx/result.hpp"

namespace rlx::codegen {

/// Features that decide what code may be made. Each is set only where the processor and the
/// operating system both have it.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, bmi2 = false, lzcnt = false, movbe = false;
  bool avx512f = false, avx512bw = false, avx512cd = false, avx512dq = false, avx512vl = false;
  bool avx512vnni = false, avx512bf16 = false, avx512fp16 = false;
  bool avx512vbmi = false, avx512vbmi2 = false, avx512ifma = false, avx512bitalg = false;
  bool avx512vpopcntdq = false, gfni = false, vaes = false, vpclmulqdq = false;
  bool avxvnni = false, avx512vp2intersect = false;
  bool amx_bf16 = false, amx_int8 = false;  ///< with tiles that the system lets this process use
  bool neon = false;
};

/// A processor as its own identification describes it.
struct CpuFacts {
  enum class Vendor : std::uint8_t { other, amd, intel };
  Vendor vendor = Vendor::other;
  std::uint32_t family = 0, model = 0;  ///< with the extended parts added
  CpuFeatures features;
};

/// Asks the processor. Every AArch64 has NEON; on architectures beside x86-64 nothing else is set.
CpuFacts host_cpu();

/// "avx512", "avx2", "neon", "portable".
std::string_view name_of(Isa isa);

/// The widest instruction set that these facts allow.
Isa widest_isa(const CpuFacts& cpu);

/// The target for a processor; `forced` is the text of RLX_ISA, nothing or empty for the widest and
/// its tiles (AMX), which "avx512" leaves out.
/// Errors: usage for an unknown text, not_available where the processor lacks the instruction set.
Result<Target> target_for(const CpuFacts& cpu, std::optional<std::string_view> forced);

/// The target for this machine, with RLX_ISA honoured.
Result<Target> host_target();

}  // namespace rlx::codegen
