// The shape that a reshape gives, with numbers and symbols.
#pragma once

#include "rlx/graph.hpp"

namespace rlx {

/// `wanted` with its -1 (or its one unknown dim) computed from x. Symbols are compared as products
/// of symbols: what can be shown to differ is an error, what cannot be compared is taken on trust
/// until the symbols are bound.
Result<Shape> reshaped_shape(const Type& x, const Shape& wanted);

}  // namespace rlx
