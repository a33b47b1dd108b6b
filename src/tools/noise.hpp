// Values for inputs that nothing gives: seeded, the same on every machine.
#pragma once

#include <cstdint>

#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx::tools {

/// Normal noise for float and complex dtypes, all 1 for others. An error beyond 1 GiB.
Result<Tensor> noise(DType dtype, const Dims& dims, std::uint64_t seed);

}  // namespace rlx::tools
