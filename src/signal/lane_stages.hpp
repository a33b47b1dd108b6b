// The stages of Fourier transforms on lanes: butterflies in place, decimation in time. Included as
// lane_vector.hpp is.
#pragma once

#include "base/lane_vector.hpp"

template <class V>
struct ComplexLanes {
  V re, im;
};
template <class V>
inline ComplexLanes<V> operator+(ComplexLanes<V> a, ComplexLanes<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
inline ComplexLanes<V> operator-(ComplexLanes<V> a, ComplexLanes<V> b) {
  return {a.re - b.re, a.im - b.im};
}
/// a * (re + i im)
template <class V, class T>
inline ComplexLanes<V> times(ComplexLanes<V> a, T re, T im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
/// -i a
template <class V>
inline ComplexLanes<V> turned(ComplexLanes<V> a) {
  return {a.im, -a.re};
}

/// A transform of `radix` points in registers.
template <int radix, class V, class T>
struct Butterfly {
  /// Odd primes: sums and differences of mirrored points halve the products.
  static inline __attribute__((always_inline)) void run(ComplexLanes<V>* x, const T* roots) {
    constexpr int half = radix / 2;
    ComplexLanes<V> sum[half + 1], difference[half + 1], first = x[0];
    ComplexLanes<V> total = first;
#pragma GCC unroll 16
    for (int k = 1; k <= half; ++k) {
      sum[k] = x[k] + x[radix - k];
      difference[k] = x[k] - x[radix - k];
      total = total + sum[k];
    }
    x[0] = total;
#pragma GCC unroll 16
    for (int q = 1; q <= half; ++q) {
      ComplexLanes<V> even = first, odd = {V{}, V{}};
#pragma GCC unroll 16
      for (int k = 1; k <= half; ++k) {
        const T cosine = roots[2 * (q * k % radix)], sine = roots[2 * (q * k % radix) + 1];
        even.re += sum[k].re * cosine;
        even.im += sum[k].im * cosine;
        odd.re += difference[k].im * sine;
        odd.im -= difference[k].re * sine;
      }
      x[q] = even + odd;
      x[radix - q] = even - odd;
    }
  }
};
template <class V, class T>
struct Butterfly<2, V, T> {
  static inline __attribute__((always_inline)) void run(ComplexLanes<V>* x, const T*) {
    const ComplexLanes<V> a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  }
};
template <class V, class T>
struct Butterfly<4, V, T> {
  static inline __attribute__((always_inline)) void run(ComplexLanes<V>* x, const T*) {
    const ComplexLanes<V> a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3],
                          d = turned(x[1] - x[3]);
    x[0] = a + c;
    x[1] = b + d;
    x[2] = a - c;
    x[3] = b - d;
  }
};
template <class V, class T>
struct Butterfly<8, V, T> {
  static inline __attribute__((always_inline)) void run(ComplexLanes<V>* x, const T* roots) {
    const T r = roots[2];  // cos(2 pi / 8)
    ComplexLanes<V> even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    Butterfly<4, V, T>::run(even, roots);
    Butterfly<4, V, T>::run(odd, roots);
    odd[1] = {(odd[1].re + odd[1].im) * r, (odd[1].im - odd[1].re) * r};
    odd[2] = turned(odd[2]);
    odd[3] = {(odd[3].im - odd[3].re) * r, -((odd[3].re + odd[3].im) * r)};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      x[k] = even[k] + odd[k];
      x[k + 4] = even[k] - odd[k];
    }
  }
};

/// As four times four; roots: of 16.
template <class V, class T>
struct Butterfly<16, V, T> {
  static inline __attribute__((always_inline)) void run(ComplexLanes<V>* x, const T* roots) {
    ComplexLanes<V> parts[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) parts[r][j] = x[r + 4 * j];
      Butterfly<4, V, T>::run(parts[r], roots);
#pragma GCC unroll 4
      for (int q = 1; q < 4; ++q) {
        if (r * q == 4) {
          parts[r][q] = turned(parts[r][q]);
        } else if (r > 0) {
          parts[r][q] = times(parts[r][q], roots[2 * r * q], -roots[2 * r * q + 1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      ComplexLanes<V> last[4] = {parts[0][q], parts[1][q], parts[2][q], parts[3][q]};
      Butterfly<4, V, T>::run(last, roots);
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) x[q + 4 * t] = last[t];
    }
  }
};

/// Bins k and n - k of 2n real numbers from those of the n complex numbers that they are in pairs;
/// (re, im) is exp(-2 pi i k / 2n).
template <class T, class V, class R>
inline void real_bins(ComplexLanes<V>& low, ComplexLanes<V>& high, R re, R im) {
  const ComplexLanes<V> sum = {(low.re + high.re) * T(0.5), (low.im - high.im) * T(0.5)};
  const ComplexLanes<V> difference = {(low.re - high.re) * T(0.5), (low.im + high.im) * T(0.5)};
  const ComplexLanes<V> odd = turned(times(difference, re, im));
  low = sum + odd;
  high = {sum.re - odd.re, odd.im - sum.im};
}

/// The reverse of it, twice as large.
template <class V, class R>
inline void real_points(ComplexLanes<V>& low, ComplexLanes<V>& high, R re, R im) {
  const ComplexLanes<V> sum = {low.re + high.re, low.im - high.im};
  const ComplexLanes<V> difference = {low.re - high.re, low.im + high.im};
  // i times the conjugate root
  const ComplexLanes<V> odd = times(difference, im, re);
  low = sum + odd;
  high = {sum.re - odd.re, odd.im - sum.im};
}

template <class T, int lanes>
struct Stages {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;

  /// `blocks` blocks of radix * length points.
  template <int radix>
  static void pass(const Stage<T>& stage, C* x, std::int64_t blocks) {
    const std::int64_t length = stage.length;
    for (std::int64_t block = 0; block < blocks; ++block, x += radix * length) {
      const T* twiddles = stage.twiddles;
      for (std::int64_t k = 0; k < length; ++k, twiddles += 2 * (radix - 1)) {
        C points[radix];
        points[0] = x[k];
#pragma GCC unroll 16
        for (int q = 1; q < radix; ++q) {
          points[q] = x[q * length + k];
          if (length > 1) points[q] = times(points[q], twiddles[2 * q - 2], twiddles[2 * q - 1]);
        }
        Butterfly<radix, V, T>::run(points, stage.roots);
#pragma GCC unroll 16
        for (int q = 0; q < radix; ++q) x[q * length + k] = points[q];
      }
    }
  }

  /// Any odd prime up to 61, by its definition.
  static void pass_any(const Stage<T>& stage, C* x, std::int64_t blocks) {
    const std::int64_t radix = stage.radix, length = stage.length, half = radix / 2;
    C sum[32], difference[32];
    for (std::int64_t block = 0; block < blocks; ++block, x += radix * length) {
      for (std::int64_t k = 0; k < length; ++k) {
        const T* twiddles = stage.twiddles + 2 * (radix - 1) * k - 2;
        const C first = x[k];
        C total = first;
        for (std::int64_t q = 1; q <= half; ++q) {
          const std::int64_t mirror = radix - q;
          const C a = times(x[q * length + k], twiddles[2 * q], twiddles[2 * q + 1]),
                  b = times(x[mirror * length + k], twiddles[2 * mirror], twiddles[2 * mirror + 1]);
          sum[q] = a + b;
          difference[q] = a - b;
          total = total + sum[q];
        }
        x[k] = total;
        for (std::int64_t q = 1; q <= half; ++q) {
          C even = first, odd = {V{}, V{}};
          for (std::int64_t j = 1, at = q; j <= half; ++j) {
            const T cosine = stage.roots[2 * at], sine = stage.roots[2 * at + 1];
            even.re += sum[j].re * cosine;
            even.im += sum[j].im * cosine;
            odd.re += difference[j].im * sine;
            odd.im -= difference[j].re * sine;
            at += q;
            if (at >= radix) at -= radix;
          }
          x[q * length + k] = even + odd;
          x[(radix - q) * length + k] = even - odd;
        }
      }
    }
  }

  /// A large prime, by its own tables on `work`.
  static void pass_inner(const Stage<T>& stage, C* x, std::int64_t blocks, C* work) {
    const std::int64_t radix = stage.radix, length = stage.length;
    const Tables<T>& inner = *stage.inner;
    for (std::int64_t block = 0; block < blocks; ++block, x += radix * length) {
      for (std::int64_t k = 0; k < length; ++k) {
        const T* twiddles = stage.twiddles + 2 * (radix - 1) * k - 2;
        work[inner.position[0]] = x[k];
        for (std::int64_t q = 1; q < radix; ++q) {
          const C point = x[q * length + k];
          work[inner.position[q]] =
              length > 1 ? times(point, twiddles[2 * q], twiddles[2 * q + 1]) : point;
        }
        const C* const bins = transform(inner, work, work + inner.slots);
        for (std::int64_t q = 0; q < radix; ++q) x[q * length + k] = bins[inner.source[q]];
      }
    }
  }

  static void run_stage(const Stage<T>& stage, C* x, std::int64_t blocks, C* work) {
    if (stage.inner) return pass_inner(stage, x, blocks, work);
    switch (stage.radix) {
      case 2: return pass<2>(stage, x, blocks);
      case 3: return pass<3>(stage, x, blocks);
      case 4: return pass<4>(stage, x, blocks);
      case 5: return pass<5>(stage, x, blocks);
      case 7: return pass<7>(stage, x, blocks);
      case 8: return pass<8>(stage, x, blocks);
      case 11: return pass<11>(stage, x, blocks);
      case 13: return pass<13>(stage, x, blocks);
      default: return pass_any(stage, x, blocks);
    }
  }

  static constexpr std::int64_t fitting = 32768 / static_cast<std::int64_t>(sizeof(C));

  /// Stages number `first` to `last` over `blocks` blocks; those that fit the first cache are
  /// finished before the next begins.
  static void run(const Stage<T>* stages, std::int32_t first, std::int32_t last, C* x,
                  std::int64_t blocks, C* work) {
    if (last < first) return;
    const Stage<T>& stage = stages[last];
    const std::int64_t points = stage.radix * stage.length;
    if (last == first || blocks * points <= fitting) {
      for (std::int32_t i = first; i <= last; ++i)
        run_stage(stages[i], x, blocks * points / (stages[i].radix * stages[i].length), work);
      return;
    }
    for (std::int64_t block = 0; block < blocks; ++block, x += points) {
      run(stages, first, last - 1, x, stage.radix, work);
      run_stage(stage, x, 1, work);
    }
  }

  /// All stages from number `first` on but the last one.
  static void run_but_last(const Tables<T>& tables, std::int32_t first, C* x, C* work) {
    const std::int32_t last = tables.stage_count - 1;
    run(tables.stages, first, last - 1, x, tables.stages[last].radix, work);
  }

  static void run(const Tables<T>& tables, C* x, C* work) {
    run(tables.stages, 0, tables.stage_count - 1, x, 1, work);
  }

  /// The transform of points that stand at `position`; its bins stand at `source` of what is
  /// returned: `x` or `spare`, which inner_slots points follow.
  static C* transform(const Tables<T>& tables, C* x, C* spare) {
    using Kind = typename Tables<T>::Kind;
    C* const work = spare + tables.slots;
    if (tables.kind == Kind::stages) {
      run(tables, x, work);
      return x;
    }
    const std::int64_t n = tables.n, size = tables.size;
    const bool rader = tables.kind == Kind::rader;
    if (!rader) {
      for (std::int64_t j = 0; j < n; ++j) {
        C& point = x[tables.position[j]];
        point = times(point, tables.chirp[2 * j], tables.chirp[2 * j + 1]);
      }
      for (std::int64_t j = n; j < size; ++j) x[tables.inner_position[j]] = {V{}, V{}};
    }
    const C first = x[size];  // of Rader's form: point 0, which is no power of the root
    run(tables, x, work);
    if (rader) spare[size] = x[0] + first;
    for (std::int64_t k = 0; k < size; ++k)
      spare[tables.inner_position[k]] = times(x[k], tables.kernel[2 * k], tables.kernel[2 * k + 1]);
    if (rader) spare[0] = spare[0] + first;
    run(tables, spare, work);
    if (!rader) {
      for (std::int64_t k = 0; k < n; ++k) {
        C& bin = spare[tables.source[k]];
        bin = times(bin, tables.chirp[2 * k], tables.chirp[2 * k + 1]);
      }
    }
    return spare;
  }
};
