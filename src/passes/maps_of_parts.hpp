// Maps behind a concatenation of pieces of one value.
#pragma once

#include <vector>

#include "graph/questions.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// f(concat(a, b), c) = concat(f(a, c[low]), f(b, c[high])) where a and b are pieces of one value,
/// be they mapped, and nothing else reads the concatenation: halves of rotary positions. Asks the
/// gate; `questions` gets what was asked, with the answers.
Result<Graph> maps_of_parts(Graph graph, const IoFusionGate& gate,
                            std::vector<FusionQuestion>* questions = nullptr,
                            const GivenAnswers& given = {});

}  // namespace rlx::passes
