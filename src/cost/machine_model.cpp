// Presets: what a family of processors does, for machines that were never calibrated.
#include "cost/machine_model.hpp"

#include <fmt/format.h>

namespace rlx::cost {
namespace {

using codegen::CpuFacts;
using codegen::Isa;

/// Cycles of an op on a register of f32, where a cycle does two simple ones.
double cycles_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::constant:
    case ScalarOp::load:
    case ScalarOp::accumulator:
    case ScalarOp::reduce: return 0;
    case ScalarOp::domain_index: return 1;
    case ScalarOp::div:
    case ScalarOp::reciprocal: return 9;
    case ScalarOp::sqrt: return 12;
    case ScalarOp::rsqrt: return 20;
    case ScalarOp::exp:
    case ScalarOp::exp2: return 8;
    case ScalarOp::expm1:
    case ScalarOp::log:
    case ScalarOp::log1p:
    case ScalarOp::log2:
    case ScalarOp::sin:
    case ScalarOp::cos: return 16;
    case ScalarOp::erf:
    case ScalarOp::tanh:
    case ScalarOp::tan:
    case ScalarOp::asin:
    case ScalarOp::acos:
    case ScalarOp::atan:
    case ScalarOp::sinh:
    case ScalarOp::cosh:
    case ScalarOp::asinh:
    case ScalarOp::acosh:
    case ScalarOp::atanh: return 20;
    case ScalarOp::pow:
    case ScalarOp::atan2: return 60;
    case ScalarOp::rem:
    case ScalarOp::mod: return 60;
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::round:
    case ScalarOp::trunc:
    case ScalarOp::cast: return 1;
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
  model.read = {400, 90, 45, 20};
  model.write = {250, 60, 30, 14};
  model.memory_all = 30;
  model.l3_all = 80;
  if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family >= 26) {
    name = "AMD Zen 5";
    width = 1;
    model.cycle = 0.232;
    model.cache_bytes = {48 << 10, 1 << 20, 24 << 20};
    model.read = {500, 120, 60, 28};
    model.write = {270, 90, 45, 20};
    model.memory_all = 42;
  } else if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 25) {
    name = "AMD Zen 4";
    width = wide ? 2 : 1;
    model.cycle = 0.27;
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
  constexpr std::string_view isas[] = {"portable", "avx2", "avx512"};
  model.family = fmt::format("{}, {}", name, isas[static_cast<int>(target.isa)]);
  return model;
}

}  // namespace rlx::cost
