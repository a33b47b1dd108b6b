// Answers to fusion questions.
#include "graph/questions.hpp"

namespace rlx {

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
