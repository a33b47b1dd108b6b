// Products whose operand repeats each part of a batch.
#pragma once

#include <vector>

#include "graph/questions.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"
#include "rlx/result.hpp"

namespace rlx::passes {

/// A product over a batch of g * r parts, one of whose operands is g parts that are repeated r
/// times (each by itself, or all together), becomes one over two axes, along one of which that
/// operand is broadcast: as a view, where the repetition would be a copy (keys and values that
/// groups of heads share). So does what follows the product, until its axis is merged with another.
/// Wants canonical contractions and reductions. Asks the gate; `questions` gets what was asked,
/// with the answers.
Result<Graph> split_batches(Graph graph, const IoFusionGate& gate,
                            std::vector<FusionQuestion>* questions = nullptr,
                            const GivenAnswers& given = {});

}  // namespace rlx::passes
