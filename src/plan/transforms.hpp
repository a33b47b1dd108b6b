// Transforms of tiles as nests: how their values lie, what each pass over them computes.
#pragma once

#include <functional>
#include <vector>

#include "graph/scalar_value.hpp"
#include "plan/build.hpp"
#include "plan/kernel_builder.hpp"

namespace rlx::plan {

/// How the values of a pass lie in what they are read from or written to.
struct Side {
  /// Strides over the axes of pixels, points or halves -> strides over the kernel's domain.
  MapStrides over;
  /// Value k of the first point.
  std::function<Dims(std::size_t)> place;
  /// For value k of all points, where some are not there.
  std::function<std::vector<loop::Guard>(std::size_t)> guards = [](std::size_t) {
    return std::vector<loop::Guard>{};
  };
};

/// A nest that transforms values at each of its points: a line of them, or a tile row by row.
struct Pass {
  using Values = std::vector<ScalarValue>;

  std::vector<std::int64_t> extents;
  std::size_t count = 0;  ///< values that are read
  std::function<Values(const Values&)> transform;
  Side from, to;
};

/// A transform in one pass, or of tiles along the columns first and then along the rows.
struct Transform {
  std::vector<Pass> passes;
  std::int32_t lead = 0;  ///< dims of the passes that name what is done at a time
  Dims halves;            ///< of what the first of two passes hands on: lines, places, channels
};

/// Does the transform make points of pixels? Else it makes pixels of products.
bool reads_pixels(const Op& op);

/// What an op that transforms tiles or lines reads and writes, of these dims. strip_columns: points
/// are those of the strip that the leading dims name, of so many columns of tiles; 0: of all tiles.
Transform transform_of(const Op& op, const Dims& read, const Dims& written,
                       std::int64_t strip_columns, const BuildOptions& options);

}  // namespace rlx::plan
