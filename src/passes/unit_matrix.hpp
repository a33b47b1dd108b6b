// The matrix that changes nothing.
#pragma once

#include <cstdint>

#include "rlx/tensor.hpp"

namespace rlx::passes {

/// Ones where row and column are equal, of n rows; f32.
inline Tensor unit_matrix(std::int64_t n) {
  Tensor unit(f32, {n, n});
  auto* const data = reinterpret_cast<float*>(unit.mutable_data());
  for (std::int64_t i = 0; i < n * n; ++i) data[i] = i % (n + 1) == 0 ? 1.0F : 0.0F;
  return unit;
}

}  // namespace rlx::passes
