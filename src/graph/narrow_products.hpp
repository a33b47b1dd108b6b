// Products whose operands kernels read in fewer bits than they add in.
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

/// Is the value a cast to f32 of f16 or bf16?
bool widens_halves(const Graph& graph, ValueId id);

/// Has a matmul or convolution so few rows that it waits for B? Then its kernel widens halves of B
/// as it reads them; more rows would widen them again and again.
bool waits_for_b(const Graph& graph, const Node& product);

}  // namespace rlx
