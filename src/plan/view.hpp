// Strided views: how reshape, transpose, slice, broadcast and reverse read a buffer without copying
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx::plan {

/// Element (i0, i1, ...) of the view is element offset + sum(strides[k] * ik) of the base value's
/// dense buffer.
struct View {
  ValueId base;
  std::int64_t offset = 0;
  Dims dims;
  std::vector<std::int64_t> strides;

  /// The whole of a dense value.
  static View dense(ValueId base, Dims dims);
  /// Row-major without gaps (dims of 1 may have any stride).
  bool is_dense() const;
  /// Does an axis before the last one run along neighbours? No element is shown twice.
  bool is_turned() const;
  std::int64_t elements() const { return element_count(dims); }
  bool operator==(const View&) const = default;
};

/// Whether two views of one value that move through it alike show blocks of it, of that many
/// elements or more, most of which the other one does not.
bool show_other_blocks(const View& a, const View& b, std::int64_t block);

/// Is it one of the ops that only change how elements are addressed?
bool is_view_op(const Op& op);

/// The view through `node` of what `input` shows; nothing where the strides cannot express it (some
/// reshapes).
std::optional<View> view_through(const Node& node, const View& input);

/// The same elements in row-major order under other dims; nothing where strides cannot express it.
std::optional<View> reshaped(const View& view, const Dims& dims);

/// Strides of the view for each axis of `dims` (to which it broadcasts): 0 where it repeats.
std::vector<std::int64_t> broadcast_strides(const View& view, const Dims& dims);

}  // namespace rlx::plan
