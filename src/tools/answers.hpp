// --answer: answers to fusion questions, for verbs that look at plans.
#pragma once

namespace CLI {
class App;
}

#include "rlx/runtime.hpp"

namespace rlx::tools {

/// Adds --answer QUESTION=yes|no, which may come several times. The library reads such answers from
/// RLX_ANSWERS, one a line; the option adds to it.
void add_answer_option(CLI::App& app);

/// Errors: an answer to a question that the program's plan did not ask. A program that data splits
/// is not checked: its parts are planned when they run.
Status check_answers(const CompiledGraph& program);

}  // namespace rlx::tools
