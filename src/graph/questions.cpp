// Answers to fusion questions.
#include "graph/questions.hpp"

#include <algorithm>

namespace rlx {

GivenAnswers answers_of(std::string_view text) {
  GivenAnswers answers;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t at = line.rfind('=');
    if (at == std::string_view::npos) continue;
    const std::string_view answer = line.substr(at + 1);
    if (answer == "yes" || answer == "no")
      answers[std::string(line.substr(0, at))] = answer == "yes";
  }
  return answers;
}

bool answer_to(const std::string& what, const GivenAnswers& given, bool otherwise) {
  const auto found = given.find(what);
  return found != given.end() ? found->second : otherwise;
}

bool decide(FusionQuestion& asked, const IoFusionGate& gate, const GivenAnswers& given) {
  asked.score_ns = gate.score_ns(asked.before, asked.after) - asked.work_added_ns;
  asked.fused = answer_to(asked.what, given, asked.score_ns >= gate.min_gain_ns);
  return asked.fused;
}

}  // namespace rlx
