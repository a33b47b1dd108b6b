// Presets: what a family of processors does, for machines that were never calibrated.
#include "cost/machine_model.hpp"

#include <fmt/format.h>

namespace rlx::cost {
namespace {

using codegen::CpuFacts;
using codegen::Isa;

/// Cycles of an op on a register of f32: where a cycle does two simple ones, measured on Zen 5;
/// where units of half a register's width take it in two steps, measured on Zen 4 (series wait for
/// each other's results, too, and lose less); and without the masks, scales and exponents that
/// AVX-512 has instructions for, measured on Zen 2.
struct OpCycles {
  ScalarOp op;
  double whole, halves, plain;
};
constexpr OpCycles op_cycles[] = {
    {ScalarOp::domain_index, 1, 2, 1}, {ScalarOp::cast, 1.4, 2, 1.3},
    {ScalarOp::div, 2, 4, 3.4},        {ScalarOp::reciprocal, 2, 4, 3.4},
    {ScalarOp::sqrt, 3.6, 8, 5.4},     {ScalarOp::rsqrt, 7, 14, 9},
    {ScalarOp::min, 0.5, 1.25, 0.75},  {ScalarOp::max, 0.5, 1.25, 0.75},
    {ScalarOp::exp2, 5.5, 7.9, 11.5},  {ScalarOp::exp, 8, 10.6, 14.4},
    {ScalarOp::expm1, 11, 15, 17.2},   {ScalarOp::sin, 13, 25, 18.7},
    {ScalarOp::tanh, 15, 23, 25},      {ScalarOp::log, 16, 22, 24},
    {ScalarOp::cos, 16, 22, 19},       {ScalarOp::erf, 17, 26, 30},
    {ScalarOp::rem, 18, 24.5, 31},     {ScalarOp::log1p, 20, 29, 29.5},
    {ScalarOp::mod, 24, 33.5, 27.3},   {ScalarOp::tan, 31, 107, 58.6},
    {ScalarOp::log2, 54, 69, 75},      {ScalarOp::atan, 56, 79, 84.5},
    {ScalarOp::atan2, 63, 86, 103},    {ScalarOp::atanh, 73, 103, 110},
    {ScalarOp::asin, 79, 105, 120},    {ScalarOp::acos, 79, 105, 119},
    {ScalarOp::sinh, 79, 119, 115},    {ScalarOp::cosh, 79, 110, 109},
    {ScalarOp::acosh, 133, 193, 190},  {ScalarOp::asinh, 150, 216, 205},
    {ScalarOp::pow, 190, 226, 204},
};

bool is_leaf(ScalarOp op) {
  return op == ScalarOp::constant || op == ScalarOp::load || op == ScalarOp::accumulator ||
         op == ScalarOp::reduce;
}

/// `steps`: in which a register goes through the units, 1 to 2.
void set_ops(MachineModel& model, double steps) {
  const bool plain = !model.machine.masks && model.machine.isa != Isa::neon;
  for (std::size_t i = 0; i < scalar_op_count; ++i)
    model.op_ns[i] = is_leaf(static_cast<ScalarOp>(i)) ? 0 : 0.5 * steps * model.cycle;
  for (const OpCycles& own : op_cycles) {
    const double cycles = plain ? own.plain : own.whole + (own.halves - own.whole) * (steps - 1);
    model.op_ns[static_cast<std::size_t>(own.op)] = cycles * model.cycle;
  }
}

/// Families 23 and 25 count on: Zen 2 begins at a model, Zen 3 and Zen 4 share the family in turns.
bool is_zen_2_or_3(const CpuFacts& cpu) {
  if (cpu.vendor != CpuFacts::Vendor::amd) return false;
  const bool zen_3 = cpu.model <= 0x0f || (cpu.model >= 0x20 && cpu.model <= 0x5f);
  return (cpu.family == 23 && cpu.model >= 0x30) || (cpu.family == 25 && zen_3);
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
  } else if (is_zen_2_or_3(cpu)) {
    // Measured on Zen 2; Zen 3 has the same units, and L3 for twice as many cores.
    name = cpu.family == 23 ? "AMD Zen 2" : "AMD Zen 3";
    model.cycle = 0.298;
    // Neighbours use L3, too: of 16 MiB, 8 stay (12 in a quiet minute).
    model.cache_bytes = {32 << 10, 512 << 10, (cpu.family == 23 ? 8 : 16) << 20};
    model.read = {215, 145, 58, 18};
    model.write = {105, 106, 82, 20};
    model.memory_all = 30;
    model.l3_all = 149;
    model.kernel = 3;
    model.item = 1.5;
    model.loop = 0.36;
    model.row_block = 3;
    model.join = 1;
    model.recurrent_step = 30;
    model.narrow_ns = 1.17;
    model.gather_lane_ns = 0.16;
    model.first_bytes = {0, 0, 12, 90};
    model.code_line = {0, 0.12, 1.05, 2};
    model.run = 57;
    model.team = 200;
  } else if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 25) {
    name = "AMD Zen 4";
    width = wide ? 2 : 1;
    model.cycle = 0.272;
    // 32 bytes a cycle either way between L1 and L2.
    model.read = {210, 120, 100, 29};
    model.write = {118, 120, 98, 27};
    model.kernel = 2.4;
    model.loop = 0.2;
    model.memory_all = 55;
    model.l3_all = 195;
    model.gather_lane_ns = 0.28;
    model.narrow_ns = 1.05;
    model.code_line = {0, 0.2, 2, 3};
    model.first_bytes = {0, 4, 18, 150};
    model.forgotten = 4e6;
    // Means: 33 and 154 where the host has put the cores near each other, 195 and 570 where it has
    // not, 84 times in some 470 looks.
    model.barrier = 65;
    model.team = 235;
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
