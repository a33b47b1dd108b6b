// Laws of teams: what the other core wrote never comes cheaper than what a core wrote itself, and
// cores that are far apart share less.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/measure_kernels.hpp"
#include "cost/presets.hpp"
#include "plan/build.hpp"
#include "plan/predict.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

Plan plan_of(const Graph& graph, const cost::MachineModel& model, int threads) {
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = model;
  options.threads = threads;
  return build_plan(flatten(graph).value(), options).value();
}

/// Two kernels, of which the second reads what the first wrote.
Graph two_steps(std::int64_t size) {
  Graph graph;
  const Value x = graph.input("x", f32, {size, size});
  const Value y = softmax(x, {.axis = 1});
  graph.output("z", tanh(transpose(y, {1, 0})));
  return graph;
}

/// What the plan's steps are predicted to take with so many threads each.
std::vector<double> times_with(Plan plan, const cost::MachineModel& model,
                               const std::vector<int>& threads) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) plan.steps[i].threads = threads[i];
  predict_times(plan, model);
  std::vector<double> times;
  for (const Step& step : plan.steps) times.push_back(step.predicted_ns);
  return times;
}

TEST(TeamCost, BytesOfTheOtherCoreAreNeverCheaperAndNothingToOneThread) {
  const cost::MachineModel model = cost::model_of_zen5();
  cost::KernelWork work = cost::work_of(cost::read_kernel(64, 4096), {}, model);
  const double alone = cost::time_of(work, model, 1).ns;
  double before = cost::time_of(work, model, 2).ns;
  for (const double bytes : {1e3, 1e4, 1e5, 1e6}) {
    work.crossing = bytes;
    const double ns = cost::time_of(work, model, 2).ns;
    EXPECT_GE(ns, before);
    EXPECT_DOUBLE_EQ(cost::time_of(work, model, 1).ns, alone);
    before = ns;
  }
  EXPECT_GT(before, alone / 2);
}

TEST(TeamCost, AStepAfterATeamTakesNoLessThanAfterOneThread) {
  const cost::MachineModel model = cost::model_of_zen5();
  for (const std::int64_t size : {64, 256, 512}) {
    const Plan plan = plan_of(two_steps(size), model, 1);
    ASSERT_EQ(plan.steps.size(), 2U);
    const double one_after_one = times_with(plan, model, {1, 1})[1];
    EXPECT_GT(times_with(plan, model, {2, 1})[1], one_after_one) << size;
    // A team keeps most of what it has shared out the same way before.
    EXPECT_GE(times_with(plan, model, {1, 2})[1], times_with(plan, model, {2, 2})[1]) << size;
  }
}

TEST(TeamCost, CoresThatAreFartherApartTakeNoLess) {
  const Plan plan = plan_of(two_steps(256), cost::model_of_zen5(), 1);
  std::vector<double> before(2, 0);
  for (const double rate : {100.0, 20.0, 5.0, 1.0}) {
    cost::MachineModel model = cost::model_of_zen5();
    model.other_core = rate;
    const std::vector<double> times = times_with(plan, model, {2, 2});
    for (std::size_t i = 0; i < times.size(); ++i) EXPECT_GE(times[i], before[i]) << rate;
    before = times;
  }
}

TEST(TeamCost, CoresThatAreFarApartDoNotShareLittleWork) {
  cost::MachineModel model = cost::model_of_zen5();
  const auto shared = [&] {
    const Plan plan = plan_of(two_steps(128), model, 2);
    return std::any_of(plan.steps.begin(), plan.steps.end(),
                       [](const Step& step) { return step.threads > 1; });
  };
  EXPECT_TRUE(shared());
  model.other_core = 0.01;
  model.barrier = 1e5;
  EXPECT_FALSE(shared());
}

TEST(TeamCost, WhatFitsTheCachesOfATeamIsNotReadFromFarther) {
  // More than a core's L2 and less than two of them: shared out it comes from nearer.
  const cost::MachineModel model = cost::model_of_zen5();
  Graph graph;
  const Value x = graph.input("x", f32, {600, 512});
  graph.output("y", softmax(tanh(x) * x, {.axis = 1}));
  const Plan plan = plan_of(graph, model, 1);
  const std::vector<int> ones(plan.steps.size(), 1), twos(plan.steps.size(), 2);
  const std::vector<double> alone = times_with(plan, model, ones);
  const std::vector<double> team = times_with(plan, model, twos);
  EXPECT_LT(team[0], 0.6 * alone[0]);
}

}  // namespace
}  // namespace rlx::plan
