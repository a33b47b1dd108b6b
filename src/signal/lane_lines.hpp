// Lines in memory to lanes and back. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_stages.hpp"

template <class T, int lanes>
struct LineAccess {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;

  /// Where the lines of a group begin, `split` lanes each; lanes beyond `end` repeat the last line.
  static void addresses(const Lines& lines, T* base, std::int64_t first, std::int64_t end, T** rows,
                        int split = 1) {
    std::int64_t outer = first / lines.inner, inner = first % lines.inner;
    for (int lane = 0; lane < lanes; ++lane) {
      if (lane > 0 && lane % split == 0 && first + lane / split < end && ++inner == lines.inner) {
        inner = 0;
        ++outer;
      }
      rows[lane] = base + (lines.start + outer * lines.outer_step + inner * lines.inner_step);
    }
  }
  /// Lanes lie `step` apart.
  static bool are_apart(T* const* rows, std::int64_t step) {
    for (int lane = 1; lane < lanes; ++lane) {
      if (rows[lane] != rows[0] + lane * step) return false;
    }
    return true;
  }

  static inline T* number(const Lines& lines, T* row, std::int64_t j) {
    return row + j * lines.step;
  }

  /// Point j goes to to[position(j)], as weighed(j, point).
  template <class Position, class Weighed>
  static void load(const Lines& lines, T* const* rows, std::int64_t count, C* to, Position position,
                   Weighed weighed) {
    std::int64_t j = 0;
    if (lines.step == 2 && lines.imaginary == 1) {
      constexpr int points = lanes / 2;
      for (; j + points <= count; j += points) {
        V square[lanes];
        load_columns<T, lanes>(
            [=](int lane) __attribute__((always_inline)) { return rows[lane] + 2 * j; }, square);
#pragma GCC unroll 16
        for (int i = 0; i < points; ++i)
          to[position(j + i)] = weighed(j + i, C{square[2 * i], square[2 * i + 1]});
      }
    } else if (lines.step == 1) {
      for (; j + lanes <= count; j += lanes) {
        load_square(rows, j, to, position, false);
        if (lines.imaginary) {
          T* imaginary[lanes];
          for (int lane = 0; lane < lanes; ++lane) imaginary[lane] = rows[lane] + lines.imaginary;
          load_square(imaginary, j, to, position, true);
        } else {
          for (int i = 0; i < lanes; ++i) to[position(j + i)].im = V{};
        }
        for (int i = 0; i < lanes; ++i) to[position(j + i)] = weighed(j + i, to[position(j + i)]);
      }
    } else if (lines.imaginary == 1 && are_apart(rows, 2)) {
      for (; j < count; ++j) {
        const T* at = number(lines, rows[0], j);
        const V a = load_unaligned<V>(at), b = load_unaligned<V>(at + lanes);
        to[position(j)] =
            weighed(j, C{every_second<V, lanes, false>(a, b), every_second<V, lanes, true>(a, b)});
      }
    } else if (are_apart(rows, 1)) {
      for (; j < count; ++j) {
        const T* at = number(lines, rows[0], j);
        to[position(j)] =
            weighed(j, C{load_unaligned<V>(at),
                         lines.imaginary ? load_unaligned<V>(at + lines.imaginary) : V{}});
      }
    }
    for (; j < count; ++j) {
      C point = {V{}, V{}};
      for (int lane = 0; lane < lanes; ++lane) {
        const T* at = number(lines, rows[lane], j);
        point.re[lane] = *at;
        if (lines.imaginary) point.im[lane] = at[lines.imaginary];
      }
      to[position(j)] = weighed(j, point);
    }
  }
  template <class Position>
  static void load_square(T* const* rows, std::int64_t j, C* to, Position position,
                          bool imaginary) {
    V square[lanes];
    load_columns<T, lanes>([=](int lane) __attribute__((always_inline)) { return rows[lane] + j; },
                           square);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      (imaginary ? to[position(j + i)].im : to[position(j + i)].re) = square[i];
  }

  /// bin(j) becomes point j.
  template <class Bin>
  static void store(const Lines& lines, T* const* rows, std::int64_t count, Bin bin) {
    std::int64_t j = 0;
    if (lines.step == 2 && lines.imaginary == 1) {
      constexpr int points = lanes / 2;
      for (; j + points <= count; j += points) {
        V square[lanes];
#pragma GCC unroll 16
        for (int i = 0; i < points; ++i) {
          const C value = bin(j + i);
          square[2 * i] = value.re;
          square[2 * i + 1] = value.im;
        }
        transpose<T, lanes>(square);
#pragma GCC unroll 16
        for (int lane = 0; lane < lanes; ++lane) store_unaligned(rows[lane] + 2 * j, square[lane]);
      }
    } else if (lines.step == 1) {
      for (; j + lanes <= count; j += lanes) {
        V re[lanes], im[lanes];
        for (int i = 0; i < lanes; ++i) {
          const C value = bin(j + i);
          re[i] = value.re;
          im[i] = value.im;
        }
        transpose<T, lanes>(re);
        for (int lane = 0; lane < lanes; ++lane) store_unaligned(rows[lane] + j, re[lane]);
        if (!lines.imaginary) continue;
        transpose<T, lanes>(im);
        for (int lane = 0; lane < lanes; ++lane)
          store_unaligned(rows[lane] + j + lines.imaginary, im[lane]);
      }
    } else if (lines.imaginary == 1 && are_apart(rows, 2)) {
      for (; j < count; ++j) {
        const C value = bin(j);
        T* at = number(lines, rows[0], j);
        store_unaligned(at, interleave<V, lanes, false>(value.re, value.im));
        store_unaligned(at + lanes, interleave<V, lanes, true>(value.re, value.im));
      }
    } else if (are_apart(rows, 1)) {
      for (; j < count; ++j) {
        const C value = bin(j);
        T* at = number(lines, rows[0], j);
        store_unaligned(at, value.re);
        if (lines.imaginary) store_unaligned(at + lines.imaginary, value.im);
      }
    }
    for (; j < count; ++j) {
      const C value = bin(j);
      for (int lane = 0; lane < lanes; ++lane) {
        T* at = number(lines, rows[lane], j);
        *at = value.re[lane];
        if (lines.imaginary) at[lines.imaginary] = value.im[lane];
      }
    }
  }
};
