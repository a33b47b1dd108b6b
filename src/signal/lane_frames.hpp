// Frames that overlap, loaded so that each sample is turned into lanes once. Included as
// lane_vector.hpp is.
#pragma once

#include "signal/lane_lines.hpp"

/// Lane l of a group has the frame that begins l hops behind the first. Each sample of a hop has a
/// column of 2 * lanes numbers, that of these lanes and of the next group's: the sample m hops
/// further stands m numbers further on.
template <class T, int lanes>
struct FrameLoad {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;

  /// Whether the lines of a job are such frames, of real numbers in pairs under a window.
  static bool fits(const Job<T>& job) {
    const Tables<T>& tables = job.tables;
    const std::int64_t radix = tables.stages[0].radix;
    return job.frame_points && tables.stage_count > 1 && job.window && !job.take_mean_off &&
           (radix <= 5 || radix == 8) && job.in.inner_step < tables.slots;
  }
  /// Whether the lines from `first` on that two groups have are of one signal and in front of
  /// `end`.
  static bool reaches(const Job<T>& job, std::int64_t first, std::int64_t end) {
    const std::int64_t last = first + 2 * lanes - 1;
    return last < end && first / job.in.inner == last / job.in.inner;
  }

  /// The columns, two vectors each, of the group whose first frame begins at `from`; is_held: they
  /// are still those of the group before it.
  static void load(const Job<T>& job, const T* from, V* columns, bool is_held) {
    const std::int64_t hop = job.in.inner_step;
    if (!is_held) {
      for (std::int64_t r = 0; r < hop; r += lanes) load_numbers(from + r, hop, columns + 2 * r);
    }
    const T* const behind = from + lanes * hop;
    for (std::int64_t r = 0; r < hop; r += lanes) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) columns[2 * (r + i)] = columns[2 * (r + i) + 1];
      // Lines of the group after the next one: too many streams for the machine to foresee.
#pragma GCC unroll 16
      for (int i = 0; i < lanes; i += 64 / static_cast<int>(lanes * sizeof(T)))
        __builtin_prefetch(behind + lanes * (hop + r + i), 0, 2);
      load_numbers(behind + r, hop, columns + 2 * r);
    }
  }

  /// The first stage, of points under the window.
  static void run_first_stage(const Job<T>& job, const V* columns, C* x) {
    switch (job.tables.stages[0].radix) {
      case 2: return pass<2>(job, columns, x);
      case 3: return pass<3>(job, columns, x);
      case 4: return pass<4>(job, columns, x);
      case 5: return pass<5>(job, columns, x);
      default: return pass<8>(job, columns, x);
    }
  }

 private:
  /// The second vectors of `lanes` columns.
  static inline __attribute__((always_inline)) void load_numbers(const T* from, std::int64_t hop,
                                                                 V* columns) {
    V numbers[lanes];
    load_columns<T, lanes>(
        [=](int lane) __attribute__((always_inline)) { return from + lane * hop; }, numbers);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) columns[2 * i + 1] = numbers[i];
  }

  template <int radix>
  static void pass(const Job<T>& job, const V* columns, C* x) {
    const T* const numbers = reinterpret_cast<const T*>(columns);
    const FramePoint* point = job.frame_points;
    for (std::int64_t k = 0; k < job.tables.n; k += radix, point += radix) {
      C points[radix];
#pragma GCC unroll 8
      for (int q = 0; q < radix; ++q) {
        const T* const at = numbers + point[q].place;
        const T* const window = job.window + point[q].sample;
        points[q] = {load_unaligned<V>(at) * window[0],
                     load_unaligned<V>(at + 2 * lanes) * window[1]};
      }
      Butterfly<radix, V, T>::run(points, job.tables.stages[0].roots);
#pragma GCC unroll 8
      for (int q = 0; q < radix; ++q) x[k + q] = points[q];
    }
  }
};
