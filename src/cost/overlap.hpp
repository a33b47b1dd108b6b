// How the units and streams of a core hide each other's work: figures of a kind of core, fitted to
// kernels of all kinds beside their measured times, that no calibration measures.
#pragma once

#include <array>
#include <cstdint>

#include "cost/level.hpp"

namespace rlx::cost {

/// As fitted on Zen 5 on 2026-11-22, unless said otherwise: families that were measured since have
/// theirs in fitted_overlaps.hpp.
struct Overlap {
  /// Times of a lone stream's rate at which kernels read and write each level: more, where their
  /// instructions hide a part of it; less, where streams stand in each other's way.
  std::array<double, level_count> reads{1, 1, 1, 1}, writes{1, 1, 1, 1};
  /// Time of reading R, of which a recurrence reads a panel of each gate side by side, beside that
  /// of the streams of nests; by level.
  std::array<double, level_count> recurrent{1, 1.15, 1.15, 1};
  /// Of what caches of each level hold, the part that what is touched once passes through before it
  /// pushes out what came before it.
  std::array<double, 3> room{0.9, 0.72, 0.72};
  /// Of an addition to a product, the part that shows beside that: additions may have units of
  /// their own. Where a register takes two steps none does.
  double added_product = 1;
  /// Of the time of an element that lies alone, the part that shows beside others.
  double gather = 1;
  /// Of the time of an element that lies alone, what a guard adds to it.
  double guarded_lane = 0;
  /// Of what the other units do beside the busiest one, the part that shows.
  double beside_busiest = 0.1;
  /// The same of vector units and the divider, where both have work: results of divisions are late.
  double beside_divider = 0.1;
  /// Of the time of a register's division or root, what a single lane's takes.
  double lone_division = 1;
  /// Cycles from an element of a sum to the next of its column.
  double sum_latency = 3;
  /// Of what sums of columns would wait, and work hides, the part that shows even where that is
  /// little beside the work. 0: as much as it fills of the work; measured on Zen 3 alone.
  double short_chains = 1;
  /// Additions' times for one more element in a maximum that keeps NaN.
  double max_steps = 2.5;
  /// Cycles from an element of such a maximum to the next of its column.
  double max_latency = 6;
  /// Of the time that the first pass over a block of rows waits for its last sums, the part that
  /// shows.
  double first_pass = 1;
  /// Of what the busiest unit does for a window: additions may have units beside those of products.
  double window = 1;
  /// Of what divisions behind a window's sums take by themselves, the part that shows beside them.
  double window_end = 0;
  /// Of the time of a contraction's bytes from memory, the part that is beside its instructions.
  double far_beside = 0.4;
  /// The same where blocks ask for the panel behind theirs themselves, if it is more.
  double asked_beside = 0;
  /// ns of a vector of a row that does not follow its forerunner.
  double vector_start = 0.35;
  /// Of the time that lines of another core's caches take, the part that is waited for: by who
  /// reads them, and by who writes them. Fitted on Zen 4; for others what was waited for there
  /// before, in the same proportion.
  double fetched = 0.12, taken = 0.2;
  /// Of the instructions that go with such lines, the part that hides them.
  double crossing_beside = 0;
  /// Where a line that one core has written belongs to the next that reads it: of the price of
  /// such a line, what the first core pays to read it again. 0: it belongs to both.
  double fetched_back = 0;
  /// ns until the first such line is there that is read by a worker who is alone.
  double first_fetched = 0;
  /// Times more that lines are waited for which are read in pieces or alone, and not asked for
  /// ahead.
  double fetched_alone = 0;
  /// Times more that lines are waited for which windows read beyond their worker's part: the other
  /// has only just written them.
  double fetched_beyond = 0;
  /// ns more for a line that two workers write a part of, at about the same time.
  double torn_line = 0;
  /// Times more that lines are waited for which are written in pieces or alone.
  double taken_alone = 0;
  /// Of the time that lines take which are written, the part that is beside instructions.
  double taken_beside = 1;
  /// Times more that lines are waited for which are taken by more streams than are fetched ahead;
  /// and the part that is not where so many are read, whose first lines come all at once.
  double taken_apart = 0, fetched_together = 0;
  /// Times more that lines of another core are waited for which the blocks of a contraction read:
  /// small pieces of many rows, in which nothing finds a stream.
  double fetched_by_blocks = 0;
  /// Of the p-norm in which the times of instructions and of streams add up: 1 is a sum.
  double power = 3;
  /// The same of maps whose streams never break; 0: as any other.
  double stream_power = 0;
  /// The same for contractions, whose panels lie side by side and are asked for early.
  double block_power = 3;
  /// The same where blocks ask for the panel behind theirs themselves; 0: as if they did not.
  double asked_power = 0;
  /// The same of what contractions read from L2, by itself, where it comes earlier than what is
  /// farther away; 0: as that.
  double near_power = 0;
  /// Of the time that streams of rows take to begin anew, the part that shows.
  double row_starts = 1;
  /// Cycles of a call whose branches go elsewhere than in the kernel before.
  double call = 0;
  /// Accesses' times of a register that lies across two lines, by its load, by that of a window's
  /// tap and by its store, and the bytes from which on registers do so: smaller ones seldom cross.
  /// Of windows that guards cut along the lanes, loads of what another one has read take at most
  /// two.
  double load_across = 1.7, tap_across = 1.7, store_across = 2;
  std::int64_t across_bytes = 64;
  /// The same of the stores of turned tiles, which come from many rows at once; 0: as of others.
  double turned_across = 0;
  /// Cycles in which two registers exchange halves, or every other element.
  double exchange = 1;
  /// Cycles that a store of one column under a mask waits behind that of the row before.
  double masked_store = 15;
  /// ns more for a line that registers across two lines read, by level.
  std::array<double, level_count> line_across{};
  /// Cycles that a vector takes along whose lanes a guard may fail: positions are compared as
  /// 64-bit integers, and the access is masked. In a reduction taps that are written out share
  /// comparisons with their neighbours, looped ones do not; where all of a row is one round of the
  /// loop, its positions are known when code is made.
  double guard = 3, tap_guard = 1.3, looped_guard = 1.3, known_guard = 1.3;
  /// The same of a guard in a reduction that does not run along the lanes: mostly bounds of a loop.
  double clipped_guard = 1;
  /// Cycles in which an index is read, checked and multiplied before the row that it names.
  double index = 5;
  /// Times of a row's first bytes that a row costs whose place only data tells: the next row's
  /// place is known while this one is read, but its stream begins anew.
  double jump = 0.7;
  /// Of what the busiest unit does in a step of a contraction's block; and cycles for a register of
  /// sums to start from nothing and to be stored.
  double block_step = 1, block_end = 0.5;
  /// Instructions that a core looks ahead while a block of a contraction ends.
  double block_ahead = 600;
  /// Of the time of a contraction's bytes that come again from L3: blocks ask late for them.
  double again_from_l3 = 1;
  /// Of an exponential in the rows of attention, which are at most 0.
  double share_of_exp = 0.75;
  /// Additions' times that a logistic function takes with masked registers, besides its
  /// exponential: an approximation of the quotient, two multiply-adds and a selection.
  double logistic = 8;
  /// Stores, and loads, for a value of a map that finds no register free; and registers that an
  /// operation's result needs beside those of what is loaded and stored.
  double spills = 0, live_results = 0;
  /// Cycles in which a lane is taken out of its register and stored alone; 0: as one is read, by a
  /// store of a register's width.
  double store_lane = 0;
  /// Streams of a map that a core fetches ahead at once, and ns more for a line of further ones, by
  /// level.
  double streams = 8;
  std::array<double, level_count> further_line{};
  /// ns more for a line of a map's stream where more streams than a set of L1 has ways run through
  /// the same sets: what was fetched ahead, or is being written, is driven out before its turn.
  double crowded_line = 0;
  /// ns more for a row of a map whose forerunner ended half a page away or farther, by level.
  std::array<double, level_count> far_row{};
  /// ns more for a line that a map stores in rows behind each of which lines are left out: what is
  /// fetched ahead there is not wanted; by level.
  std::array<double, level_count> store_with_gap{};
  /// ns for a line that nothing fetched ahead, by level.
  std::array<double, level_count> lone_line{0, 0.3, 1.2, 3};
  /// ns more for a line that turned tiles read or write in pieces, by level.
  std::array<double, level_count> turned_line{};
  /// Rows of a turned tile that a set of L1 holds, and cycles of a store where it holds no more.
  double turned_ways = 12, crowded_store = 6;
  /// Cycles of a run that a turned tile reads where the sets of L1 lose its line before the next
  /// tile reads the rest of it.
  double crowded_turn = 0;
};

}  // namespace rlx::cost
