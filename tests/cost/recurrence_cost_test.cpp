// Which recurrent layers walk over their steps in one kernel, and which make them one by one.
#include <gtest/gtest.h>

#include "cost/presets.hpp"
#include "cost/recurrence_cost.hpp"
#include "cost/touched.hpp"
#include "plan/build.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

struct Layer {
  std::int64_t units = 512, batch = 1, steps = 32;
  Direction direction = Direction::forward;
  bool linear_before_reset = true;
};

/// The plan of a GRU.
Plan plan_of(const Layer& layer, int threads) {
  const auto& [units, batch, steps, direction, linear_before_reset] = layer;
  const std::int64_t directions = direction == Direction::bidirectional ? 2 : 1;
  Graph graph;
  const Value x = graph.input("x", f32, {steps, batch, 16});
  const Value w = graph.param("w", f32, {directions, 3 * units, 16});
  const Value r = graph.param("r", f32, {directions, 3 * units, units});
  const op::Gru gru{.direction = direction, .linear_before_reset = linear_before_reset};
  graph.output("y", graph.add(Op(gru), Values{x, w, r})[0]);
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = cost::model_of_zen4();
  options.threads = threads;
  return build_plan(flatten(graph).value(), options).value();
}

TEST(RecurrenceCost, ThreadsShareTheStepsOfLargeLayers) {
  const Plan plan = plan_of({}, 2);
  ASSERT_EQ(plan.loops.size(), 1u);
  EXPECT_EQ(plan.loops[0].trips, 32);
  ASSERT_EQ(plan.loops[0].steps.size(), 1u);
  EXPECT_EQ(plan.loops[0].steps[0].threads, 2);
}

TEST(RecurrenceCost, OneThreadHasNobodyToShareWith) { EXPECT_TRUE(plan_of({}, 1).loops.empty()); }

TEST(RecurrenceCost, SmallLayersDoNotPayForBarriers) {
  EXPECT_TRUE(plan_of({.units = 16}, 2).loops.empty());
  EXPECT_TRUE(plan_of({.units = 64, .direction = Direction::bidirectional}, 2).loops.empty());
}

TEST(RecurrenceCost, RowsThatFillTheThreadsAlreadyShareTheWork) {
  EXPECT_TRUE(plan_of({.units = 256, .batch = 8}, 2).loops.empty());
}

TEST(RecurrenceCost, StepsThatCannotBeMadeAloneAreNotAsked) {
  EXPECT_TRUE(plan_of({.steps = 1}, 2).loops.empty());
  EXPECT_TRUE(plan_of({.linear_before_reset = false}, 2).loops.empty());
}

TEST(RecurrenceCost, WorkersShareOutProductsOfSingleStepsAndOfLargeDirections) {
  const cost::MachineModel rapids = cost::model_of_rapids(false), zen4 = cost::model_of_zen4();
  const auto pays = [](std::int64_t steps, std::int64_t directions, std::int64_t units,
                       const cost::MachineModel& model) {
    return cost::pays_as_products(steps, directions, 4 * 4 * units * units, model);
  };
  EXPECT_TRUE(pays(1, 1, 256, rapids));
  EXPECT_FALSE(pays(1, 1, 128, rapids));
  // L2 has 2 MB, or one.
  EXPECT_FALSE(pays(20, 2, 256, rapids));
  EXPECT_TRUE(pays(20, 2, 384, rapids));
  EXPECT_FALSE(pays(20, 2, 128, zen4));
  EXPECT_TRUE(pays(20, 2, 256, zen4));
  EXPECT_FALSE(pays(20, 1, 512, rapids));
}

// Inputs and outputs lie side by side for all steps; R is read anew.
TEST(RecurrenceCost, AStepTouchesItsOwnPartAlone) {
  const Plan plan = plan_of({}, 2);
  ASSERT_EQ(plan.loops.size(), 1u);
  const loop::Kernel& step = plan.kernels[static_cast<std::size_t>(plan.loops[0].steps[0].index)];
  const auto& r = std::get<loop::Recurrence>(step.body);
  const auto whole = [&](std::int32_t buffer) {
    const loop::Buffer& all = step.buffers[static_cast<std::size_t>(buffer)];
    return static_cast<double>(all.elements) * static_cast<double>(size_of(all.dtype));
  };
  const auto touched = [&](std::int32_t buffer) {
    return cost::touched_bytes(step, static_cast<std::size_t>(buffer));
  };
  EXPECT_EQ(touched(r.r_buffer), whole(r.r_buffer));
  for (const std::int32_t buffer : {r.accesses[0].buffer, r.stores[0].access.buffer})
    EXPECT_EQ(touched(buffer), whole(buffer) / 32);
}

/// What reading R, which lies in that cache, takes twice the time for: the layer.
TEST(RecurrenceCost, RIsReadAtARateOfItsOwn) {
  const auto slower = [](std::int64_t units, std::size_t level) {
    const Plan plan = plan_of({.units = units}, 1);
    const auto walk = std::ranges::find_if(plan.kernels, [](const loop::Kernel& kernel) {
      return std::holds_alternative<loop::Recurrence>(kernel.body);
    });
    cost::MachineModel model = cost::model_of_zen4();
    const double before = cost::predict(*walk, {}, model, 1).ns;
    model.overlap.recurrent[level] *= 2;
    return cost::predict(*walk, {}, model, 1).ns / before;
  };
  EXPECT_GT(slower(128, 1), 1.1);  // 192 KB
  EXPECT_EQ(slower(128, 2), 1);
  EXPECT_GT(slower(512, 2), 1.1);  // 3 MB
  EXPECT_LT(slower(512, 1), 1.01);
}

}  // namespace
}  // namespace rlx::plan
