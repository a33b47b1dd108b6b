// Quantised models: from what exporters write (integers made real before an op and integers again
// behind it) to products of bytes.
#pragma once

#include <vector>

#include "rlx/cost.hpp"
#include "rlx/graph.hpp"

namespace rlx::passes {

/// dequantize -> conv or matmul -> quantize becomes the integer op with its scales behind it, and
/// what only moves numbers (max pools, views, concatenations, relu) moves the bytes themselves.
/// Divisions by scales become products with their inverses: results differ by one step at most, and
/// only where the quotient lies within rounding of a half.
Result<Graph> quantised(Graph graph);

/// Integer matmuls and convolutions as products dot(cast(a), cast(b)) in i32, exact modulo 2^32.
/// With `byte_dots`, instructions that multiply u8 with i8, these are the operands: zero points
/// are corrections behind the product, other quantised dtypes move by 128. Elsewhere operands are
/// i16 with their zero points taken off, but for products of a few rows, which wait for their
/// weights: those stay bytes. What does not fit stays as it is. Appends a claim for each to
/// `claims`, where given.
Result<Graph> byte_operands(const Graph& graph, bool byte_dots,
                            std::vector<Explanation::Claim>* claims);

}  // namespace rlx::passes
