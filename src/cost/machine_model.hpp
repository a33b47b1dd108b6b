// What a processor does in a nanosecond: the figures that predicted times are made of. A preset
// stands for a family of processors; `rlx calibrate` measures the machine's own.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "codegen/host_target.hpp"
#include "codegen/machine.hpp"
#include "cost/level.hpp"
#include "cost/overlap.hpp"
#include "graph/scalar.hpp"

namespace rlx::cost {

inline constexpr std::size_t scalar_op_count = static_cast<std::size_t>(ScalarOp::reduce) + 1;

/// All times in ns, bandwidths in bytes/ns (= GB/s), of one core unless said otherwise.
struct MachineModel {
  std::string family;       ///< "AMD Zen 5, avx512"
  bool calibrated = false;  ///< measured on this machine
  codegen::Machine machine;
  Overlap overlap;  ///< of the family, calibrated or not

  /// The clock (`clocks_now`) at which the figures hold; 0: they hold whatever it is.
  double ghz = 0;
  double cycle = 0.25;         ///< of sustained vector work
  double fma_per_cycle = 2;    ///< multiply-adds of whole registers
  double bf16_per_cycle = 2;   ///< the same of pairs of bf16
  double loads_per_cycle = 2;  ///< of whole registers
  double stores_per_cycle = 1;
  double fma_latency = 4;  ///< cycles from a sum to the next
  /// Time of one op on a register of f32 (by ScalarOp), and of f64 and integers in units of that.
  std::array<double, scalar_op_count> op_ns{};
  double wide_factor = 1.0;     ///< f64: a register holds half as many, and costs this much
  double narrow_ns = 0.5;       ///< f16 and bf16: conversion of a register, in or out
  double gather_lane_ns = 0.3;  ///< an element that lies alone

  std::array<std::int64_t, 3> cache_bytes{};  ///< of L1, L2, and this process's share of L3
  std::array<double, level_count> read{};     ///< a stream read from that level
  std::array<double, level_count> write{};    ///< a stream written to that level
  double memory_all = 0;                      ///< read from memory by all cores together
  double l3_all = 0;                          ///< the same of L3
  /// Reading what the other core has just written, from its L1 and from its L2.
  std::array<double, 2> other_core{20, 20};

  /// ns after which half of what was touched has gone from the caches, whatever its size: other
  /// machines of the host work on the same cores and L3. Never, where that was not measured.
  double forgotten = std::numeric_limits<double>::infinity();

  std::array<double, level_count> code_line{0, 1, 10, 25};  ///< a line of code from that level
  /// Until the first bytes of a stream come from that level, where nothing told before that they
  /// would be asked for.
  std::array<double, level_count> first_bytes{0, 0, 12, 90};
  double kernel = 5;          ///< calling a kernel
  double head_start = 0;      ///< ns of a kernel that pass before the one before it has ended
  double item = 3;            ///< a work item
  double loop = 2;            ///< entering a loop over vectors
  double row_block = 6;       ///< a register block of a contraction, besides its multiply-adds
  double tap = 2;             ///< finding the rows of a tap at a border
  double join = 6;            ///< lanes of a sum becoming one value
  double recurrent_step = 5;  ///< a step of a recurrent layer, besides its products
  double host_call = 150;     ///< an op that is evaluated on the host, besides its elements
  double host_element = 1;    ///< an element of it
  double loop_trip = 30;      ///< an iteration of a loop of steps
  double barrier = 50;        ///< all workers wait for each other
  double team = 150;          ///< calling and releasing a team of workers
  double member_start = 0;    ///< until the last member of a team has begun a step behind a barrier
  double run = 10;            ///< a run of a program
  double page_fault = 250;    ///< first touch of 4 KiB

  /// Whether whole registers go through the units in two steps.
  bool takes_two_steps() const { return loads_per_cycle <= 1; }
  /// An element that lies alone, beside others of a kernel.
  double lone_lane_ns() const { return gather_lane_ns * overlap.gather; }
  double op(ScalarOp op) const { return op_ns[static_cast<std::size_t>(op)]; }
};

/// The figures of that family of processors, for code made for `target`.
MachineModel preset_for(const codegen::CpuFacts& cpu, const codegen::Target& target);

}  // namespace rlx::cost
