// The pictures of the page that rlx explain writes.
#pragma once

#include <string>

#include "tools/explain.hpp"

namespace rlx::tools {

/// The plan as a graph: kernels from top to bottom, an arrow for each buffer.
std::string graph_picture(const Report& report);
/// Offsets of the arena (up) against kernels (right): a rectangle for each buffer, hatched where
/// nothing lives.
std::string arena_picture(const Report& report);

}  // namespace rlx::tools
