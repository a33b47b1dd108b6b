// Gathers whose places are constants: what kernels know of them.
#include <gtest/gtest.h>

#include "../cost/presets.hpp"
#include "computed.hpp"
#include "cost/kernel_cost.hpp"
#include "plan/build.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

/// The parts of all accesses that data tells, in the order of the kernels.
std::vector<loop::Indirect> parts_of(const Graph& graph) {
  std::vector<loop::Indirect> parts;
  const Plan plan = build_plan(flatten(graph).value(), {}).value();
  for (const loop::Kernel& kernel : plan.kernels) {
    const auto& nest = std::get<loop::Nest>(kernel.body);
    for (const loop::Access& access : nest.accesses)
      parts.insert(parts.end(), access.indirect.begin(), access.indirect.end());
    EXPECT_EQ(nest.error_buffer >= 0,
              std::ranges::any_of(parts, [](const auto& part) { return !part.within; }));
  }
  return parts;
}

template <class Integer>
Graph gather_of(const std::vector<Integer>& places, Dims dims = {}) {
  Graph graph;
  const Value x = graph.input("x", f32, {5, 40, 3});
  if (dims.empty()) dims = {static_cast<std::int64_t>(places.size())};
  const Value list = graph.constant(Tensor::of<Integer>(dims, std::span<const Integer>(places)));
  graph.output("y", relu(gather(x, list, 1)));
  return graph;
}

TEST(KnownPlaces, StepsAreTheLargest) {
  const auto part_of = [](const auto& places) {
    const auto parts = parts_of(gather_of(places));
    EXPECT_EQ(parts.size(), 1U);
    return parts.front();
  };
  const loop::Indirect near = part_of(std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3});
  EXPECT_TRUE(near.within);
  EXPECT_EQ(near.step, 1);
  EXPECT_EQ(part_of(std::vector<std::int64_t>{3, 5, 6, 8}).step, 2);
  const loop::Indirect back = part_of(std::vector<std::int64_t>{3, 5, 4, 8});
  EXPECT_TRUE(back.within);
  EXPECT_EQ(back.step, 0);
  for (const std::int64_t beyond : {-1, 40}) {
    const loop::Indirect part = part_of(std::vector<std::int64_t>{0, 1, 2, beyond});
    EXPECT_FALSE(part.within) << "the last one counts from the end, and 40 is an error";
    EXPECT_EQ(part.step, 0);
  }
}

// A range, one read backwards, one of equal places, windows: strides tell all of them.
TEST(KnownPlaces, EqualStepsAreStrides) {
  using List = std::vector<std::int64_t>;
  for (const auto& [places, dims] :
       {std::pair{List{3, 4, 5, 6}, Dims{4}}, std::pair{List{-1, -3, -5}, Dims{3}},
        std::pair{List{7, 7, 7}, Dims{3}}, std::pair{List{-40}, Dims{1}},
        std::pair{List{0, 1, 2, 2, 3, 4}, Dims{2, 3}},
        std::pair{List{9, 8, 5, 4, 1, 0}, Dims{3, 2}}}) {
    const Graph graph = gather_of(places, dims);
    EXPECT_TRUE(parts_of(graph).empty());
    testing::expect_computed(graph);
  }
  EXPECT_EQ(parts_of(gather_of(List{0, 1, 2, 2, 3, 5}, {2, 3})).size(), 1U);
}

TEST(KnownPlaces, AreTakenAsTheyAre) {
  testing::expect_computed(gather_of(std::vector<std::int64_t>{0, 1, 2, 2, 3, 5, 5, 6, 39, -1}));
  testing::expect_computed(gather_of(std::vector<std::int32_t>{9, 8, 8, 3, 39, 0, 1, 5, 2, 2}));
  for (const std::int64_t columns : {13, 20, 33, 60}) {
    Graph graph;
    const Value x = graph.input("x", f32, {1, 3, 9, 20});
    graph.output(
        "y", graph.add_one(op::Resize{.sizes = {1, 3, 18, columns}, .mode = op::ResizeMode::linear},
                           {x}));
    testing::expect_computed(graph);
  }
}

TEST(KnownPlaces, RowsBehindEachOtherDoNotJump) {
  const auto work_of = [](const std::vector<std::int64_t>& places) {
    const Plan plan = build_plan(flatten(gather_of(places)).value(), {}).value();
    EXPECT_EQ(plan.kernels.size(), 1U);
    return cost::work_of(plan.kernels[0], {}, cost::model_of_zen4());
  };
  const auto next = work_of({0, 1, 1, 2, 3, 3, 4}), far = work_of({0, 1, 1, 2, 4, 4, 39});
  const auto back = work_of({0, 1, 1, 2, 4, 3, 39}), unknown = work_of({0, 1, 1, 2, 4, 4, -1});
  EXPECT_EQ(next.jumps, 0);
  EXPECT_GT(far.jumps, 0);
  EXPECT_EQ(back.jumps, far.jumps);
  EXPECT_EQ(unknown.jumps, far.jumps);
  EXPECT_LT(back.compute, unknown.compute) << "nothing is checked";
}

TEST(KnownPlaces, RowsAreReadInRegisters) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 8, 100});
  std::vector<std::int32_t> twice, behind;
  for (std::int32_t i = 0; i < 200; ++i) {
    twice.push_back(i / 2);
    behind.push_back(std::min(i / 2 + 1, 99));
  }
  const auto at = [&](const std::vector<std::int32_t>& places) {
    return gather(x, graph.constant(Tensor::of<std::int32_t>({200}, places)), 2);
  };
  graph.output("y", at(twice) + at(behind));
  const Plan plan = build_plan(flatten(graph).value(), {}).value();
  ASSERT_EQ(plan.kernels.size(), 1U);
  const loop::Kernel& picked = plan.kernels[0];
  loop::Kernel apart = picked;
  for (loop::Access& access : std::get<loop::Nest>(apart.body).accesses)
    for (loop::Indirect& part : access.indirect) part.step = 0;
  for (const cost::MachineModel& model : {cost::model_of_zen4(), cost::model_of_zen3()})
    EXPECT_LT(cost::work_of(picked, {}, model).compute,
              0.4 * cost::work_of(apart, {}, model).compute)
        << model.family;
}

}  // namespace
}  // namespace rlx::plan
