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

/// Transposes a square: each step rotates the bits of (row, column) by one.
template <class V, int lanes>
inline __attribute__((always_inline)) void transpose(V* a) {
#pragma GCC unroll 4
  for (int step = 1; step < lanes; step *= 2) {
    V b[lanes];
#pragma GCC unroll 8
    for (int i = 0; i < lanes / 2; ++i) {
      b[2 * i] = interleave<V, lanes, false>(a[i], a[i + lanes / 2]);
      b[2 * i + 1] = interleave<V, lanes, true>(a[i], a[i + lanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) a[i] = b[i];
  }
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
