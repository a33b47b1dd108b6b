// Presets of processors, whatever the machine of the test has.
#pragma once

#include "codegen/host_target.hpp"
#include "cost/machine_model.hpp"

namespace rlx::cost {

inline const codegen::Target zen5_target{codegen::Isa::avx512, "", ""};
inline const codegen::Target zen2_target{codegen::Isa::avx2, "", ""};

inline MachineModel model_of_zen5() {
  codegen::CpuFacts facts;
  facts.vendor = codegen::CpuFacts::Vendor::amd;
  facts.family = 26;
  return preset_for(facts, zen5_target);
}

inline MachineModel model_of_zen4() {
  return preset_for({codegen::CpuFacts::Vendor::amd, 25, 0x11, {}}, zen5_target);
}

/// On a host that hides AVX-512.
inline MachineModel model_of_narrow_zen4() {
  return preset_for({codegen::CpuFacts::Vendor::amd, 25, 0x11, {}}, zen2_target);
}

inline MachineModel model_of_zen3() {
  return preset_for({codegen::CpuFacts::Vendor::amd, 25, 0x01, {}}, zen2_target);
}

inline MachineModel model_of_zen2() {
  return preset_for({codegen::CpuFacts::Vendor::amd, 23, 0x31, {}}, zen2_target);
}

/// With tiles for bf16 and bytes, or with vectors alone.
inline MachineModel model_of_rapids(bool tiles) {
  codegen::CpuFacts facts{codegen::CpuFacts::Vendor::intel, 6, 0x8f, {}};
  facts.features.avx512fp16 = true;
  const std::string vectors = "+avx512vnni,+avx512bf16,+avx512fp16";
  return preset_for(
      facts, {codegen::Isa::avx512, "", vectors + (tiles ? ",+amx-tile,+amx-bf16,+amx-int8" : "")});
}

}  // namespace rlx::cost
