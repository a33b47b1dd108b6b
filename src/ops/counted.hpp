// A number that counts the operations of a formula.
#pragma once

#include <memory>

namespace rlx {

/// Counts its additions, subtractions and multiplications.
struct Counted {
  std::shared_ptr<int> count;
  friend Counted operator+(const Counted& a, const Counted&) { return ++*a.count, a; }
  friend Counted operator-(const Counted& a, const Counted&) { return ++*a.count, a; }
  friend Counted operator*(const Counted& a, double) { return ++*a.count, a; }
};

}  // namespace rlx
