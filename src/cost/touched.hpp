// How much of its buffers a kernel touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codegen/loop.hpp"

namespace rlx::cost {

/// Bytes of whole cache lines that the kernel's accesses reach in one of its buffers, at most all
/// of it. Places that several accesses reach count once.
double touched_bytes(const loop::Kernel& kernel, std::size_t buffer);

/// The same of what it loads.
double loaded_bytes(const loop::Kernel& kernel, std::size_t buffer);

/// The same of one access without indices, of elements of `size` bytes, to a buffer of so many.
double reached_bytes(const loop::Access& access, std::span<const std::int64_t> extents, double size,
                     double elements);

/// The places that an access reaches, as rows without holes.
struct Rows {
  double count = 1;
  std::int64_t length = 0;  ///< bytes of each
  std::int64_t apart = 0;   ///< bytes from one to the next: `length` if there is one
  std::int64_t begin = 0;   ///< bytes in front of the first one
};
Rows rows_of(const loop::Access& access, std::span<const std::int64_t> extents, std::size_t size);

/// Cache lines that such a row touches, on average.
double lines_of_row(const Rows& rows);

}  // namespace rlx::cost
