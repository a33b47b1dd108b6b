// --answer: checked, and handed to the library.
#include "tools/answers.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "graph/questions.hpp"

namespace rlx::tools {
namespace {

std::string check_answer(const std::string& text) {
  const std::size_t at = text.rfind('=');
  const std::string answer = at == std::string::npos ? "" : text.substr(at + 1);
  const bool good = at != 0 && (answer == "yes" || answer == "no");
  return good ? "" : fmt::format("({}) is neither QUESTION=yes nor QUESTION=no.", text);
}

void add_to_environment(const std::string& answer) {
  const char* const before = std::getenv("RLX_ANSWERS");
  const std::string all = before ? std::string(before) + "\n" + answer : answer;
  setenv("RLX_ANSWERS", all.c_str(), 1);
}

}  // namespace

void add_answer_option(CLI::App& app) {
  app.add_option_function<std::string>(
         "--answer", add_to_environment,
         "QUESTION=yes or QUESTION=no: the answer to a fusion question, as explain names it, "
         "whatever the gate says")
      ->check(check_answer)
      ->trigger_on_parse()
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

Status check_answers(const CompiledGraph& program) {
  const char* const answers = std::getenv("RLX_ANSWERS");
  if (!answers) return {};
  const Result<Explanation> plan = program.explain();
  if (!plan.ok()) return {};
  for (const auto& [question, answer] : answers_of(answers)) {
    const auto is_it = [&](const FusionQuestion& asked) { return asked.what == question; };
    if (std::ranges::none_of(plan->questions, is_it))
      return bad_input("The plan asks no question ({}); rlx explain names those that it asks.",
                       question);
  }
  return {};
}

}  // namespace rlx::tools
