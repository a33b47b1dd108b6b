// Which values of a graph are known before any run.
#pragma once

#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

/// By node: does it depend on params and constants alone?
std::vector<bool> weight_only_nodes(const Graph& graph);

}  // namespace rlx
