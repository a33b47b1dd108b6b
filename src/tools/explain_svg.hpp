// The pictures of the page that rlx explain writes.
#pragma once

#include <string>
#include <string_view>

#include "tools/explain.hpp"

namespace rlx::tools {

/// With <, >, & and quotes as HTML spells them.
std::string escaped(std::string_view text);
/// A colour for each kind of kernel.
std::string_view colour_of(std::string_view kind);

/// The plan as a graph: kernels from top to bottom, an arrow for each buffer.
std::string graph_picture(const Report& report);
/// Offsets of the arena (up) against kernels (right): a rectangle for each buffer, hatched where
/// nothing lives.
std::string arena_picture(const Report& report);

}  // namespace rlx::tools
