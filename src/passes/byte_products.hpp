// Matmuls as products of bytes: rows of A quantised when they are made, columns of B beforehand.
#pragma once

#include "rlx/ops.hpp"

namespace rlx::passes {

/// Rows (the last axis) as u8 from their least value to their largest.
struct ByteRows {
  Value values;  ///< f32, read through a cast from u8
  Value scales;  ///< f32, the last axis is 1: what a step of the row is worth
  Value lows;    ///< likewise: what 0 stands for
};

/// No value is clipped.
ByteRows quantised_rows(const Value& a);

/// dot(a, b) for a B of rank 2 whose axis `contracted` meets the rows: columns are quantised
/// symmetrically by their largest magnitude, sums are exact, then scaled. `dot` has no batch axes.
Value byte_product(Graph& graph, const op::DotGeneral& dot, const ByteRows& rows, const Value& b,
                   std::int64_t contracted);

}  // namespace rlx::passes
