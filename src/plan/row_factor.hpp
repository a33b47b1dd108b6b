// A factor that all of a row has, taken out of the rows that a chain multiplies: one over the sum
// of a softmax.
#pragma once

#include <optional>

#include "codegen/loop.hpp"

namespace rlx::plan {

/// Where the rows of a chain are powers times a number of their own, rounded to fewer bits or not:
/// the nodes of both in the row epilogue of the first contraction. Powers are at most 1, so that
/// sums of their products are no larger than with the factor.
struct RowFactor {
  ScalarId powers = -1, factor = -1;
  bool rounded = false;  ///< the rows are their products, cast to another type
};
/// `exact`: nothing where rows are rounded, for powers are rounded to other numbers than shares.
std::optional<RowFactor> find_row_factor(const loop::Chain& chain, bool exact);

/// Stores the powers as rows and the factors in `buffer`, an element for each row; the second
/// contraction multiplies its sums by them.
void take_out_row_factor(loop::Chain& chain, const RowFactor& found, std::int32_t buffer);

}  // namespace rlx::plan
