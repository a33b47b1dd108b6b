// Common factors of two shapes, and what order they lie in.
#include "passes/held_reshape.hpp"

#include <algorithm>

namespace rlx::passes {
namespace {

std::size_t position(const Pieces& pieces, std::size_t piece) {
  return static_cast<std::size_t>(std::find(pieces.order.begin(), pieces.order.end(), piece) -
                                  pieces.order.begin());
}

/// Dims 1 of the shape after have no factor: each gets a piece behind the one before it.
void add_ones(Pieces& pieces, const Dims& after) {
  for (std::size_t axis = 0; axis < after.size(); ++axis) {
    if (after[axis] != 1) continue;
    const auto at =
        static_cast<std::size_t>(std::lower_bound(pieces.after.begin(), pieces.after.end(),
                                                  static_cast<std::int64_t>(axis)) -
                                 pieces.after.begin());
    const auto offset = static_cast<std::ptrdiff_t>(at);
    for (std::size_t& piece : pieces.order) piece += piece >= at;
    const std::size_t place = at == 0 ? 0 : position(pieces, at - 1) + 1;
    pieces.extents.insert(pieces.extents.begin() + offset, 1);
    pieces.before.insert(pieces.before.begin() + offset, -1);
    pieces.after.insert(pieces.after.begin() + offset, static_cast<std::int64_t>(axis));
    pieces.order.insert(pieces.order.begin() + static_cast<std::ptrdiff_t>(place), at);
  }
}

}  // namespace

std::optional<Pieces> common_pieces(const Dims& before, const Axes& perm, const Dims& after) {
  Pieces pieces;
  std::size_t i = 0, j = 0;
  std::int64_t left = 1, right = 1;  // what is not cut yet of axes i - 1 and j - 1
  while (true) {
    while (left == 1 && i < before.size()) left = before[i++];
    while (right == 1 && j < after.size()) right = after[j++];
    if (left == 1 && right == 1) break;
    if (left == 0 || right == 0 || left == 1 || right == 1) return std::nullopt;
    const std::int64_t factor = std::min(left, right);
    if (left % factor != 0 || right % factor != 0) return std::nullopt;
    pieces.extents.push_back(factor);
    pieces.before.push_back(static_cast<std::int64_t>(i) - 1);
    pieces.after.push_back(static_cast<std::int64_t>(j) - 1);
    left /= factor;
    right /= factor;
  }
  std::vector<std::int64_t> logical_of(perm.size());
  for (std::size_t axis = 0; axis < perm.size(); ++axis)
    logical_of[static_cast<std::size_t>(perm[axis])] = static_cast<std::int64_t>(axis);
  for (const std::int64_t axis : logical_of) {
    for (std::size_t piece = 0; piece < pieces.extents.size(); ++piece) {
      if (pieces.before[piece] == axis) pieces.order.push_back(piece);
    }
  }
  add_ones(pieces, after);
  return pieces;
}

bool are_runs(const Pieces& pieces) {
  for (std::size_t piece = 1; piece < pieces.extents.size(); ++piece) {
    if (pieces.after[piece] == pieces.after[piece - 1] &&
        position(pieces, piece) != position(pieces, piece - 1) + 1)
      return false;
  }
  return true;
}

std::optional<Regrouped> regrouped(const Dims& before, const Axes& perm, const Dims& after) {
  struct Group {
    Axes before, after;
    std::int64_t last = 0;  ///< physical axis
  };
  std::vector<Group> groups;
  std::size_t i = 0, j = 0;
  while (i < before.size() && j < after.size()) {
    Group& group = groups.emplace_back();
    std::int64_t left = 1, right = 1;
    do {
      const bool takes_before = group.before.empty() || (left < right && i < before.size());
      if (!takes_before && j == after.size()) return std::nullopt;
      if (takes_before) {
        left *= before[i];
        group.before.push_back(static_cast<std::int64_t>(i++));
      } else {
        right *= after[j];
        group.after.push_back(static_cast<std::int64_t>(j++));
      }
    } while (left != right || group.after.empty());
    group.last = perm[static_cast<std::size_t>(group.before.back())];
  }
  // What is left are dims 1.
  for (; i < before.size(); ++i) groups.back().before.push_back(static_cast<std::int64_t>(i));
  for (; j < after.size(); ++j) groups.back().after.push_back(static_cast<std::int64_t>(j));
  if (std::ranges::is_sorted(groups, {}, &Group::last)) return std::nullopt;
  std::ranges::stable_sort(groups, {}, &Group::last);
  Regrouped result;
  for (const Group& group : groups) {
    for (const std::int64_t axis : group.before)
      result.order.push_back(perm[static_cast<std::size_t>(axis)]);
    result.axes.insert(result.axes.end(), group.after.begin(), group.after.end());
  }
  return result;
}

Axes order_by_last(const Pieces& pieces) {
  Axes axes;
  for (auto piece = pieces.order.rbegin(); piece != pieces.order.rend(); ++piece) {
    const std::int64_t axis = pieces.after[*piece];
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

}  // namespace rlx::passes
