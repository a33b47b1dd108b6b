// How the accesses of a nest go along memory: which lines of the cache they touch, in what order,
// and what nothing fetches ahead.
#pragma once

#include "cost/nest_view.hpp"

namespace rlx::cost {

class NestLines : public NestView {
 protected:
  using NestView::NestView;

  static constexpr std::int64_t line_bytes = 64;

  /// Its elements lie along the tile, and are turned in registers.
  bool is_turned(int access) const;
  /// Of the vectors of a row, the part that is read under a mask: where lanes are left over at its
  /// end, or all where a guard runs along it.
  double masked_share(const loop::Access& access) const;
  /// Lanes on more pages than the first translation buffer holds.
  double far_page_ns(const loop::Access& access, DType dtype) const;
  /// Of registers that start `bytes` apart, those that lie across two lines of the cache.
  double share_across_lines(std::int64_t bytes) const;
  /// The lines of a turned tile fall into so few sets of L1 that they push each other out.
  bool crowds_sets(const loop::Access& access, DType dtype) const;
  /// Of the lines that lanes read one by one, and whose next elements the points behind want, those
  /// that L1 has given away by then because too many fall into its few sets.
  double crowded_share(const loop::Access& access, DType dtype) const;
  /// The same of the runs of a turned tile, which another tile has the rest of the line of.
  double shared_line_share(const loop::Access& access, DType dtype) const;
  /// ns that a step to the next row of a reduced dim takes, where a pass down the dim reads only
  /// `unroll` vectors of every row.
  double row_step_ns(double unroll) const;
  /// Lines that lanes reach one by one, too far apart for anything to fetch the next one ahead; in
  /// tiles that are turned, where rows lie a page apart.
  double lone_lines(bool turning) const;
  /// Lines that a map of turned tiles reads and writes.
  double turned_lines() const;
  /// Lines that registers read which lie across two of them.
  double lines_across() const;
  /// Lines of a map's streams beyond those that a core fetches ahead at once.
  double lines_of_many_streams() const;
  /// Of a map's loads, and of its stores, the part in streams beyond those: streams begin in
  /// different pages.
  double loads_apart() const;
  double stores_apart() const;
  /// Lines of streams that run through the same sets of L1 as more others than a set has ways.
  double crowded_lines() const;
  /// Lines that a map stores in rows which end a line or more before the next one begins: what is
  /// asked for ahead there is not wanted.
  double stores_with_gaps() const;
  /// Of so many rows of a map, those that do not follow their forerunner in memory, of the access
  /// that jumps most.
  double broken_rows(double rows) const;
  /// Rows of a map's accesses that begin far from where their forerunners ended.
  double far_rows() const;
  /// Lines that come into L1 again because what the loops inside touch does not fit.
  void add_lines_again(KernelWork& work) const;

 private:
  double lone_lines(const loop::Access& access, bool turned) const;
  double apart(std::span<const loop::Access* const> accesses) const;
  /// An access before it goes along the same lines.
  bool is_found(const loop::Access& access) const;
  /// How many lines of the cache an access touches, walking the loops from the inside, and how many
  /// come into L1 for it: those that were there before count again where what the loops inside
  /// touch does not fit.
  struct Lines {
    double touched = 1, moved = 1;
  };
  void widen(Lines& lines, double apart_bytes, double count, double inside_bytes,
             double whole) const;
};

}  // namespace rlx::cost
