// Second thoughts about fusions.
#include "plan/second_thoughts.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.hpp"

namespace rlx::plan {
namespace {

/// Each plan more takes some tenths of a millisecond of a start.
constexpr std::size_t most_plans = 2;
constexpr double short_ns = 20e3;
/// Of the program, what the gate's opinion may be short of.
constexpr double nearly = 0.2;
/// Predictions differ by as much: a small gain is none.
constexpr double least_gain = 1.1;

/// What the gate refused by little, the nearest first.
std::vector<FusionQuestion> close_questions(const Plan& plan, const GivenAnswers& given) {
  std::vector<FusionQuestion> close;
  for (const FusionQuestion& asked : plan.questions) {
    if (!asked.fused && !given.contains(asked.what) && -asked.score_ns < nearly * plan.predicted_ns)
      close.push_back(asked);
  }
  std::ranges::stable_sort(close, std::greater(), &FusionQuestion::score_ns);
  close.resize(std::min(close.size(), most_plans));
  return close;
}

}  // namespace

Result<Plan> build_plan_with_second_thoughts(const FlatGraph& graph, BuildOptions options) {
  RLX_ASSIGN(Plan plan, build_plan(graph, options));
  if (!options.fusion.enabled || options.threads == 1 || plan.predicted_ns > short_ns) return plan;
  std::vector<FusionQuestion> taken;
  for (const FusionQuestion& close : close_questions(plan, options.fusion.given)) {
    options.fusion.given[close.what] = true;
    RLX_ASSIGN(Plan other, build_plan(graph, options));
    const auto asked = std::ranges::find(other.questions, close.what, &FusionQuestion::what);
    if (asked == other.questions.end() || other.predicted_ns * least_gain > plan.predicted_ns) {
      options.fusion.given.erase(close.what);
      continue;
    }
    asked->before_ns = plan.predicted_ns, asked->after_ns = other.predicted_ns;
    const double gain = asked->before_ns - asked->after_ns;
    asked->work_added_ns += asked->score_ns - gain;
    asked->score_ns = gain;
    for (const FusionQuestion& before : taken)
      std::ranges::replace_if(
          other.questions, [&](const FusionQuestion& q) { return q.what == before.what; }, before);
    taken.push_back(*asked);
    plan = std::move(other);
  }
  return plan;
}

}  // namespace rlx::plan
