// Lines whose points are dealt out to several lanes. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_lines.hpp"

/// The lanes of a line are neighbours; lane p of them has the points whose place modulo `split` is
/// p with its bits reversed, and in the end the p-th run of n / split bins.
template <class T, int lanes, int split>
struct SplitLines {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;

  static constexpr int reversed(int p) {
    int result = 0;
    for (int bit = 1; bit < split; bit *= 2) result = result * 2 + (p / bit) % 2;
    return result;
  }

  /// Complex points at even or odd places of a, then b.
  template <bool odd>
  static inline __attribute__((always_inline)) V every_second_point(V a, V b) {
    return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
      return __builtin_shufflevector(a, b, (i / 2 * 4 + i % 2 + (odd ? 2 : 0))...);
    });
  }
  /// `count` vectors of consecutive points become vectors of points that are `count` apart.
  template <int count>
  static inline __attribute__((always_inline)) void deal(V* list) {
    if constexpr (count > 1) {
      V dealt[count];
#pragma GCC unroll 8
      for (int i = 0; i < count / 2; ++i) {
        dealt[i] = every_second_point<false>(list[2 * i], list[2 * i + 1]);
        dealt[i + count / 2] = every_second_point<true>(list[2 * i], list[2 * i + 1]);
      }
      deal<count / 2>(dealt);
      deal<count / 2>(dealt + count / 2);
#pragma GCC unroll 16
      for (int i = 0; i < count; ++i) list[i] = dealt[i];
    }
  }

  /// Point j of the lanes goes to to[position[j]].
  static void load(T* const* rows, std::int64_t count, C* to, const std::int32_t* position) {
    constexpr int points = lanes / 2;
    std::int64_t j = 0;
    for (; j + points <= count; j += points) {
      V square[lanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < lanes; lane += split) {
        const T* const from = rows[lane] + 2 * split * j;
#pragma GCC unroll 16
        for (int i = 0; i < split; ++i) square[lane + i] = load_unaligned<V>(from + i * lanes);
        deal<split>(square + lane);
      }
      transpose<V, lanes>(square);
#pragma GCC unroll 16
      for (int i = 0; i < points; ++i) to[position[j + i]] = {square[2 * i], square[2 * i + 1]};
    }
    for (; j < count; ++j) {
      C& point = to[position[j]];
      for (int lane = 0; lane < lanes; ++lane) {
        const T* const at = rows[lane] + 2 * (split * j + reversed(lane % split));
        point.re[lane] = at[0];
        point.im[lane] = at[1];
      }
    }
  }

  /// The same `split` numbers for every line; the tables go on behind their last ones.
  static inline __attribute__((always_inline)) V repeated(const T* from) {
    const V list = load_unaligned<V>(from);
    return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
      return __builtin_shufflevector(list, list, (i % split)...);
    });
  }
  /// Butterflies of two between lanes `apart`, then twice as far, up to half of `split`.
  template <int apart>
  static inline __attribute__((always_inline)) C joined(C t, const T* roots) {
    if constexpr (apart < split) {
      if constexpr (apart > 1) {
        const V re = repeated(roots), im = repeated(roots + split);
        t = {t.re * re - t.im * im, t.re * im + t.im * re};
      }
      t = MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
        const V sign = {(i & apart ? T(-1) : T(1))...};
        return C{__builtin_shufflevector(t.re, t.re, (i ^ apart)...) + sign * t.re,
                 __builtin_shufflevector(t.im, t.im, (i ^ apart)...) + sign * t.im};
      });
      return joined<2 * apart>(t, roots + 2 * split);
    } else {
      return t;
    }
  }

  /// Bins of the lanes' own points become bins of the lines.
  static inline __attribute__((always_inline)) C join(C own, const T* twiddles, const T* roots) {
    const V re = repeated(twiddles), im = repeated(twiddles + split);
    return joined<1>({own.re * re - own.im * im, own.re * im + own.im * re}, roots);
  }
};
