// Reshapes of values that are held transposed: both sides cut into the same pieces, so that the
// transpose can move below the reshape.
#pragma once

#include <optional>
#include <vector>

#include "rlx/ops.hpp"

namespace rlx::passes {

/// The common factors of two shapes of the same elements, in the logical order. No factor is 1 but
/// those that stand for a dim 1 of the shape after.
struct Pieces {
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> before;  ///< by piece: its axis of the shape before; -1: none
  std::vector<std::int64_t> after;   ///< by piece: its axis of the shape after
  /// Pieces in their physical order.
  std::vector<std::size_t> order;
};

/// Cuts both shapes; `perm` is how the one before is held: logical = transpose(value, perm), of the
/// logical dims `before`. Nothing where a factor of one is no multiple of the other's.
std::optional<Pieces> common_pieces(const Dims& before, const Axes& perm, const Dims& after);

/// Are the pieces of each axis after in order and side by side, so that the axis is one run?
bool are_runs(const Pieces& pieces);

/// The axes after, in the physical order of their last pieces.
Axes order_by_last(const Pieces& pieces);

/// A reshape between shapes that have no pieces in common, as of 8 x 7 into 7 x 8: groups of axes
/// that hold the same elements go below the transpose as wholes.
struct Regrouped {
  Axes order;  ///< of the physical axes: those of a group side by side in logical order
  Axes axes;   ///< the axes after in the order in which the reshape makes them
};

/// The groups in the physical order of their last axes; arguments as of common_pieces. Nothing
/// where that is their logical order.
std::optional<Regrouped> regrouped(const Dims& before, const Axes& perm, const Dims& after);

}  // namespace rlx::passes
