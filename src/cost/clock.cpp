// Measures clocks by products that wait for each other; moves a model to another clock.
#include "cost/clock.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>

namespace rlx::cost {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)

/// On Intel's cores a product is there after four cycles.
constexpr double cycles = 4;
constexpr int turns = 1000;

using Narrow = float __attribute__((vector_size(32)));
using Wide = float __attribute__((vector_size(64)));

/// sum = sum * factor + addend, or sum + factor * addend: in one instruction, and never left out.
template <class Register>
[[gnu::always_inline]] inline void scale_and_add(Register& sum, const Register& factor,
                                                 const Register& addend) {
  asm volatile("vfmadd213ps %2, %1, %0" : "+v"(sum) : "v"(factor), "v"(addend));
}
template <class Register>
[[gnu::always_inline]] inline void add_product(Register& sum, const Register& a,
                                               const Register& b) {
  asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

/// A third of the least L1.
using Operands = std::array<float, 4096>;

double ns_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

/// ns of so many products, each of which waits for the one before: too few to change the clock.
template <class Register>
[[gnu::always_inline]] inline double ns_of_turns() {
  Register value = Register() + 1.0F;
  const Register factor = Register() + 0.999F, addend = Register() + 0.001F;
  const auto start = std::chrono::steady_clock::now();
  // Of a loop of one product a neighbour on the same core holds up the branch: five cycles a round.
#pragma GCC unroll 8
  for (int i = 0; i < turns; ++i) scale_and_add(value, factor, addend);
  return ns_since(start);
}

/// Products with every one of the operands, for so many ns or a us longer.
template <class Register>
[[gnu::always_inline]] inline void work(const Operands& operands, double ns) {
  constexpr std::size_t lanes = sizeof(Register) / sizeof(float), sums = 16;
  constexpr int passes = 16;
  std::array<Register, sums> sum{};
  const Register factor = Register() + 0.7310586F;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t at = 0; at < operands.size(); at += sums * lanes) {
#pragma GCC unroll 16
        for (std::size_t i = 0; i < sums; ++i) {
          Register from;
          std::memcpy(&from, &operands[at + i * lanes], sizeof(from));
          add_product(sum[i], factor, from);
        }
      }
    }
  } while (ns_since(start) < ns);
}

struct Probe {
  double (*ns_of_turns)();
  void (*work)(const Operands& operands, double ns);
};

[[gnu::target("avx512f"), gnu::noinline]] double wide_turns() { return ns_of_turns<Wide>(); }
[[gnu::target("avx512f"), gnu::noinline]] void wide_work(const Operands& operands, double ns) {
  work<Wide>(operands, ns);
}
[[gnu::target("avx2,fma"), gnu::noinline]] double narrow_turns() { return ns_of_turns<Narrow>(); }
[[gnu::target("avx2,fma"), gnu::noinline]] void narrow_work(const Operands& operands, double ns) {
  work<Narrow>(operands, ns);
}

double median(std::span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// By the median of so many looks.
template <std::size_t looks>
double ghz_of(const Probe& probe) {
  std::array<double, looks> times;
  for (double& time : times) time = probe.ns_of_turns();
  return cycles * turns / median(times);
}

Clocks clocks_by(const Probe& probe) {
  Clocks clocks;
  // Before that the units for wide registers may not run at full rate yet.
  constexpr int warm_up = 40;
  for (int i = 0; i < warm_up; ++i) probe.ns_of_turns();
  // The best one: others may have the core for a while.
  for (int look = 0; look < 4; ++look) clocks.light = std::max(clocks.light, ghz_of<31>(probe));
  // Values that differ: the power that products take is that of bits that change. Hosts take the
  // clock back within 2 ms.
  Operands operands;
  for (std::size_t i = 0; i < operands.size(); ++i)
    operands[i] = 1e-3F * static_cast<float>(i * 7919 % 1009);
  constexpr double settled_ns = 2e6;
  std::array<double, 5> heavy;
  for (double& ghz : heavy) {
    probe.work(operands, settled_ns);
    ghz = ghz_of<3>(probe);  // in 4 us: it rises again
  }
  clocks.heavy = median(heavy);
  return clocks;
}

std::optional<Probe> probe_of(codegen::Isa isa) {
  if (isa == codegen::Isa::avx512) return Probe{wide_turns, wide_work};
  if (isa == codegen::Isa::avx2) return Probe{narrow_turns, narrow_work};
  return std::nullopt;
}

#endif

}  // namespace

Clocks clocks_now([[maybe_unused]] codegen::Isa isa) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (const auto probe = probe_of(isa)) return clocks_by(*probe);
#endif
  return {};
}

double clock_left([[maybe_unused]] codegen::Isa isa) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (const auto probe = probe_of(isa)) return ghz_of<31>(*probe);
#endif
  return 0;
}

double Clocks::of(double product_share) const {
  // On a Xeon whose heavy clock fell by 15 % within an hour, programs that made a quarter of the
  // products that its units can make took 8 % longer, those from 0.45 on 15 %, others 2 %.
  constexpr double heavy_from = 0.45;
  return light + (heavy - light) * std::clamp(product_share / heavy_from, 0.0, 1.0);
}

MachineModel at_clock(const MachineModel& model, double ghz) {
  if (ghz <= 0 || model.ghz <= 0) return model;
  MachineModel moved = model;
  const double slower = model.ghz / ghz;
  moved.ghz = ghz;
  for (double* figure :
       {&moved.cycle, &moved.narrow_ns, &moved.gather_lane_ns, &moved.kernel, &moved.head_start,
        &moved.item, &moved.loop, &moved.row_block, &moved.tap, &moved.join, &moved.recurrent_step,
        &moved.host_call, &moved.host_element, &moved.loop_trip, &moved.run})
    *figure *= slower;
  for (double& op : moved.op_ns) op *= slower;
  // A core's own caches have its clock.
  constexpr std::size_t own_levels = 2;
  for (std::size_t level = 0; level < own_levels; ++level) {
    moved.read[level] /= slower;
    moved.write[level] /= slower;
    moved.code_line[level] *= slower;
    moved.first_bytes[level] *= slower;
  }
  return moved;
}

}  // namespace rlx::cost
