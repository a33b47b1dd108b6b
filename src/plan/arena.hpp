// Packing of buffers with known lifetimes into one arena. Knows nothing of graphs: only sizes and
// steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rlx/result.hpp"

namespace rlx::plan {

/// A buffer that is live from step `first` to step `last`, both included. Two that share a step do
/// not share bytes.
struct Interval {
  std::int64_t bytes = 0;
  std::int32_t first = 0, last = 0;
  std::int64_t alignment = 64;  ///< a power of two
};

struct ArenaPlan {
  std::vector<std::int64_t> offsets;  ///< of each interval, in bytes; 0 for an empty one
  std::int64_t bytes_total = 0;
  /// No arena can be smaller: the largest sum of live bytes at any step, each rounded up to its
  /// alignment.
  std::int64_t bytes_lower_bound = 0;
};

/// Places all intervals. The same intervals give the same plan. Tries several greedy orders, then
/// improves the best one by moving the intervals that stick out, until the lower bound is met or a
/// fixed amount of work is spent (some milliseconds). Errors: bad_input for a negative size, last <
/// first, an alignment that is no power of two, or more than 2^60 bytes.
Result<ArenaPlan> plan_arena(std::span<const Interval> intervals);

/// Moves intervals within the room that the plan leaves them, so that those which take turns with
/// the same bytes have their middles at the same place as far as may be: of two workers each then
/// writes what it wrote before, and takes fewer lines from the other. Nothing grows.
void align_middles(std::span<const Interval> intervals, ArenaPlan& plan);

}  // namespace rlx::plan
