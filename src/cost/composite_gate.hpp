// The gate's answer to whether a device's own kernel of a composite pays.
#pragma once

#include "graph/questions.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"

namespace rlx::cost {

/// Compares one kernel that reads the node's operands and writes its results with the nodes of its
/// body, by their static profiles; `given` as decide takes it. The node is a composite with a body
/// and static types.
FusionQuestion ask_composite(const Graph& graph, const Node& node, const IoFusionGate& gate,
                             const GivenAnswers& given = {});

}  // namespace rlx::cost
