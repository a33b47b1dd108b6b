// Frames that overlap, loaded so that each sample is turned into lanes once. Included as
// lane_vector.hpp is.
#pragma once

#include "signal/lane_lines.hpp"

/// Lane l of a group has the frame that begins l hops behind the first. A sample one hop further is
/// the same vector with its lanes moved by one, and a new one from the next group's.
template <class T, int lanes>
struct FrameLoad {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;
  static constexpr int most_hops = lanes < 4 ? lanes : 4;  ///< that a frame covers

  /// Whether the lines of a job are such frames, of real numbers in pairs under a window.
  static bool fits(const Job<T>& job) {
    const std::int64_t length = 2 * job.tables.n, hop = job.in.inner_step;
    return job.real_input && job.window && !job.take_mean_off && job.in.step == 2 &&
           job.in.imaginary == 1 && job.in.count == job.tables.n && hop % lanes == 0 &&
           length % lanes == 0 && hop < length && length <= most_hops * hop;
  }
  /// Whether the lines from `first` on that two groups have are of one signal and in front of
  /// `end`.
  static bool reaches(const Job<T>& job, std::int64_t first, std::int64_t end) {
    const std::int64_t last = first + 2 * lanes - 1;
    return last < end && first / job.in.inner == last / job.in.inner;
  }

  /// Point j of the lanes goes to to[position[j]]; `from` is the first lane's frame. held, a vector
  /// for each sample of a hop: those of these lanes, then of the next group's; is_held: they are
  /// there.
  static void load(const Job<T>& job, const T* from, C* to, V* held, bool is_held) {
    const std::int64_t length = 2 * job.tables.n, hop = job.in.inner_step;
    const T* const behind = from + lanes * hop;
    for (std::int64_t r = 0; !is_held && r < hop; r += lanes) {
      load_columns<T, lanes>(
          [=](int lane) __attribute__((always_inline)) { return from + lane * hop + r; }, held + r);
    }
    for (std::int64_t r = 0; r < hop; r += lanes) {
      // Lines of the group after the next one: too many streams for the machine to foresee.
#pragma GCC unroll 16
      for (int i = 0; i < lanes; i += 64 / static_cast<int>(lanes * sizeof(T)))
        __builtin_prefetch(behind + lanes * (hop + r + i), 0, 2);
      V next[lanes];
      load_columns<T, lanes>(
          [=](int lane) __attribute__((always_inline)) { return behind + lane * hop + r; }, next);
      put<0>(job, r, held + r, next, to);
      if (r + hop < length) put<1>(job, r + hop, held + r, next, to);
      if constexpr (most_hops == 4) {
        if (r + 2 * hop < length) put<2>(job, r + 2 * hop, held + r, next, to);
        if (r + 3 * hop < length) put<3>(job, r + 3 * hop, held + r, next, to);
      }
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) held[r + i] = next[i];
    }
  }

 private:
  /// Samples j to j + lanes - 1, `moved` hops behind those of the vectors.
  template <int moved>
  static inline __attribute__((always_inline)) void put(const Job<T>& job, std::int64_t j,
                                                        const V* held, const V* next, C* to) {
    const std::int32_t* const position = job.tables.position + j / 2;
    const T* const window = job.window + j;
#pragma GCC unroll 8
    for (int i = 0; i < lanes; i += 2) {
      to[position[i / 2]] = {joined<moved>(held[i], next[i]) * window[i],
                             joined<moved>(held[i + 1], next[i + 1]) * window[i + 1]};
    }
  }
  template <int moved>
  static inline __attribute__((always_inline)) V joined(V a, V b) {
    return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
      return __builtin_shufflevector(a, b, (i + moved)...);
    });
  }
};
