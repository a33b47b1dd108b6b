// Vectors of lanes: one number of each of several lines side by side. To be included by the files
// that are compiled for one instruction set, within their namespace.
#pragma once

template <class T, int lanes>
struct LaneVector {
  typedef T type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class T, int lanes>
using Vector = typename LaneVector<T, lanes>::type;

template <int n, int... rest>
struct MakeSequence : MakeSequence<n - 1, n - 1, rest...> {};
template <int... i>
struct MakeSequence<0, i...> {
  template <class Function>
  static inline __attribute__((always_inline)) auto call(Function function) {
    return function.template operator()<i...>();
  }
};

/// a0 b0 a1 b1 ... of the first halves, or of the second.
template <class V, int lanes, bool second>
inline __attribute__((always_inline)) V interleave(V a, V b) {
  return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (i % 2 * lanes + i / 2 + (second ? lanes / 2 : 0))...);
  });
}
/// Every second number of a then b, from the first or the second on.
template <class V, int lanes, bool odd>
inline __attribute__((always_inline)) V every_second(V a, V b) {
  return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (2 * i + (odd ? 1 : 0))...);
  });
}
/// The same of `part` numbers at a time.
template <class V, int lanes, int part, bool second>
inline __attribute__((always_inline)) V interleave_parts(V a, V b) {
  return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
    return __builtin_shufflevector(
        a, b,
        (i / part % 2 * lanes + i / part / 2 * part + i % part + (second ? lanes / 2 : 0))...);
  });
}

template <class V, class T>
inline __attribute__((always_inline)) V load_unaligned(const T* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof(V));
  return value;
}
template <class V, class T>
inline __attribute__((always_inline)) void store_unaligned(T* to, V value) {
  __builtin_memcpy(to, &value, sizeof(V));
}

/// The same within every 16 bytes.
template <class V, class T, int lanes, bool second>
inline __attribute__((always_inline)) V interleave_chunks(V a, V b) {
  constexpr int chunk = 16 / sizeof(T);
  return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
    return __builtin_shufflevector(
        a, b, (i % 2 * lanes + i / chunk * chunk + i % chunk / 2 + (second ? chunk / 2 : 0))...);
  });
}
/// Transposes the square of every 16 bytes of 16 / sizeof(T) vectors: each step rotates the bits of
/// (row, column) by one.
template <class V, class T, int lanes>
inline __attribute__((always_inline)) void transpose_chunks(V* a) {
  constexpr int chunk = 16 / sizeof(T);
#pragma GCC unroll 2
  for (int step = 1; step < chunk; step *= 2) {
    V b[chunk];
#pragma GCC unroll 2
    for (int i = 0; i < chunk / 2; ++i) {
      b[2 * i] = interleave_chunks<V, T, lanes, false>(a[i], a[i + chunk / 2]);
      b[2 * i + 1] = interleave_chunks<V, T, lanes, true>(a[i], a[i + chunk / 2]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < chunk; ++i) a[i] = b[i];
  }
}

/// `lanes` numbers, `width` of them at from(i), i = first, first + 1, ...
template <class T, int lanes, int width, class From>
inline __attribute__((always_inline)) Vector<T, lanes> load_joined(From from, int first) {
  if constexpr (lanes == width) {
    return load_unaligned<Vector<T, lanes>>(from(first));
  } else {
    const auto a = load_joined<T, lanes / 2, width>(from, first),
               b = load_joined<T, lanes / 2, width>(from, first + lanes / 2 / width);
    return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
      return __builtin_shufflevector(a, b, i...);
    });
  }
}

/// Chunks 0 and 2, or 1 and 3, of a and b by turns; of vectors of four chunks.
template <class V, int lanes, bool odd>
inline __attribute__((always_inline)) V mix_chunks(V a, V b) {
  constexpr int chunk = lanes / 4;
  return MakeSequence<lanes>::call([&]<int... i>() __attribute__((always_inline)) {
    return __builtin_shufflevector(
        a, b,
        (i / chunk % 2 * lanes + i / chunk / 2 * 2 * chunk + (odd ? chunk : 0) + i % chunk)...);
  });
}

/// columns[i]: number i at from(0), from(1), ... to from(lanes - 1).
template <class T, int lanes, class From>
inline __attribute__((always_inline)) void load_columns(From from, Vector<T, lanes>* columns) {
  using V = Vector<T, lanes>;
  constexpr int chunk = 16 / sizeof(T), chunks = lanes / chunk;
  if constexpr (chunks == 4) {
    // Loads of two chunks: half as many as of one, and one more step.
#pragma GCC unroll 2
    for (int c = 0; c < lanes; c += 2 * chunk) {
      V rows[2 * chunk];
#pragma GCC unroll 8
      for (int i = 0; i < 2 * chunk; ++i) {
        rows[i] = load_joined<T, lanes, 2 * chunk>(
            [&](int part) __attribute__((always_inline)) { return from(i + part * 2 * chunk) + c; },
            0);
      }
      transpose_chunks<V, T, lanes>(rows);
      transpose_chunks<V, T, lanes>(rows + chunk);
#pragma GCC unroll 4
      for (int i = 0; i < chunk; ++i) {
        columns[c + i] = mix_chunks<V, lanes, false>(rows[i], rows[chunk + i]);
        columns[c + chunk + i] = mix_chunks<V, lanes, true>(rows[i], rows[chunk + i]);
      }
    }
    return;
  }
#pragma GCC unroll 4
  for (int c = 0; c < chunks; ++c) {
    V* const own = columns + c * chunk;
#pragma GCC unroll 4
    for (int i = 0; i < chunk; ++i) {
      own[i] = load_joined<T, lanes, chunk>(
          [&](int part)
              __attribute__((always_inline)) { return from(i + part * chunk) + c * chunk; },
          0);
    }
    transpose_chunks<V, T, lanes>(own);
  }
}

/// Transposes a square of `lanes` vectors.
template <class T, int lanes>
inline __attribute__((always_inline)) void transpose(Vector<T, lanes>* a) {
  using V = Vector<T, lanes>;
  constexpr int chunk = 16 / sizeof(T), chunks = lanes / chunk;
#pragma GCC unroll 4
  for (int c = 0; c < chunks; ++c) transpose_chunks<V, T, lanes>(a + c * chunk);
  // Then the square of the chunks, as a whole.
#pragma GCC unroll 2
  for (int step = 1; step < chunks; step *= 2) {
    V b[lanes];
#pragma GCC unroll 8
    for (int i = 0; i < lanes / 2; ++i) {
      const int row = i / chunk, within = i % chunk;
      b[2 * row * chunk + within] =
          interleave_parts<V, lanes, chunk, false>(a[i], a[i + lanes / 2]);
      b[(2 * row + 1) * chunk + within] =
          interleave_parts<V, lanes, chunk, true>(a[i], a[i + lanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) a[i] = b[i];
  }
}
