// Counting the process's heap allocations, for the promise that runs make none.
#pragma once

#include <cstdint>
#include <optional>

namespace rlx::tools {

/// Calls of operator new, malloc and its sisters by all threads since the first call of this
/// function; nothing in builds whose sanitizer owns malloc.
std::optional<std::int64_t> allocations_so_far();

/// Counts one that malloc does not see (operator new from pools).
void count_allocation();

}  // namespace rlx::tools
