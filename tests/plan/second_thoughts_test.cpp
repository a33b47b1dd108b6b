// Short programs are planned again where the gate was nearly of the other opinion.
#include "plan/second_thoughts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost/presets.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

/// softmax((x w)^2): where the softmax has a kernel of its own both stay with one worker, in one
/// kernel two share the rows. Of `count` values.
FlatGraph softmax_of_squares(std::int64_t rows, int count = 1) {
  Graph graph;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    const Value x = graph.input("x" + n, f32, {rows, 160});
    const Value y = matmul(x, graph.param("w" + n, f32, {160, 111}));
    graph.output("y" + n, softmax(y * y, {.axis = 1}));
  }
  return flatten(passes::lower(std::move(graph), [](const Graph&, const Node&) { return false; })
                     .value())
      .value();
}

BuildOptions options_for(int threads) {
  const cost::MachineModel model = cost::model_of_rapids(false);
  return {.target = {codegen::Isa::avx512, "", "+avx512fp16"},
          .model = model,
          .threads = threads,
          .fusion = fusion_policy(model, threads, true)};
}

TEST(SecondThoughts, TakeWhatIsFasterInTheWholePlan) {
  const FlatGraph graph = softmax_of_squares(27);
  const BuildOptions options = options_for(2);
  const Plan first = build_plan(graph, options).value();
  const Plan second = build_plan_with_second_thoughts(graph, options).value();
  EXPECT_EQ(first.steps.size(), 2U);
  EXPECT_EQ(second.steps.size(), 1U);
  EXPECT_LT(second.predicted_ns, first.predicted_ns / 1.1);
  const auto of_whole = std::ranges::find_if(
      second.questions, [](const FusionQuestion& asked) { return asked.before_ns > 0; });
  ASSERT_NE(of_whole, second.questions.end());
  EXPECT_TRUE(of_whole->fused);
  EXPECT_EQ(of_whole->before_ns, first.predicted_ns);
  EXPECT_EQ(of_whole->after_ns, second.predicted_ns);
  EXPECT_DOUBLE_EQ(of_whole->score_ns, first.predicted_ns - second.predicted_ns);
  EXPECT_NEAR(
      of_whole->score_ns,
      options.fusion.gate.score_ns(of_whole->before, of_whole->after) - of_whole->work_added_ns,
      1e-6);
}

TEST(SecondThoughts, EachThatIsTakenHasItsTimes) {
  const FlatGraph graph = softmax_of_squares(27, 2);
  BuildOptions options = options_for(2);
  // Teams that begin soon: both gain by far.
  options.model.team = 264, options.model.member_start = 50;
  const Plan first = build_plan(graph, options).value();
  const Plan last = build_plan_with_second_thoughts(graph, options).value();
  EXPECT_EQ(first.steps.size(), 4U);
  EXPECT_EQ(last.steps.size(), 2U);
  double gains = 0;
  int taken = 0;
  for (const FusionQuestion& asked : last.questions) {
    if (asked.before_ns == 0) continue;
    ++taken;
    EXPECT_GT(asked.score_ns, 0) << asked.what;
    gains += asked.before_ns - asked.after_ns;
  }
  EXPECT_EQ(taken, 2);
  EXPECT_DOUBLE_EQ(gains, first.predicted_ns - last.predicted_ns);
}

TEST(SecondThoughts, LeaveAnswersOneThreadAndLongProgramsAlone) {
  const FlatGraph graph = softmax_of_squares(27);
  const Plan first = build_plan(graph, options_for(2)).value();
  BuildOptions answered = options_for(2);
  for (const FusionQuestion& asked : first.questions)
    answered.fusion.given[asked.what] = asked.fused;
  EXPECT_EQ(build_plan_with_second_thoughts(graph, answered).value().steps.size(), 2U);
  const FlatGraph large = softmax_of_squares(500);
  for (const auto& [of, threads] : {std::pair(&graph, 1), std::pair(&large, 2)}) {
    const BuildOptions options = options_for(threads);
    const Plan alone = build_plan(*of, options).value(),
               again = build_plan_with_second_thoughts(*of, options).value();
    EXPECT_EQ(again.steps.size(), alone.steps.size());
    EXPECT_EQ(again.predicted_ns, alone.predicted_ns);
  }
}

}  // namespace
}  // namespace rlx::plan
