// What the forms of a program's convolutions may cost in memory together.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace rlx {

/// What a layer in one form takes.
struct FormCost {
  double ns = std::numeric_limits<double>::infinity();  ///< no number: it cannot be planned
  double weight_bytes = 0;
  double arena_bytes = 0;  ///< which the layers of a program share
};

/// By layer and form; the first form is the layer as it is.
using FormCosts = std::vector<std::vector<FormCost>>;

/// Bytes that these forms take beyond the layers as they are: weights of all, the arena of the
/// largest.
double more_memory(const FormCosts& layers, const std::vector<std::size_t>& chosen);

/// The chosen forms where they take no more than `most` bytes beyond the layers as they are.
/// Otherwise layers fall back to smaller forms, first those that lose the least time for each byte.
std::vector<std::size_t> within_memory(const FormCosts& layers, std::vector<std::size_t> chosen,
                                       double most);

}  // namespace rlx
