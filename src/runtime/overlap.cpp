// The copy, row by row.
#include "runtime/overlap.hpp"

#include <algorithm>
#include <cstring>

namespace rlx {
namespace {

void copy_axis(const TensorView& from, const MutableTensorView& to, std::size_t axis,
               std::int64_t from_index, std::int64_t to_index) {
  const std::size_t size = size_of(from.dtype);
  const std::int64_t common = std::min(from.dims[axis], to.dims[axis]);
  if (axis + 1 == from.dims.size()) {
    std::memcpy(to.data + static_cast<std::size_t>(to_index * to.dims[axis]) * size,
                from.data + static_cast<std::size_t>(from_index * from.dims[axis]) * size,
                static_cast<std::size_t>(common) * size);
    return;
  }
  for (std::int64_t i = 0; i < common; ++i)
    copy_axis(from, to, axis + 1, from_index * from.dims[axis] + i, to_index * to.dims[axis] + i);
}

}  // namespace

void copy_overlap(const TensorView& from, const MutableTensorView& to) {
  bool grows = false;
  for (std::size_t i = 0; i < from.dims.size(); ++i) grows = grows || from.dims[i] < to.dims[i];
  if (grows) std::memset(to.data, 0, to.bytes());
  if (from.dims.empty()) {
    std::memcpy(to.data, from.data, to.bytes());
  } else if (from.elements() != 0 && to.elements() != 0) {
    copy_axis(from, to, 0, 0, 0);
  }
}

}  // namespace rlx
