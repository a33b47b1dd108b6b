// Products of integers that kernels multiply in fewer bits than they add.
#pragma once

#include "rlx/graph.hpp"

namespace rlx {

/// Is the value a cast to i32 of u8, i8 or i16?
bool widens_integers(const Graph& graph, ValueId id);

/// What no magnitude of the integers exceeds, by their dtype, or by how they are made of narrower
/// ones: casts, differences, and what moves elements.
std::int64_t most_magnitude(const Graph& graph, ValueId id);

/// Is the node a matmul or convolution in i32 of two such casts? Kernels read what is cast.
bool multiplies_narrow_integers(const Graph& graph, const Node& node);

}  // namespace rlx
