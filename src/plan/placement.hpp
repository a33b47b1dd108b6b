// Where values lie: in buffers of their own, with gaps where slices or points would share the sets
// of a cache, inside the buffer of a concatenation or copy that reads them, or in the order of an
// output.
#pragma once

#include <map>
#include <vector>

#include "plan/regions.hpp"

namespace rlx::plan {

/// How every value is read, once parts of concatenations and outputs are written in place.
class Placement {
 public:
  /// For programs that run on so many threads.
  Placement(const FlatGraph& graph, const Regions& regions, int threads);

  /// The view of a value over the buffer of `view.base`.
  const View& of(ValueId id) const {
    return views_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }
  /// Elements of the buffer of a base: those of its type, and gaps between its slices.
  std::int64_t elements(ValueId base) const;
  /// Is the part (operand k of the concatenation or copy `node`) written in place?
  bool in_place(std::int32_t node, std::size_t k) const { return in_place_.contains({node, k}); }

 private:
  void spread_slices();
  void spread_points();
  /// The concatenation that the value is a part of, and what that is a part of; itself if none.
  ValueId joined_with_others(ValueId part) const;
  void spread(ValueId base, std::size_t axis = 0);
  void place_parts(std::int32_t concat);
  void place_source(std::int32_t copy);
  void place_output(ValueId output);
  bool turns_well(ValueId source, const View& shown) const;
  bool is_read_by_kernels(ValueId value) const;
  /// Does a kernel of loops make the value, in a place of its own so far?
  bool can_move(ValueId part) const;
  bool may_move(ValueId part, std::int32_t reader) const;
  bool move(ValueId part, const View& target);

  const Graph& graph_;
  const Regions& regions_;
  const int threads_;
  std::vector<std::vector<View>> views_;
  std::vector<std::vector<std::int32_t>> users_;
  std::map<std::pair<std::int32_t, std::size_t>, bool> in_place_;
  std::map<ValueId, std::int64_t> spread_;  ///< elements of the bases with gaps
};

}  // namespace rlx::plan
