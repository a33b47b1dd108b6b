// The softmax of a chain's rows, without its division: the product behind it multiplies its few
// columns by one over the row's sum instead.
#pragma once

#include <optional>

#include "codegen/llvm/contraction.hpp"

namespace rlx::codegen {

/// exp(x - max) over whole rows, in place, and 1 / sum of them by row.
struct SoftmaxRows {
  std::int32_t rows_buffer = -1, factors_buffer = -1;  ///< both local, f32
  std::int64_t rows_offset = 0, factors_offset = 0;    ///< elements
  std::int64_t row_elements = 0;                       ///< from row to row
  std::int64_t columns = 0;
};

/// The nest as such rows, where it is nothing else and a row's last register lies within the row.
/// `rows`: how many there are in all.
std::optional<SoftmaxRows> find_softmax_rows(const Emitter& emitter, const loop::Nest& nest,
                                             std::int64_t rows);

RowEpilogue emit_softmax_rows(Emitter& emitter, const SoftmaxRows& softmax);

}  // namespace rlx::codegen
