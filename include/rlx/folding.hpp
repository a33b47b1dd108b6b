// What those who fold constants leave to the compiler.
#pragma once

#include "rlx/graph.hpp"

namespace rlx {

/// Is the node a quantised weight: a matrix or more whose numbers products multiply as the bytes
/// that they are? It stays in the graph though all its operands are constants.
bool stays_quantised(const Node& node);

}  // namespace rlx
