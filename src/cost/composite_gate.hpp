// The gate's answer to whether a device's own kernel of a composite pays.
#pragma once

#include <functional>

#include "graph/questions.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"

namespace rlx::cost {

/// The profile of a graph as a device would run it; an error where it cannot tell.
using Profiler = std::function<Result<GraphIoProfile>(const Graph&)>;

/// Compares the node as one kernel with the nodes of its body: both as `planned`, or by their
/// static profiles where that fails; `given` as decide takes it. The node is a composite with a
/// body and static types.
FusionQuestion ask_composite(const Graph& graph, const Node& node, const IoFusionGate& gate,
                             const Profiler& planned, const GivenAnswers& given = {});

}  // namespace rlx::cost
