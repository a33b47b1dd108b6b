// Combining elements with updates: what scatters write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/dtype.hpp"
#include "rlx/ops.hpp"

namespace rlx::library {

/// Combines `count` elements at `to` with those at `from`, in their order.
using CombineFunction = void (*)(std::byte* to, const std::byte* from, std::int64_t count);

/// Null for pairs that no op has.
CombineFunction combine_function(ScatterMode mode, DType dtype);

}  // namespace rlx::library
