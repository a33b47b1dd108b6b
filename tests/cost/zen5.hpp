// The preset of Zen 5 with AVX-512, whatever the machine of the test has.
#pragma once

#include "codegen/host_target.hpp"
#include "cost/machine_model.hpp"

namespace rlx::cost {

inline const codegen::Target zen5_target{codegen::Isa::avx512, "", ""};

inline MachineModel model_of_zen5() {
  codegen::CpuFacts facts;
  facts.vendor = codegen::CpuFacts::Vendor::amd;
  facts.family = 26;
  return preset_for(facts, zen5_target);
}

}  // namespace rlx::cost
