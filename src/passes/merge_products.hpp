// Products that can be made at once: of one value with several weights, of slices with one weight.
#pragma once

#include <vector>

#include "graph/questions.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// Products of one value with several weights become one, with the weights side by side; where the
/// parts are only read through views (projections of queries, keys and values) and the gate agrees.
/// Wants canonical contractions. `questions` gets what was asked, with the answers.
Result<Graph> merge_products(Graph graph, const IoFusionGate& gate,
                             std::vector<FusionQuestion>* questions = nullptr,
                             const GivenAnswers& given = {});

/// concat(f(x[0]), f(x[1]), ...) = f(x) where f holds products with weights of their own: layers
/// that were unrolled over slices of one value. Asks as merge_products does.
Result<Graph> stack_products(Graph graph, const IoFusionGate& gate,
                             std::vector<FusionQuestion>* questions = nullptr,
                             const GivenAnswers& given = {});

}  // namespace rlx::passes
