// Lines whose points are dealt out to several lanes. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_lines.hpp"

/// The lanes of a line are neighbours; lane q of them has the points whose place modulo `split` is
/// q. What they get is joined by butterflies of `split` vectors of neighbouring bins.
template <class T, int lanes, int split>
struct SplitLines {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;
  static constexpr int each = lanes / split;  ///< lines side by side

  /// Point j of the lanes goes to to[position[j]]. fetched: meanwhile the lines at `next` come into
  /// the second cache, where the bins will be stored.
  template <bool fetched>
  static void load(T* const* rows, std::int64_t count, C* to, const std::int32_t* position,
                   T* const* next) {
    constexpr int numbers = 2 * split;  // of a line that become one point of its lanes
    for (std::int64_t j = 0; j < count; ++j) {
      for (int line = 0; fetched && line < each; ++line)
        fetch<numbers, true>(next[line * split] + numbers * j);
      const auto from = [=](int line) __attribute__((always_inline)) {
        return rows[line * split] + numbers * j;
      };
      V a, b;
      if constexpr (each == 1) {
        a = load_unaligned<V>(from(0));
        b = load_unaligned<V>(from(0) + lanes);
      } else {
        a = load_joined<T, lanes, numbers>(from, 0);
        b = load_joined<T, lanes, numbers>(from, each / 2);
      }
      to[position[j]] = {every_second<V, lanes, false>(a, b), every_second<V, lanes, true>(a, b)};
    }
  }

  /// Bins of the lanes' own points, `count` each, become bins of the lines. fetched: meanwhile the
  /// lines at `next` come into the second cache, to be read.
  template <bool fetched>
  static void store(const Job<T>& job, const C* own, T* const* rows, int line_count,
                    T* const* next) {
    const std::int64_t count = job.tables.n;
    const T* twiddles = job.split_twiddles;
    for (std::int64_t k = 0; k < count; k += lanes, twiddles += 2 * (split - 1) * lanes) {
      V re[lanes], im[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        const C bin = own[job.tables.source[k + i < count ? k + i : count - 1]];
        re[i] = bin.re;
        im[i] = bin.im;
      }
      transpose<T, lanes>(re);
      transpose<T, lanes>(im);
      const std::int64_t there = count - k < lanes ? count - k : lanes;
      for (int line = 0; line < line_count; ++line) {
        if constexpr (fetched) fetch<2 * split * lanes, false>(next[line * split] + 2 * split * k);
        join(job, re + line * split, im + line * split, twiddles, rows[line * split] + 2 * k,
             there);
      }
    }
  }

  /// `count` numbers, to be written or read.
  template <int count, bool written>
  static inline __attribute__((always_inline)) void fetch(const T* from) {
    constexpr int step = 64 / static_cast<int>(sizeof(T));
#pragma GCC unroll 32
    for (int i = 0; i < count; i += step) __builtin_prefetch(from + i, written, 2);
  }

  /// The same of one line: re[q], im[q] are neighbouring bins of lane q, `there` of which count.
  static inline __attribute__((always_inline)) void join(const Job<T>& job, const V* re,
                                                         const V* im, const T* twiddles, T* to,
                                                         std::int64_t there) {
    C bins[split];
    bins[0] = {re[0], im[0]};
#pragma GCC unroll 16
    for (int q = 1; q < split; ++q) {
      const T* const at = twiddles + 2 * (q - 1) * lanes;
      bins[q] = times(C{re[q], im[q]}, load_unaligned<V>(at), load_unaligned<V>(at + lanes));
    }
    Butterfly<split, V, T>::run(bins, job.split_roots);
#pragma GCC unroll 16
    for (int c = 0; c < split; ++c) {
      T* const run = to + 2 * job.tables.n * (job.split_turn * c & (split - 1));
      const V a = bins[c].re * job.scale, b = bins[c].im * job.scale;
      const V first = interleave<V, lanes, false>(a, b), second = interleave<V, lanes, true>(a, b);
      if (there == lanes) {
        store_unaligned(run, first);
        store_unaligned(run + lanes, second);
      } else {
        const V both[2] = {first, second};
        __builtin_memcpy(run, both, static_cast<std::size_t>(2 * there) * sizeof(T));
      }
    }
  }

  /// Bins of 2n real numbers from those of n complex ones, in a line that is stored; both scaled.
  static void split_real(const Job<T>& job, T* row) {
    const std::int64_t n = job.tables.n * split;
    const T* const half_roots = job.half_roots;
    const T zero_re = row[0], zero_im = row[1];
    std::int64_t k = 1;
    for (; 2 * (k + lanes - 1) < n; k += lanes) {
      T *const low = row + 2 * k, *const high = row + 2 * (n - k - lanes + 1);
      C from_low = points_at(low), from_high = reversed(points_at(high));
      const C root = points_at(half_roots + 2 * k);
      real_bins<T>(from_low, from_high, root.re, root.im);
      store_points(low, from_low);
      store_points(high, reversed(from_high));
    }
    for (; 2 * k <= n; ++k) {
      T *const low = row + 2 * k, *const high = row + 2 * (n - k);
      ComplexLanes<T> from_low{low[0], low[1]}, from_high{high[0], high[1]};
      real_bins<T>(from_low, from_high, half_roots[2 * k], half_roots[2 * k + 1]);
      high[0] = from_high.re;
      high[1] = from_high.im;
      low[0] = from_low.re;
      low[1] = from_low.im;
    }
    row[0] = zero_re + zero_im;
    row[1] = 0;
    row[2 * n] = zero_re - zero_im;
    row[2 * n + 1] = 0;
  }

  /// The reverse, of n + 1 bins to n complex points, twice as large.
  static void join_real(const Job<T>& job, const T* from, T* to) {
    const std::int64_t n = job.tables.n * split;
    const T* const half_roots = job.half_roots;
    to[0] = from[0] + from[2 * n];
    to[1] = from[0] - from[2 * n];
    std::int64_t k = 1;
    for (; 2 * (k + lanes - 1) < n; k += lanes) {
      const std::int64_t mirror = n - k - lanes + 1;
      C low = points_at(from + 2 * k), high = reversed(points_at(from + 2 * mirror));
      const C root = points_at(half_roots + 2 * k);
      real_points(low, high, root.re, root.im);
      store_points(to + 2 * k, low);
      store_points(to + 2 * mirror, reversed(high));
    }
    for (; 2 * k <= n; ++k) {
      ComplexLanes<T> low{from[2 * k], from[2 * k + 1]},
          high{from[2 * (n - k)], from[2 * (n - k) + 1]};
      real_points(low, high, half_roots[2 * k], half_roots[2 * k + 1]);
      to[2 * (n - k)] = high.re;
      to[2 * (n - k) + 1] = high.im;
      to[2 * k] = low.re;
      to[2 * k + 1] = low.im;
    }
  }

 private:
  static inline __attribute__((always_inline)) C points_at(const T* from) {
    const V a = load_unaligned<V>(from), b = load_unaligned<V>(from + lanes);
    return {every_second<V, lanes, false>(a, b), every_second<V, lanes, true>(a, b)};
  }
  static inline __attribute__((always_inline)) void store_points(T* to, C points) {
    store_unaligned(to, interleave<V, lanes, false>(points.re, points.im));
    store_unaligned(to + lanes, interleave<V, lanes, true>(points.re, points.im));
  }
  static inline __attribute__((always_inline)) C reversed(C points) {
    return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
      return C{__builtin_shufflevector(points.re, points.re, (lanes - 1 - i)...),
               __builtin_shufflevector(points.im, points.im, (lanes - 1 - i)...)};
    });
  }
};
