// Counting the process's heap allocations, for the promise that runs make none.
#pragma once

#include <cstdint>
#include <optional>

namespace rlx::tools {

/// Calls of malloc and its sisters by all threads so far; nothing in builds whose sanitizer owns
/// malloc.
std::optional<std::int64_t> allocations_so_far();

}  // namespace rlx::tools
