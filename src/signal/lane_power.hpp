// The power of the bins of real lines: the last stage, the split of bins and the squares in one
// pass. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_stages.hpp"

template <class T, int lanes>
struct PowerPass {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;

  /// Whether the last stage of the tables has such a pass.
  static bool fits(const Tables<T>& tables) {
    if (tables.kind != Tables<T>::Kind::stages || tables.stage_count < 1) return false;
    const Stage<T>& last = tables.stages[tables.stage_count - 1];
    return !last.inner && (last.radix <= 5 || last.radix == 7 || last.radix == 8);
  }

  /// The stages from number `first` on over points at `position`; then x[k].re is the power of bin
  /// k, 0 to n.
  static void run(const Job<T>& job, std::int32_t first, C* x, C* work) {
    const Tables<T>& tables = job.tables;
    Stages<T, lanes>::run_but_last(tables, first, x, work);
    switch (tables.stages[tables.stage_count - 1].radix) {
      case 2: return last_pass<2>(job, x);
      case 3: return last_pass<3>(job, x);
      case 4: return last_pass<4>(job, x);
      case 5: return last_pass<5>(job, x);
      case 7: return last_pass<7>(job, x);
      default: return last_pass<8>(job, x);
    }
  }

 private:
  /// Bins k and n - k, n = radix * length, come of the points k % length and its mirror.
  template <int radix>
  static void last_pass(const Job<T>& job, C* x) {
    const Stage<T>& stage = job.tables.stages[job.tables.stage_count - 1];
    const std::int64_t length = stage.length, n = radix * length;
    C low[radix], high[radix];
    butterfly<radix>(stage, x, 0, low);
    const V sum = low[0].re + low[0].im, difference = low[0].re - low[0].im;
#pragma GCC unroll 4
    for (int q = 1; 2 * q < radix; ++q) store_pair(job, x, q * length, low[q], low[radix - q]);
    if constexpr (radix % 2 == 0) x[n / 2].re = square(low[radix / 2]);
    x[0].re = sum * sum;
    x[n].re = difference * difference;
    for (std::int64_t k = 1; 2 * k < length; ++k) {
      butterfly<radix>(stage, x, k, low);
      butterfly<radix>(stage, x, length - k, high);
#pragma GCC unroll 8
      for (int q = 0; q < radix; ++q)
        store_pair(job, x, k + q * length, low[q], high[radix - 1 - q]);
    }
    if (length % 2) return;
    butterfly<radix>(stage, x, length / 2, low);
#pragma GCC unroll 4
    for (int q = 0; 2 * q < radix - 1; ++q)
      store_pair(job, x, length / 2 + q * length, low[q], low[radix - 1 - q]);
    if constexpr (radix % 2) x[n / 2].re = square(low[radix / 2]);
  }

  template <int radix>
  static inline __attribute__((always_inline)) void butterfly(const Stage<T>& stage, const C* x,
                                                              std::int64_t k, C* points) {
    const T* const twiddles = stage.twiddles + 2 * (radix - 1) * k;
    points[0] = x[k];
#pragma GCC unroll 8
    for (int q = 1; q < radix; ++q)
      points[q] = times(x[q * stage.length + k], twiddles[2 * q - 2], twiddles[2 * q - 1]);
    Butterfly<radix, V, T>::run(points, stage.roots);
  }

  static inline __attribute__((always_inline)) V square(C a) { return a.re * a.re + a.im * a.im; }

  /// The powers of bins k and n - k of 2n real numbers, of those of n complex ones.
  static inline __attribute__((always_inline)) void store_pair(const Job<T>& job, C* x,
                                                               std::int64_t k, C low, C high) {
    const T re = job.half_roots[2 * k], im = job.half_roots[2 * k + 1];
    const C sum = {low.re + high.re, low.im - high.im};
    const C difference = {low.re - high.re, low.im + high.im};
    const C odd = turned(times(difference, re, im));
    // Twice the bins: a quarter of their squares.
    x[k].re = square(sum + odd) * T(0.25);
    x[job.tables.n - k].re = square(sum - odd) * T(0.25);
  }
};
