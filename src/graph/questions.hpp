// Answers to fusion questions: the gate's, or one given in advance.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "rlx/cost.hpp"

namespace rlx {

/// Answers that count whatever the gate says, by the `what` of a question: to measure what the
/// other one costs.
using GivenAnswers = std::map<std::string, bool>;

/// "QUESTION=yes" or "QUESTION=no", one a line; other lines are left out.
GivenAnswers answers_of(std::string_view text);

/// Sets the question's score, less its work_added_ns, and its answer. True where it is fused.
bool decide(FusionQuestion& asked, const IoFusionGate& gate, const GivenAnswers& given = {});

/// The answer given to that question, else `otherwise`.
bool answer_to(const std::string& what, const GivenAnswers& given, bool otherwise);

}  // namespace rlx
