// Detection of the processor and the choice of a target for it.
#include "codegen/host_target.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/error.hpp"

namespace rlx::codegen {
namespace {

#if defined(__x86_64__)
constexpr bool bit(std::uint32_t word, int index) { return (word >> index & 1) != 0; }

/// The register state that the operating system saves (XCR0).
std::uint64_t saved_state() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

CpuFacts::Vendor read_vendor(std::uint32_t b, std::uint32_t d, std::uint32_t c) {
  char text[12];
  std::memcpy(text, &b, 4);
  std::memcpy(text + 4, &d, 4);
  std::memcpy(text + 8, &c, 4);
  const std::string_view vendor(text, sizeof(text));
  if (vendor == "AuthenticAMD" || vendor == "HygonGenuine") return CpuFacts::Vendor::amd;
  return vendor == "GenuineIntel" ? CpuFacts::Vendor::intel : CpuFacts::Vendor::other;
}

void read_avx512(std::uint32_t b7, std::uint32_t c7, std::uint32_t d7, std::uint32_t a7_1,
                 CpuFeatures& features) {
  features.avx512f = bit(b7, 16);
  features.avx512dq = bit(b7, 17);
  features.avx512ifma = bit(b7, 21);
  features.avx512cd = bit(b7, 28);
  features.avx512bw = bit(b7, 30);
  features.avx512vl = bit(b7, 31);
  features.avx512vbmi = bit(c7, 1);
  features.avx512vbmi2 = bit(c7, 6);
  features.avx512vnni = bit(c7, 11);
  features.avx512bitalg = bit(c7, 12);
  features.avx512vpopcntdq = bit(c7, 14);
  features.avx512vp2intersect = bit(d7, 8);
  features.avx512fp16 = bit(d7, 23);
  features.avx512bf16 = bit(a7_1, 5);
}

/// Tiles are large: Linux keeps their state for processes that ask, and tells others by a signal.
bool may_use_tiles() {
  constexpr long ask = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, ask, tile_data) == 0;
}

void read_amx(std::uint64_t saved, std::uint32_t d7, CpuFeatures& features) {
  constexpr std::uint64_t tiles = 0x60000;
  if ((saved & tiles) != tiles || !bit(d7, 24) || !may_use_tiles()) return;
  features.amx_bf16 = bit(d7, 22);
  features.amx_int8 = bit(d7, 25);
}
#endif

bool has_avx2(const CpuFeatures& f) {
  return f.avx2 && f.fma && f.f16c && f.bmi2 && f.lzcnt && f.movbe;
}

bool has_avx512(const CpuFeatures& f) {
  return has_avx2(f) && f.avx512f && f.avx512bw && f.avx512cd && f.avx512dq && f.avx512vl;
}

constexpr std::array widest_first = {Isa::avx512, Isa::avx2, Isa::neon, Isa::portable};

bool has_isa(const CpuFeatures& features, Isa isa) {
  switch (isa) {
    case Isa::avx512: return has_avx512(features);
    case Isa::avx2: return has_avx2(features);
    case Isa::neon: return features.neon;
    default: return true;
  }
}

/// What LLVM assumes of "znver4" and "icelake-server"; a hypervisor may hide some of it.
bool has_icelake_level(const CpuFeatures& f) {
  return has_avx512(f) && f.avx512vnni && f.avx512vbmi && f.avx512vbmi2 && f.avx512ifma &&
         f.avx512bitalg && f.avx512vpopcntdq && f.gfni && f.vaes && f.vpclmulqdq;
}

std::string amd_avx512_name(const CpuFacts& cpu) {
  const CpuFeatures& f = cpu.features;
  if (!has_icelake_level(f) || !f.avx512bf16) return {};
  if (cpu.family >= 0x1a && f.avxvnni && f.avx512vp2intersect) return "znver5";
  return cpu.family >= 0x19 ? "znver4" : "";
}

std::string intel_avx512_name(const CpuFacts& cpu) {
  const CpuFeatures& f = cpu.features;
  if (cpu.family != 6) return {};
  const bool rapids = has_icelake_level(f) && f.avx512bf16 && f.avx512fp16 && f.avxvnni;
  switch (cpu.model) {
    case 0x8f:
    case 0xcf: return rapids ? "sapphirerapids" : "";
    case 0xad: return rapids ? "graniterapids" : "";
    case 0xae: return rapids ? "graniterapids-d" : "";
    case 0x6a:
    case 0x6c: return has_icelake_level(f) ? "icelake-server" : "";
    case 0x7d:
    case 0x7e: return has_icelake_level(f) ? "icelake-client" : "";
    case 0x8c:
    case 0x8d: return has_icelake_level(f) && f.avx512vp2intersect ? "tigerlake" : "";
    // Hypervisors give this number to later processors, too.
    case 0xa7: return rapids ? "sapphirerapids" : has_icelake_level(f) ? "rocketlake" : "";
    case 0x55: return f.avx512bf16 ? "cooperlake" : f.avx512vnni ? "cascadelake" : "skylake-avx512";
    default: return {};
  }
}

/// LLVM's name for the schedule and the features that it implies; empty where a generic one is
/// safer.
std::string cpu_name(const CpuFacts& cpu, Isa isa) {
  const bool amd = cpu.vendor == CpuFacts::Vendor::amd;
  const bool intel = cpu.vendor == CpuFacts::Vendor::intel;
  // Named, so that code of the portable class is never taken for that of an x86-64.
  if (cpu.features.neon) return "generic";
  if (isa == Isa::avx512) {
    return amd ? amd_avx512_name(cpu) : intel ? intel_avx512_name(cpu) : std::string();
  }
  if (isa == Isa::avx2) {
    if (intel) return "haswell";
    if (amd && cpu.family >= 0x19 && cpu.features.vaes && cpu.features.vpclmulqdq) return "znver3";
    if (amd && cpu.family == 0x17) return cpu.model >= 0x30 ? "znver2" : "znver1";
  }
  return {};
}

std::string feature_text(const CpuFeatures& f, Isa isa, bool tiles) {
  std::string text;
  const auto add = [&](bool present, std::string_view name) {
    if (!present) return;
    if (!text.empty()) text += ',';
    text += '+';
    text += name;
  };
  if (isa == Isa::avx512) {
    add(f.avx512vnni, "avx512vnni");
    add(f.avx512bf16, "avx512bf16");
    add(f.avx512fp16, "avx512fp16");
    add(f.avx512vbmi, "avx512vbmi");
    add(f.avx512vbmi2, "avx512vbmi2");
    add(tiles && (f.amx_bf16 || f.amx_int8), "amx-tile");
    add(tiles && f.amx_bf16, "amx-bf16");
    add(tiles && f.amx_int8, "amx-int8");
  } else if (isa == Isa::avx2) {
    add(f.avxvnni, "avxvnni");
  }
  return text;
}

CpuFacts read_cpu() {
  CpuFacts cpu;
#if defined(__x86_64__)
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return cpu;
  cpu.vendor = read_vendor(b, d, c);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return cpu;
  const std::uint32_t family = a >> 8 & 15, model = a >> 4 & 15;
  cpu.family = family == 15 ? family + (a >> 20 & 255) : family;
  cpu.model = family == 6 || family == 15 ? model + ((a >> 16 & 15) << 4) : model;
  CpuFeatures& features = cpu.features;
  features.movbe = bit(c, 22);
  const bool fma = bit(c, 12), f16c = bit(c, 29);
  const std::uint64_t saved = bit(c, 27) ? saved_state() : 0;
  const bool vectors_256 = bit(c, 28) && (saved & 0x06) == 0x06;
  const bool vectors_512 = vectors_256 && (saved & 0xe0) == 0xe0;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d) != 0) features.lzcnt = bit(c, 5);
  std::uint32_t a7_1 = 0, b7 = 0, c7 = 0, d7 = 0, unused_b = 0, unused_c = 0, unused_d = 0;
  if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0) return cpu;
  if (a >= 1) __get_cpuid_count(7, 1, &a7_1, &unused_b, &unused_c, &unused_d);
  features.bmi2 = bit(b7, 8);
  features.gfni = bit(c7, 8);
  if (!vectors_256) return cpu;
  features.avx2 = bit(b7, 5);
  features.fma = fma;
  features.f16c = f16c;
  features.vaes = bit(c7, 9);
  features.vpclmulqdq = bit(c7, 10);
  features.avxvnni = bit(a7_1, 4);
  if (vectors_512) read_avx512(b7, c7, d7, a7_1, features);
  if (vectors_512) read_amx(saved, d7, features);
#elif defined(__aarch64__)
  cpu.features.neon = true;
#endif
  return cpu;
}

}  // namespace

CpuFacts host_cpu() {
  // Virtual machines answer each question in microseconds.
  static const CpuFacts cpu = read_cpu();
  return cpu;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::neon: return "neon";
    default: return "portable";
  }
}

Isa widest_isa(const CpuFacts& cpu) {
  for (const Isa isa : widest_first) {
    if (has_isa(cpu.features, isa)) return isa;
  }
  return Isa::portable;
}

Result<Target> target_for(const CpuFacts& cpu, std::optional<std::string_view> forced) {
  Isa isa = widest_isa(cpu);
  const bool is_forced = forced && !forced->empty();
  if (is_forced) {
    const auto* wanted = std::find_if(widest_first.begin(), widest_first.end(),
                                      [&](Isa candidate) { return name_of(candidate) == *forced; });
    if (wanted == widest_first.end()) {
      return error(ErrorKind::usage, "RLX_ISA ({}) is not one of avx512, avx2, neon and portable.",
                   *forced);
    }
    if (!has_isa(cpu.features, *wanted)) {
      return not_available("RLX_ISA ({}) is not available: this processor has {} at most.", *forced,
                           name_of(isa));
    }
    isa = *wanted;
  }
  return Target{isa, cpu_name(cpu, isa), feature_text(cpu.features, isa, !is_forced)};
}

Result<Target> host_target() {
  const char* forced = std::getenv("RLX_ISA");
  return target_for(host_cpu(),
                    forced == nullptr ? std::nullopt : std::optional<std::string_view>(forced));
}

}  // namespace rlx::codegen
