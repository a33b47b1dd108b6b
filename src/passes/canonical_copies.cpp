// Pads and scatters whose places are known. Exporters write the assignment to a slice as a scatter
// to the indices of a box.
#include "passes/canonical_copies.hpp"

#include <algorithm>
#include <optional>

namespace rlx::passes {
namespace {

std::int64_t extent(const Value& x, std::size_t axis) { return x.shape()[axis].value(); }

/// x[..., low:high, ...] on one axis.
Value part(Value x, std::size_t axis, std::int64_t low, std::int64_t high) {
  Axes starts(x.shape().size(), 0), limits = x.type().dims();
  starts[axis] = low;
  limits[axis] = high;
  return slice(x, starts, limits);
}

Value mirrored(Value x, std::size_t axis) {
  return x.graph().add_one(op::Reverse{{static_cast<std::int64_t>(axis)}}, {x});
}

Value repeated(Value x, std::size_t axis, std::int64_t times) {
  Shape shape = x.shape();
  shape[axis] = times;
  return broadcast(x, shape);
}

/// Can x itself give so many elements on either side of the axis?
bool has_border(PadMode mode, std::int64_t n, std::int64_t low, std::int64_t high) {
  const std::int64_t most = std::max(low, high);
  switch (mode) {
    case PadMode::reflect: return most < n;
    case PadMode::wrap: return most <= n;
    case PadMode::edge: return n > 0;
    default: return false;
  }
}

Value padded(Value x, std::size_t axis, std::int64_t low, std::int64_t high, PadMode mode) {
  const std::int64_t n = extent(x, axis);
  Values parts{x};
  if (low > 0) {
    parts.insert(parts.begin(), mode == PadMode::reflect ? mirrored(part(x, axis, 1, low + 1), axis)
                                : mode == PadMode::wrap  ? part(x, axis, n - low, n)
                                                        : repeated(part(x, axis, 0, 1), axis, low));
  }
  if (high > 0) {
    parts.push_back(mode == PadMode::reflect ? mirrored(part(x, axis, n - 1 - high, n - 1), axis)
                    : mode == PadMode::wrap  ? part(x, axis, 0, high)
                                             : repeated(part(x, axis, n - 1, n), axis, high));
  }
  return parts.size() == 1 ? x : concat(parts, static_cast<std::int64_t>(axis));
}

/// Where the box that the indices [e0, e1, ..., depth] name starts, if they are start + (i0, i1,
/// ...) for every position.
std::optional<Dims> box_start(const Tensor& indices, const Dims& x) {
  const std::size_t depth = indices.dims().size() - 1;
  if (indices.dtype() != i64 || indices.elements() == 0 ||
      indices.dims().back() != static_cast<std::int64_t>(depth))
    return std::nullopt;
  const std::span<const std::int64_t> numbers = indices.as<std::int64_t>();
  Dims start, position(depth, 0);
  for (std::size_t axis = 0; axis < depth; ++axis) {
    start.push_back(numbers[axis] + (numbers[axis] < 0 ? x[axis] : 0));
    if (start[axis] < 0 || start[axis] + indices.dims()[axis] > x[axis]) return std::nullopt;
  }
  for (std::size_t at = 0; at < numbers.size(); at += depth) {
    for (std::size_t axis = 0; axis < depth; ++axis) {
      const std::int64_t number = numbers[at + axis];
      if (number + (number < 0 ? x[axis] : 0) != start[axis] + position[axis]) return std::nullopt;
    }
    for (std::size_t axis = depth; axis-- > 0 && ++position[axis] == indices.dims()[axis];)
      position[axis] = 0;
  }
  return start;
}

/// x with `updates` from `start` on, counting the axes from `axis` on.
Value assigned(Value x, Value updates, const Dims& start, std::size_t axis) {
  while (axis < start.size() && extent(x, axis) == extent(updates, axis)) ++axis;
  if (axis == start.size()) return updates;
  const std::int64_t low = start[axis], high = low + extent(updates, axis);
  Values parts;
  if (low > 0) parts.push_back(part(x, axis, 0, low));
  parts.push_back(assigned(part(x, axis, low, high), updates, start, axis + 1));
  if (high < extent(x, axis)) parts.push_back(part(x, axis, high, extent(x, axis)));
  return concat(parts, static_cast<std::int64_t>(axis));
}

}  // namespace

Result<bool> canonical_pad(Rewriter& rewriter, std::int32_t index, const Node& node,
                           const op::Pad& pad) {
  Value x = rewriter.values_of(node)[0];
  if (pad.mode == PadMode::constant || !x.type().is_static()) return false;
  for (std::size_t axis = 0; axis < pad.low.size(); ++axis) {
    const std::int64_t low = pad.low[axis], high = pad.high[axis];
    if (low < 0 || high < 0 || !has_border(pad.mode, extent(x, axis), low, high)) return false;
  }
  for (std::size_t axis = 0; axis < pad.low.size(); ++axis)
    x = padded(x, axis, pad.low[axis], pad.high[axis], pad.mode);
  rewriter.replace(index, Values{x});
  return true;
}

Result<bool> canonical_scatter(Rewriter& rewriter, std::int32_t index, const Node& node,
                               const op::ScatterNd& scatter) {
  const Values inputs = rewriter.values_of(node);
  const auto* indices = rewriter.target().node(inputs[1].id()).op.as<op::Constant>();
  if (scatter.mode != ScatterMode::assign || !indices || !inputs[0].type().is_static() ||
      !inputs[2].type().is_static())
    return false;
  const auto start = box_start(indices->value, inputs[0].type().dims());
  if (!start) return false;
  rewriter.replace(index, Values{assigned(inputs[0], inputs[2], *start, 0)});
  return true;
}

Result<bool> canonical_scatter_rows(Rewriter& rewriter, std::int32_t index, const Node& node,
                                    const op::ScatterElements& scatter) {
  const Values inputs = rewriter.values_of(node);
  const int rank = inputs[0].rank();
  if (rank < 2 || (scatter.axis != 0 && scatter.axis != -rank)) return false;
  for (const Value& input : inputs)
    if (!input.type().is_static()) return false;
  const Node& spread = rewriter.target().node(inputs[1].id());
  if (!spread.op.is<op::Broadcast>()) return false;
  const Value rows = rewriter.target().handle(spread.inputs[0]);
  const std::int64_t count = extent(inputs[1], 0);
  // One index for each row of updates, and rows as long as those of x.
  if (rows.rank() != rank || extent(rows, 0) != count || rows.type().elements() != count)
    return false;
  for (std::size_t axis = 1; axis < static_cast<std::size_t>(rank); ++axis)
    if (extent(inputs[2], axis) != extent(inputs[0], axis)) return false;
  const Value places = reshape(rows, {count, 1});
  rewriter.replace(index, Values{rewriter.target().add_one(op::ScatterNd{scatter.mode},
                                                           {inputs[0], places, inputs[2]})});
  return true;
}

}  // namespace rlx::passes
