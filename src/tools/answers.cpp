// --answer: its form.
#include "tools/answers.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace rlx::tools {
namespace {

std::string check_answer(const std::string& text) {
  const std::size_t at = text.rfind('=');
  const std::string answer = at == std::string::npos ? "" : text.substr(at + 1);
  const bool good = at != 0 && (answer == "yes" || answer == "no");
  return good ? "" : fmt::format("({}) is neither QUESTION=yes nor QUESTION=no.", text);
}

}  // namespace

std::pair<std::string, bool> split_answer(const std::string& option) {
  const std::size_t at = option.rfind('=');
  return {option.substr(0, at), option.substr(at + 1) == "yes"};
}

void add_answer_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--answer", options.answers,
                 "QUESTION=yes or QUESTION=no: the answer to a fusion question, as explain names "
                 "it, whatever the gate says")
      ->check(check_answer)
      ->allow_extra_args(false);
}

}  // namespace rlx::tools
