// Convolutions in many thin groups.
#pragma once

#include <cstdint>

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// f32 convolutions by weights in groups that fill less than half a register of `lanes` elements,
/// in fewer and wider groups: several share one, with zeros where the weights of one meet the
/// channels of another. Finite values keep their sums to the last bit; an infinite one makes NaN of
/// its neighbours' sums. Groups with one channel in and up to a quarter of a register out, of which
/// there are registers full, become as many depthwise convolutions: no zero is multiplied. Those
/// that are depthwise stay.
Result<Graph> thin_groups(Graph graph, std::int64_t lanes);

}  // namespace rlx::passes
