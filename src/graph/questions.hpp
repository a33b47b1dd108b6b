// Answers to fusion questions: the gate's, or one given in advance.
#pragma once

#include <map>
#include <string>

#include "rlx/cost.hpp"

namespace rlx {

/// Answers that count whatever the gate says, by the `what` of a question: to measure what the
/// other one costs.
using GivenAnswers = std::map<std::string, bool>;

/// Sets the question's score, less its work_added_ns, and its answer. True where it is fused.
bool decide(FusionQuestion& asked, const IoFusionGate& gate, const GivenAnswers& given = {});

/// The answer given to that question, else `otherwise`.
bool answer_to(const std::string& what, const GivenAnswers& given, bool otherwise);

}  // namespace rlx
