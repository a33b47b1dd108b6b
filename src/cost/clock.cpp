// Measures the clock by products that wait for each other; moves a model to another clock.
#include "cost/clock.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace rlx::cost {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)

/// Intel's cores begin two products in a cycle, and a product is there after four: eight that wait
/// for the eight before keep both units busy.
constexpr double cycles = 4;
constexpr int turns = 1000;

using Narrow = float __attribute__((vector_size(32)));
using Wide = float __attribute__((vector_size(64)));

/// ns of so many turns, each eight products that wait for those of the turn before.
template <class Register>
[[gnu::always_inline]] inline double ns_of_turns() {
  Register a = Register() + 1.0F, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  Register one = a;
  asm volatile("" : "+v"(one));  // no product with it is left out
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < turns; ++i) {
    a *= one, b *= one, c *= one, d *= one, e *= one, f *= one, g *= one, h *= one;
    asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h));
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count();
}

[[gnu::target("avx512f"), gnu::noinline]] double ns_of_wide() { return ns_of_turns<Wide>(); }
[[gnu::target("avx2"), gnu::noinline]] double ns_of_narrow() { return ns_of_turns<Narrow>(); }

/// The best median of some looks: before the first one the units for wide registers may not run at
/// full rate yet, and others may have the core for a while.
double ghz_of(double (*ns_of)()) {
  constexpr int warm_up = 40, looks = 4;
  double best = 0;
  for (int i = 0; i < warm_up; ++i) ns_of();
  for (int look = 0; look < looks; ++look) {
    std::array<double, 31> times;
    for (double& time : times) time = ns_of();
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    best = std::max(best, cycles * turns / times[times.size() / 2]);
  }
  return best;
}

#endif

}  // namespace

double ghz_now([[maybe_unused]] codegen::Isa isa) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (isa == codegen::Isa::avx512) return ghz_of(ns_of_wide);
  if (isa == codegen::Isa::avx2) return ghz_of(ns_of_narrow);
#endif
  return 0;
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
