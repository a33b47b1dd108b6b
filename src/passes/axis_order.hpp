// Orders of axes: axis i of a transposed value is axis perm[i] of the value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rlx/ops.hpp"

namespace rlx::passes {

inline bool is_identity(const Axes& perm) { return std::ranges::is_sorted(perm); }

/// Where an axis, counted from the end if negative, lies in that order.
inline std::int64_t axis_in(const Axes& perm, std::int64_t axis) {
  return perm[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(perm) : axis)];
}

inline Axes inverse(const Axes& perm) {
  Axes result(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    result[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  return result;
}

/// transpose(transpose(x, inner), outer) = transpose(x, compose(outer, inner)); empty: as it is.
inline Axes compose(const Axes& outer, const Axes& inner) {
  if (inner.empty()) return outer;
  Axes perm;
  for (const std::int64_t axis : outer) perm.push_back(inner[static_cast<std::size_t>(axis)]);
  return perm;
}

template <class T>
std::vector<T> permuted(const std::vector<T>& list, const Axes& perm) {
  std::vector<T> result;
  for (const std::int64_t axis : perm) result.push_back(list[static_cast<std::size_t>(axis)]);
  return result;
}

/// [0, 2, 3, ..., 1] for the given rank.
inline Axes to_channels_last(int rank) {
  Axes perm{0};
  for (int i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

/// The way back: [0, rank - 1, 1, 2, ...].
inline Axes to_channels_first(int rank) { return inverse(to_channels_last(rank)); }

}  // namespace rlx::passes
