// Plans short programs again where the gate was nearly of the other opinion.
#pragma once

#include "plan/build.hpp"

namespace rlx::plan {

/// The plan of a MIR graph, as build_plan() makes it. The gate sees pairs of regions, and not on
/// how many threads their steps will run: of a program so short that calling a team is a good part
/// of it, what the gate refused by little is planned whole, too, and taken where it is predicted to
/// be faster. Such questions have both times, and the score is their difference. Errors: those of
/// build_plan().
Result<Plan> build_plan_with_second_thoughts(const FlatGraph& graph, BuildOptions options);

}  // namespace rlx::plan
