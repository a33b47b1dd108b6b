// Ranges of indices along a dim for which a window lies inside of what it reads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rlx::codegen {

/// Indices of a dim.
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// The indices i from 0 on for which offset + step * i is no less than 0 and, `reach` further on,
/// less than extent; step is more than 0.
inline IndexRange indices_inside(std::int64_t offset, std::int64_t step, std::int64_t reach,
                                 std::int64_t extent) {
  const auto steps_to = [&](std::int64_t distance) {
    return (std::max<std::int64_t>(distance, 0) + step - 1) / step;
  };
  return {steps_to(-offset), steps_to(extent - offset - reach)};
}

/// Do enough of `extent` indices lie inside that lanes take those without asking, and the others
/// come one by one? They fill a register and leave no more than a fifth.
inline bool most_lie_inside(IndexRange inside, std::int64_t extent, unsigned lanes) {
  return inside.size() >= lanes && 4 * (extent - inside.size()) <= inside.size();
}

}  // namespace rlx::codegen
