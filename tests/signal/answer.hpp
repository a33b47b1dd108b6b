// What another library gives for a signal: dims and values, complex ones as pairs in a last axis.
#pragma once

#include <vector>

#include "rlx/tensor.hpp"

namespace rlx::testing::scipy {

struct Answer {
  Dims dims;
  std::vector<double> values;
};

}  // namespace rlx::testing::scipy
