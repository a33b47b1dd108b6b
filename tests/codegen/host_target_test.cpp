// The target for known processors, and RLX_ISA.
#include "codegen/host_target.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace rlx::codegen {
namespace {

CpuFacts haswell() {
  CpuFacts cpu{.vendor = CpuFacts::Vendor::intel, .family = 6, .model = 0x3c, .features = {}};
  cpu.features.avx2 = cpu.features.fma = cpu.features.f16c = true;
  cpu.features.bmi2 = cpu.features.lzcnt = cpu.features.movbe = true;
  return cpu;
}

CpuFacts skylake_server() {
  CpuFacts cpu = haswell();
  cpu.model = 0x55;
  CpuFeatures& f = cpu.features;
  f.avx512f = f.avx512bw = f.avx512cd = f.avx512dq = f.avx512vl = true;
  return cpu;
}

CpuFacts zen4() {
  CpuFacts cpu = skylake_server();
  cpu.vendor = CpuFacts::Vendor::amd;
  cpu.family = 0x19;
  cpu.model = 0x11;
  CpuFeatures& f = cpu.features;
  f.avx512vnni = f.avx512bf16 = f.avx512vbmi = f.avx512vbmi2 = f.avx512ifma = true;
  f.avx512bitalg = f.avx512vpopcntdq = f.gfni = f.vaes = f.vpclmulqdq = true;
  return cpu;
}

CpuFacts zen5() {
  CpuFacts cpu = zen4();
  cpu.family = 0x1a;
  cpu.features.avxvnni = cpu.features.avx512vp2intersect = true;
  return cpu;
}

CpuFacts sapphire_rapids() {
  CpuFacts cpu = zen5();
  cpu.vendor = CpuFacts::Vendor::intel;
  cpu.family = 6;
  cpu.model = 0x8f;
  cpu.features.avx512fp16 = true;
  return cpu;
}

std::string cpu_of(const CpuFacts& cpu, const char* forced = "") {
  return target_for(cpu, forced).value().cpu;
}

TEST(HostTarget, names_known_processors) {
  EXPECT_EQ(target_for(zen4(), std::nullopt).value(),
            (Target{Isa::avx512, "znver4", "+avx512vnni,+avx512bf16,+avx512vbmi,+avx512vbmi2"}));
  EXPECT_EQ(cpu_of(zen5()), "znver5");
  EXPECT_EQ(cpu_of(sapphire_rapids()), "sapphirerapids");
  EXPECT_EQ(cpu_of(skylake_server()), "skylake-avx512");
  EXPECT_EQ(cpu_of(haswell()), "haswell");
  EXPECT_EQ(target_for(haswell(), std::nullopt).value().isa, Isa::avx2);
  EXPECT_EQ(target_for(CpuFacts{}, std::nullopt).value(), Target{});
}

TEST(HostTarget, tiles_are_named_unless_avx512_is_forced) {
  CpuFacts cpu = sapphire_rapids();
  const std::string vectors = target_for(cpu, std::nullopt).value().features;
  EXPECT_EQ(vectors.find("amx"), std::string::npos);
  cpu.features.amx_bf16 = true;
  EXPECT_EQ(target_for(cpu, "").value().features, vectors + ",+amx-tile,+amx-bf16");
  cpu.features.amx_int8 = true;
  EXPECT_EQ(target_for(cpu, std::nullopt).value().features,
            vectors + ",+amx-tile,+amx-bf16,+amx-int8");
  EXPECT_EQ(target_for(cpu, "avx512").value().features, vectors);
  EXPECT_EQ(target_for(cpu, "avx2").value().features, "+avxvnni");
}

TEST(HostTarget, a_model_that_hypervisors_give_to_later_processors) {
  CpuFacts cpu = sapphire_rapids();
  cpu.model = 0xa7;
  EXPECT_EQ(cpu_of(cpu), "sapphirerapids");
  cpu.features.avx512fp16 = cpu.features.avx512bf16 = false;
  EXPECT_EQ(cpu_of(cpu), "rocketlake");
}

TEST(HostTarget, a_hidden_feature_gives_no_name_that_implies_it) {
  CpuFacts cpu = zen4();
  cpu.features.avx512bf16 = false;
  EXPECT_EQ(cpu_of(cpu), "");
  EXPECT_EQ(target_for(cpu, std::nullopt).value().isa, Isa::avx512);
  cpu.features.avx512vl = false;
  EXPECT_EQ(target_for(cpu, std::nullopt).value().isa, Isa::avx2);
  cpu.features.fma = false;
  EXPECT_EQ(target_for(cpu, std::nullopt).value().isa, Isa::portable);
  cpu = zen5();
  cpu.features.avx512vp2intersect = false;
  EXPECT_EQ(cpu_of(cpu), "znver4");
}

TEST(HostTarget, a_narrower_instruction_set_can_be_forced) {
  EXPECT_EQ(target_for(zen4(), "avx2").value(), (Target{Isa::avx2, "znver3", ""}));
  EXPECT_EQ(target_for(zen5(), "avx2").value().features, "+avxvnni");
  EXPECT_EQ(target_for(zen4(), "portable").value(), Target{});
  EXPECT_EQ(target_for(zen4(), "avx512").value().isa, Isa::avx512);
}

TEST(HostTarget, what_cannot_be_forced_is_an_error) {
  auto target = target_for(haswell(), "avx512");
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.error().kind, ErrorKind::not_available);
  EXPECT_EQ(target.error().message,
            "RLX_ISA (avx512) is not available: this processor has avx2 at most.");
  target = target_for(zen4(), "avx1024");
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.error().kind, ErrorKind::usage);
  EXPECT_EQ(target.error().message,
            "RLX_ISA (avx1024) is not one of avx512, avx2, neon and portable.");
}

TEST(HostTarget, every_aarch64_has_neon_and_none_of_the_others) {
  CpuFacts cpu;
  cpu.features.neon = true;
  EXPECT_EQ(target_for(cpu, std::nullopt).value(), (Target{Isa::neon, "generic", ""}));
  EXPECT_EQ(target_for(cpu, "portable").value(), (Target{Isa::portable, "generic", ""}));
  const auto wider = target_for(cpu, "avx2");
  ASSERT_FALSE(wider.ok());
  EXPECT_EQ(wider.error().message,
            "RLX_ISA (avx2) is not available: this processor has neon at most.");
  const auto other = target_for(zen4(), "neon");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().kind, ErrorKind::not_available);
}

TEST(HostTarget, the_host_agrees_with_the_compiler) {
  const CpuFacts cpu = host_cpu();
#if defined(__x86_64__)
  EXPECT_EQ(cpu.features.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.features.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(cpu.features.avx512vnni, __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(cpu.features.gfni, __builtin_cpu_supports("gfni") != 0);
#elif defined(__aarch64__)
  EXPECT_TRUE(cpu.features.neon);
#endif
  ::setenv("RLX_ISA", "portable", 1);
  EXPECT_EQ(host_target().value().isa, Isa::portable);
  ::unsetenv("RLX_ISA");
  EXPECT_EQ(host_target().value().isa, widest_isa(cpu));
}

}  // namespace
}  // namespace rlx::codegen
