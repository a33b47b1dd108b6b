// --answer: answers to fusion questions, for verbs that look at plans.
#pragma once

#include <string>
#include <utility>

#include "tools/options.hpp"

namespace rlx::tools {

/// Adds --answer QUESTION=yes|no, which may come several times.
void add_answer_option(CLI::App& app, ModelOptions& options);

/// "QUESTION=yes" as question and answer; the command line has checked the form.
std::pair<std::string, bool> split_answer(const std::string& option);

}  // namespace rlx::tools
