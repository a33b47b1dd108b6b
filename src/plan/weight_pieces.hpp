// Packing parted into pieces, which threads write side by side.
#pragma once

#include <vector>

#include "plan/weights.hpp"

namespace rlx::plan {

/// A part of a weight that one thread writes: panels of one matrix, or the whole of a copy.
struct WeightPiece {
  const WeightPlan* weight = nullptr;
  Tensor source;
  std::byte* target = nullptr;  ///< of the whole weight
  std::int64_t batch = 0, first_panel = 0, last_panel = 0;
};

/// Appends the pieces of one weight; together they write weight.bytes from `target` on.
void add_pieces(const WeightPlan& weight, const Tensor& source, std::byte* target,
                std::vector<WeightPiece>& pieces);

/// Packs the panels, or copies the view.
void write_piece(const WeightPiece& piece);

/// Lets go of the part of the source that the piece was made of, where it is one range: rows of the
/// source, one for each column. Beside the packed weight little of a file is in memory then.
void forget_source(const WeightPiece& piece);

}  // namespace rlx::plan
