// Measures a graph on the devices of this machine.
#pragma once

#include "rlx/cost.hpp"

namespace rlx {

/// Compiles and runs the graph on a device with zeros for inputs and params, and gives the best of
/// three runs in ns. Errors: unbound shapes, a device that is not there or cannot run the graph.
/// The graph must outlive the result.
RaceFunction race_on_this_machine(const Graph& graph);

/// The same race, but what was timed for this graph before is not timed again. Answers are a part
/// of the device's calibration; of a device that has none they last as long as the process.
RaceFunction timed_once(const Graph& graph, RaceFunction race);

}  // namespace rlx
