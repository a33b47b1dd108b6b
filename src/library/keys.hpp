// Integers that are ordered as numbers are: NaN above all, -0 as 0.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/element.hpp"

namespace rlx::library {

/// Types whose order fits into 32 bits.
template <class T>
constexpr bool is_short = sizeof(T) <= 4;
template <class T>
using Key = std::conditional_t<is_short<T>, std::int32_t, std::int64_t>;

/// A signed integer that grows with the number.
template <class T>
inline Key<T> ascending_key(T value) {
  using K = Key<T>;
  constexpr K least = std::numeric_limits<K>::min(), greatest = std::numeric_limits<K>::max();
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T> || sizeof(T) < sizeof(K)) return static_cast<K>(value);
    return static_cast<K>(value ^ static_cast<T>(least));
  } else {
    using F = std::conditional_t<is_short<T>, float, double>;
    // With integers alone: the compiler makes vectors of it.
    constexpr K infinity = std::bit_cast<K>(std::numeric_limits<F>::infinity());
    const K bits = [value] {
      if constexpr (std::is_same_v<T, double>) return std::bit_cast<K>(value);
      else return std::bit_cast<K>(to_float(value));
    }();
    const K magnitude = bits & greatest;
    const K key = magnitude == 0 ? 0 : bits ^ ((bits >> (8 * sizeof(K) - 1)) & greatest);
    return magnitude > infinity ? greatest : key;
  }
}

}  // namespace rlx::library
