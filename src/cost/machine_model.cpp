// Presets: what a family of processors does, for machines that were never calibrated.
#include "cost/machine_model.hpp"

#include <fmt/format.h>

namespace rlx::cost {
namespace {

using codegen::CpuFacts;
using codegen::Isa;

/// Cycles of an op on a register of f32, where a cycle does two simple ones; measured on Zen 5.
double cycles_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::accumulator:
    case ScalarOp::reduce: return 0;
    case ScalarOp::domain_index: return 1;
    case ScalarOp::cast: return 1.4;
    case ScalarOp::div:
    case ScalarOp::reciprocal: return 2;
    case ScalarOp::sqrt: return 3.6;
    case ScalarOp::rsqrt: return 7;
    case ScalarOp::exp2: return 5.5;
    case ScalarOp::exp: return 8;
    case ScalarOp::expm1: return 11;
    case ScalarOp::sin: return 13;
    case ScalarOp::tanh: return 15;
    case ScalarOp::log:
    case ScalarOp::cos: return 16;
    case ScalarOp::erf: return 17;
    case ScalarOp::rem: return 18;
    case ScalarOp::log1p: return 20;
    case ScalarOp::mod: return 24;
    case ScalarOp::tan: return 31;
    case ScalarOp::log2: return 54;
    case ScalarOp::atan: return 56;
    case ScalarOp::atan2: return 63;
    case ScalarOp::atanh: return 73;
    case ScalarOp::asin:
    case ScalarOp::acos:
    case ScalarOp::sinh:
    case ScalarOp::cosh: return 79;
    case ScalarOp::acosh: return 133;
    case ScalarOp::asinh: return 150;
    case ScalarOp::pow: return 190;
    default: return 0.5;
  }
}

void set_ops(MachineModel& model, double slower) {
  for (std::size_t i = 0; i < scalar_op_count; ++i)
    model.op_ns[i] = cycles_of(static_cast<ScalarOp>(i)) * model.cycle * slower;
}

}  // namespace

MachineModel preset_for(const CpuFacts& cpu, const codegen::Target& target) {
  MachineModel model;
  model.machine = codegen::machine_of(target);
  const bool wide = target.isa == Isa::avx512;
  std::string name = "x86-64";
  double width = wide ? 1.5 : 1;  // a register of 64 bytes goes through units of 32 in two steps
  model.cycle = 0.29;
  model.cache_bytes = {32 << 10, 1 << 20, 16 << 20};
  model.read = {400, 120, 45, 20};
  model.write = {250, 100, 40, 14};
  model.memory_all = 30;
  model.l3_all = 80;
  model.kernel = 2;
  model.item = 1;
  model.loop = 0.3;
  model.join = 1;
  model.row_block = 3.5;
  model.tap = 6;
  model.recurrent_step = 23;
  model.gather_lane_ns = 0.2;
  model.code_line = {0, 0.1, 3.5, 6};
  model.first_bytes = {0, 0, 4, 60};
  if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family >= 26) {
    name = "AMD Zen 5";
    width = 1;
    model.cycle = 0.255;
    // Neighbours use L3, too: half of it is what stays.
    model.cache_bytes = {48 << 10, 1 << 20, 16 << 20};
    model.read = {440, 225, 105, 36};
    model.write = {250, 225, 105, 30};
    model.kernel = 1.6;
    model.memory_all = 55;
    model.l3_all = 200;
  } else if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 25) {
    name = "AMD Zen 4";
    width = wide ? 2 : 1;
    model.cycle = 0.27;
  } else if (cpu.features.neon) {
    name = "AArch64";
    model.cycle = 0.35;
  } else if (cpu.vendor == CpuFacts::Vendor::intel) {
    name = "Intel";
    width = 1;
    model.cycle = wide ? 0.36 : 0.3;
    model.cache_bytes = {48 << 10, 2 << 20, 24 << 20};
    model.stores_per_cycle = 1;
  }
  model.fma_per_cycle = 2 / width;
  model.loads_per_cycle = 2 / width;
  model.stores_per_cycle = 1 / width;
  if (target.isa == Isa::portable) model.fma_per_cycle = 1;  // two instructions
  set_ops(model, width);
  model.family = fmt::format("{}, {}", name, codegen::name_of(target.isa));
  return model;
}

}  // namespace rlx::cost
