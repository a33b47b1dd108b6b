// How much of its buffers a kernel touches.
#pragma once

#include "codegen/loop.hpp"

namespace rlx::cost {

/// Bytes of whole cache lines that the kernel's accesses reach in one of its buffers, at most all
/// of it. Places that several accesses reach count once.
double touched_bytes(const loop::Kernel& kernel, std::size_t buffer);

/// The same of what it loads.
double loaded_bytes(const loop::Kernel& kernel, std::size_t buffer);

}  // namespace rlx::cost
