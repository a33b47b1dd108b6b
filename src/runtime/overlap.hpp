// Copying the part that two tensors of one rank have in common: padding and cropping.
#pragma once

#include <cstddef>

#include "rlx/tensor.hpp"

namespace rlx {

/// Copies the elements whose index lies in both; what only `to` has is filled with zeros.
void copy_overlap(const TensorView& from, const MutableTensorView& to);

}  // namespace rlx
