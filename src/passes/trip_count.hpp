// How often loops run whose conditions constants decide.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// The iterations of a host_loop with such operands, where what its condition depends on is known
/// before it runs: counters that start at constants, limits that are constants. Finds out by
/// running that part of the body alone. Nothing where data tells, and where it does not end within
/// 16384 iterations. `operands`: null where it is no constant; the trip count and the condition,
/// which must be known, where they are left out. Errors: that part cannot be evaluated.
Result<std::optional<std::int64_t>> trip_count(const op::HostLoop& loop,
                                               std::span<const Tensor* const> operands);

}  // namespace rlx::passes
