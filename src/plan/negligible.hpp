// Weights of products that are nothing beside others. Training leaves whole channels at 1e-39:
// subnormal operands, and the subnormal sums that they make, cost some cores 150 cycles each.
#pragma once

#include <span>

#include "rlx/tensor.hpp"

namespace rlx::plan {

/// Whether some of the values are below 2^-100, zeros aside.
bool has_small(std::span<const float> values);

/// Whether some of the values are below 2^-100, zeros aside, while the largest is at least 2^-36.
/// Beside products with the largest, theirs are less than 2^-64 of them: f32 rounds at 2^-24.
bool has_negligible(std::span<const float> values);

/// Sets those values to zero.
void drop_negligible(std::span<float> values);

/// The f32 value without them: itself, where it has none or is large. What is large and read as it
/// is, is looked up, not multiplied.
Tensor without_negligible(const Tensor& value);

}  // namespace rlx::plan
