// How kernels that walk over many steps are told to stop.
#pragma once

#include <cstdint>

#include "codegen/loop.hpp"

namespace rlx::codegen {

/// The buffer of a recurrence by which other threads end it while it runs: its only one of bools
/// (all its values are f32), with one element. Once that is true, steps do nothing any more. -1:
/// it has none.
inline std::int32_t cancel_buffer_of(const loop::Kernel& kernel) {
  for (std::size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (kernel.buffers[i].dtype == DType::boolean) return static_cast<std::int32_t>(i);
  }
  return -1;
}

}  // namespace rlx::codegen
