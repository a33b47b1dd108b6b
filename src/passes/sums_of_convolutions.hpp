// Sums of convolutions of one value.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Convolutions of one value by weights that are added up, as one by the sum of their weights:
/// kernels of several sizes lie over each other as their padding puts them, where that has no more
/// taps than they have together, and what is added of the value itself, by a factor for each
/// channel or as it is, becomes a part of the middle tap. So blocks of RepVGG and MobileOne are
/// made for training. f32, before channels are turned last. Sums add in another order.
Result<Graph> sums_of_convolutions(Graph graph);

}  // namespace rlx::passes
