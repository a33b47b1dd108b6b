// --answer: answers to fusion questions, for verbs that look at plans.
#pragma once

namespace CLI {
class App;
}

namespace rlx::tools {

/// Adds --answer QUESTION=yes|no, which may come several times. The library reads such answers from
/// RLX_ANSWERS, one a line; the option adds to it.
void add_answer_option(CLI::App& app);

}  // namespace rlx::tools
