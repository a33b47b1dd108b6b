// The facts of targets.
#include "codegen/machine.hpp"

#include <string_view>

namespace rlx::codegen {

Machine machine_of(const Target& target) {
  Machine machine;
  machine.isa = target.isa;
#if defined(__x86_64__)
  machine.pair_products = true;
#endif
  if (target.isa == Isa::portable) return machine;
  machine.fma = machine.f16c = true;
  if (target.isa == Isa::neon) {
    machine.registers = 32;
    return machine;
  }
  machine.vector_bytes = 32;
  if (target.isa == Isa::avx2) return machine;
  machine.vector_bytes = 64;
  machine.registers = 32;
  machine.masks = true;
  const std::string_view features = target.features;
  machine.vnni = features.find("+avx512vnni") != std::string_view::npos;
  machine.bf16_dot = features.find("+avx512bf16") != std::string_view::npos;
  return machine;
}

}  // namespace rlx::codegen
