// Presets: what a family of processors does, for machines that were never calibrated.
#include "cost/machine_model.hpp"

#include <fmt/format.h>

#include "cost/fitted_overlaps.hpp"

namespace rlx::cost {
namespace {

using codegen::CpuFacts;
using codegen::Isa;

/// Cycles of an op on a register of f32: where a cycle does two simple ones, measured on Zen 5;
/// where units of half a register's width take it in two steps, measured on Zen 4 (series wait for
/// each other's results, too, and lose less); without the masks, scales and exponents that AVX-512
/// has instructions for, measured on Zen 2, Zen 3 and Zen 4; and on Intel's cores that have AMX.
/// Series of `plain` and `plain_zen4`, and tanh but for that of Zen 3, are told to have fallen as
/// Zen 3's did when their code was made anew (docs/adr/0084).
struct OpCycles {
  ScalarOp op;
  double whole, halves, plain, plain_zen3, plain_zen4, rapids;
};
constexpr OpCycles op_cycles[] = {
    {ScalarOp::floor, 0.5, 1, 0.5, 0.5, 0.5, 1.2},
    {ScalarOp::ceil, 0.5, 1, 0.5, 0.5, 0.5, 1.2},
    {ScalarOp::round, 0.5, 1, 0.5, 0.5, 0.5, 1.2},
    {ScalarOp::trunc, 0.5, 1, 0.5, 0.5, 0.5, 1.2},
    {ScalarOp::sign, 0.62, 1, 0.5, 0.5, 0.5, 1.5},
    {ScalarOp::is_inf, 0.5, 1, 0.5, 0.5, 0.5, 1},
    {ScalarOp::domain_index, 1, 2, 1, 1, 1, 1},
    {ScalarOp::cast, 1.38, 2, 1.3, 1.4, 1.4, 2},
    {ScalarOp::div, 1.5, 4, 3.4, 1.8, 2, 8.7},
    {ScalarOp::reciprocal, 1.5, 4, 3.4, 1.8, 2, 8.7},
    {ScalarOp::sqrt, 3.5, 8, 5.4, 3.7, 4, 11.6},
    {ScalarOp::rsqrt, 6.9, 14, 9, 7, 7, 22},
    {ScalarOp::min, 0.65, 1.25, 0.75, 0.9, 0.5, 1.6},
    {ScalarOp::max, 0.65, 1.25, 0.75, 1, 0.5, 1.6},
    {ScalarOp::exp2, 4.7, 7.9, 9.4, 7.4, 6.7, 5.8},
    {ScalarOp::exp, 5.2, 9.3, 10.4, 7.8, 7, 7.2},
    {ScalarOp::expm1, 9.2, 15, 13.8, 10.5, 9.2, 14},
    {ScalarOp::sin, 15.7, 20, 12.7, 14.2, 11.2, 15.6},
    {ScalarOp::tanh, 9.5, 17.5, 11.5, 9.1, 8.3, 14.1},
    {ScalarOp::log, 15.1, 24, 18.8, 15.5, 13.3, 19.2},
    {ScalarOp::cos, 14, 20, 12.6, 13.6, 10.9, 14},
    {ScalarOp::erf, 15.5, 26, 19.8, 16.6, 16.2, 20},
    {ScalarOp::rem, 17.3, 24.5, 31, 41, 33, 20.5},
    {ScalarOp::log1p, 19.5, 29, 25.3, 21.4, 18.9, 26},
    {ScalarOp::mod, 24.3, 33.5, 27.3, 37, 25.7, 24.5},
    {ScalarOp::tan, 62, 61, 53.1, 40.3, 34.1, 80},
    {ScalarOp::log2, 52, 69, 58.9, 50, 36.5, 65},
    {ScalarOp::atan, 56, 79, 73.3, 60.5, 53.4, 64},
    {ScalarOp::atan2, 61.5, 86, 103, 76.5, 69.5, 71},
    {ScalarOp::atanh, 72.7, 103, 94.7, 74, 69.7, 111},
    {ScalarOp::asin, 80, 105, 114, 85.6, 81.7, 103},
    {ScalarOp::acos, 79.5, 105, 109, 82.7, 80.1, 102},
    {ScalarOp::sinh, 73, 102, 90.4, 67, 65.3, 90},
    {ScalarOp::cosh, 62.5, 89, 90.1, 68.5, 65.7, 74},
    {ScalarOp::acosh, 131, 193, 148, 131, 122, 165},
    {ScalarOp::asinh, 147, 216, 159, 144, 135, 199},
    {ScalarOp::pow, 190, 226, 204, 178, 161, 140},
};

bool is_leaf(ScalarOp op) {
  return op == ScalarOp::constant || op == ScalarOp::load || op == ScalarOp::accumulator ||
         op == ScalarOp::reduce;
}

/// `steps`: in which a register goes through the units, 1 to 2. `column`: that of this core;
/// null: between those of whole registers and of halves.
void set_ops(MachineModel& model, double steps, double OpCycles::* column) {
  for (std::size_t i = 0; i < scalar_op_count; ++i)
    model.op_ns[i] = is_leaf(static_cast<ScalarOp>(i)) ? 0 : 0.5 * steps * model.cycle;
  for (const OpCycles& own : op_cycles) {
    const double cycles =
        column != nullptr ? own.*column : own.whole + (own.halves - own.whole) * (steps - 1);
    model.op_ns[static_cast<std::size_t>(own.op)] = cycles * model.cycle;
  }
}

/// Families 23 and 25 count on: Zen 2 begins at a model, Zen 3 and Zen 4 share the family in turns.
bool is_zen2(const CpuFacts& cpu) {
  return cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 23 && cpu.model >= 0x30;
}
bool is_zen3(const CpuFacts& cpu) {
  const bool model = cpu.model <= 0x0f || (cpu.model >= 0x20 && cpu.model <= 0x5f);
  return cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 25 && model;
}

/// Everything of Zen 2 but its units and ops.
void set_zen2(MachineModel& model) {
  model.cycle = 0.298;
  // Neighbours use L3, too: of 16 MiB, 8 stay (12 in a quiet minute).
  model.cache_bytes = {32 << 10, 512 << 10, 8 << 20};
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
  model.run = 30;
  model.team = 200;
}

/// Everything of Zen 3 but its units and ops: measured at 3.2 GHz beside neighbours.
void set_zen3(MachineModel& model) {
  model.ghz = 3.2;
  model.cycle = 0.3175;
  model.cache_bytes = {32 << 10, 512 << 10, 16 << 20};
  model.read = {146, 102, 80, 22};
  model.write = {102, 91, 74, 16};
  model.memory_all = 41;
  model.l3_all = 157;
  model.kernel = 0.5;
  model.item = 0.5;
  model.loop = 0.1;
  model.row_block = 6.3;
  model.tap = 7.8;
  model.join = 2;
  model.recurrent_step = 25.6;
  model.run = 35.5;
  model.narrow_ns = 0.9;
  model.gather_lane_ns = 0.18;
  model.code_line = {0, 0.36, 0.52, 1.75};
  model.first_bytes = {0, 3, 14, 240};
  // Cores near each other take 44 and 190 ns, cores far apart 170 and 490; a neighbour on the same
  // core takes more of both.
  model.barrier = 90;
  model.team = 370;
  model.forgotten = 8.1e6;
  model.other_core = {45, 36};
  model.overlap = zen3_avx2;
}

/// Everything of Zen 4 but its units and ops. Hosts that hide AVX-512 ran at 2.84 GHz, others
/// at 3.68.
void set_zen4(MachineModel& model, const CpuFacts& cpu) {
  // Means: 33 and 154 where the host has put the cores near each other, 195 and 570 where it has
  // not, 84 times in some 470 looks.
  model.barrier = 65;
  model.team = 235;
  model.forgotten = 4e6;
  if (model.machine.isa == Isa::avx512) {
    model.ghz = 3.68;
    model.cycle = 0.272;
    // 32 bytes a cycle either way between L1 and L2.
    model.read = {210, 120, 100, 29};
    model.write = {118, 120, 98, 27};
    model.kernel = 3.8;
    model.loop = 0.2;
    model.row_block = 2.6;
    model.tap = 5.93;
    model.join = 0.46;
    model.recurrent_step = 9.4;
    model.run = 19.6;
    model.memory_all = 45;
    model.l3_all = 195;
    model.forgotten = 11e6;
    model.gather_lane_ns = 0.36;
    model.narrow_ns = 1.05;
    model.code_line = {0, 0.17, 0.52, 1.19};
    model.first_bytes = {0, 2, 18.5, 290};
    model.overlap = zen4_avx512;
    return;
  }
  const double slower = cpu.features.avx512f ? 0.272 / 0.352 : 1;
  model.ghz = 2.84 / slower;
  model.cycle = 0.352 * slower;
  model.read = {132 / slower, 91 / slower, 78 / slower, 34};
  model.write = {92 / slower, 88 / slower, 78 / slower, 30};
  model.kernel = 0.5 * slower;
  model.item = 0.9 * slower;
  model.loop = 0.1 * slower;
  model.row_block = 6.1 * slower;
  model.tap = 4.8 * slower;
  model.join = 1.1 * slower;
  model.recurrent_step = 21 * slower;
  model.run = 31 * slower;
  model.memory_all = 45;
  model.l3_all = 155 / slower;
  model.gather_lane_ns = 0.19 * slower;
  model.narrow_ns = 0.97 * slower;
  model.code_line = {0, 0.2, 0.52, 1.3};
  model.first_bytes = {0, 4, 26, 150};
  model.team = 690;
  model.other_core = {24, 15};
  model.overlap = zen4_avx2;
}

/// Everything of Zen 5 but its units and ops.
void set_zen5(MachineModel& model) {
  model.ghz = 4.2;
  model.cycle = 0.2365;
  // Neighbours use L3, too: half of it is what stays.
  model.cache_bytes = {48 << 10, 1 << 20, 16 << 20};
  model.read = {495, 267, 131, 54};
  model.write = {273, 267, 124, 36.5};
  model.memory_all = 65;
  model.l3_all = 260;
  model.kernel = 3;
  model.item = 1.08;
  model.loop = 0.0845;
  model.row_block = 4.32;
  model.tap = 2.24;
  model.join = 0.505;
  model.recurrent_step = 15.6;
  model.run = 11;
  model.narrow_ns = 0.575;
  model.gather_lane_ns = 0.19;
  model.barrier = 40;
  model.team = 202;
  model.other_core = {12.4, 20};
  model.code_line = {0, 0.135, 1.42, 10.9};
  model.first_bytes = {0, 0, 4, 109};
  if (model.machine.isa == Isa::avx512) model.overlap = zen5_avx512;
}

/// Everything of cores with AMX but their units and ops. L3 is shared by a host's machines, and
/// each core reads it no faster than other families' memory.
void set_rapids(MachineModel& model) {
  // Registers of 64 bytes run at a lower clock.
  model.ghz = model.machine.isa == Isa::avx512 ? 3.15 : 3.5;
  model.cycle = 0.29;
  model.cache_bytes = {48 << 10, 2 << 20, 64 << 20};
  model.read = {260, 180, 30, 16};
  model.write = {248, 59, 30, 10.5};
  model.memory_all = 31;
  model.l3_all = 61;
  model.kernel = 3.64;
  model.head_start = 7;
  model.run = 10;
  model.item = 0.348;
  model.loop = 0.245;
  model.row_block = 1.43;
  model.tap = 3.99;
  model.join = 0.751;
  model.recurrent_step = 39.9;
  model.narrow_ns = 1.05;
  model.gather_lane_ns = 0.1;
  model.first_bytes = {0, 3, 24.1, 202};
  model.code_line = {0, 0.309, 0.359, 0.993};
  model.barrier = 140;
  model.team = 528;
  model.member_start = 228;
  model.forgotten = 10.1e6;
  // Reading each other's lines and nothing else two cores took 7 ns a line from L1 and 2.6 from L2.
  model.other_core = {20.1, 24.3};
  if (model.machine.isa == Isa::avx512) model.overlap = rapids_avx512;
}

/// Of families that were not measured: as on the measured core that has as many registers.
Overlap overlap_like(const codegen::Machine& machine) {
  if (machine.registers <= 16) return zen2_avx2;
  return machine.masks ? Overlap() : Overlap{.share_of_exp = 0.9};
}

}  // namespace

MachineModel preset_for(const CpuFacts& cpu, const codegen::Target& target) {
  MachineModel model;
  model.machine = codegen::machine_of(target);
  model.overlap = overlap_like(model.machine);
  const bool has_masks = model.machine.masks || target.isa == Isa::neon;
  double OpCycles::* column = has_masks ? nullptr : &OpCycles::plain;
  const bool wide = target.isa == Isa::avx512;
  std::string name = "x86-64";
  double bf16_share = 1;          // of the rate of multiply-adds, at which pairs are multiplied
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
    set_zen5(model);
  } else if (is_zen2(cpu)) {
    name = "AMD Zen 2";
    set_zen2(model);
  } else if (is_zen3(cpu)) {
    name = "AMD Zen 3";
    if (!has_masks) column = &OpCycles::plain_zen3;
    set_zen3(model);
  } else if (cpu.vendor == CpuFacts::Vendor::amd && cpu.family == 25) {
    name = "AMD Zen 4";
    width = wide ? 2 : 1;
    if (!has_masks) column = &OpCycles::plain_zen4;
    set_zen4(model, cpu);
  } else if (cpu.features.neon) {
    name = "AArch64";
    model.cycle = 0.35;
  } else if (cpu.vendor == CpuFacts::Vendor::intel) {
    name = "Intel";
    width = 1;
    model.cycle = wide ? 0.36 : 0.3;
    model.cache_bytes = {48 << 10, 2 << 20, 24 << 20};
    if (cpu.features.avx512fp16) {
      name = "Intel Sapphire Rapids";
      if (wide) column = &OpCycles::rapids;
      bf16_share = 0.25;
      set_rapids(model);
    }
  }
  model.fma_per_cycle = 2 / width;
  model.bf16_per_cycle = bf16_share * model.fma_per_cycle;
  model.loads_per_cycle = 2 / width;
  model.stores_per_cycle = 1 / width;
  if (target.isa == Isa::portable) model.fma_per_cycle = 1;  // two instructions
  set_ops(model, width, column);
  model.family = fmt::format("{}, {}", name, codegen::name_of(target.isa));
  return model;
}

}  // namespace rlx::cost
