// The order of elements: that of numbers, with NaN above all of them.
#pragma once

#include "base/element.hpp"

namespace rlx {

template <class W>
bool ordered_less(const W& a, const W& b) {
  if (is_nan_value(b)) return !is_nan_value(a);
  return a < b;
}

}  // namespace rlx
