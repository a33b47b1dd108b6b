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
  const auto has = [&](std::string_view name) {
    return features.find(name) != std::string_view::npos;
  };
  machine.vnni = has("+avx512vnni");
  machine.bf16_dot = has("+avx512bf16");
  machine.bf16_tiles = machine.bf16_dot && has("+amx-bf16");
  machine.byte_tiles = machine.vnni && has("+amx-int8");
  machine.large_l2 = has("+avx512fp16");
  return machine;
}

}  // namespace rlx::codegen
