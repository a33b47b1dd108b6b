// Laws of teams: what the other core wrote never comes cheaper than what a core wrote itself, and
// cores that are far apart share less. And what they fetch from each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/measure_kernels.hpp"
#include "cost/presets.hpp"
#include "graph/winograd.hpp"
#include "plan/build.hpp"
#include "plan/predict.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

Plan plan_of(const Graph& graph, const cost::MachineModel& model, int threads,
             const codegen::Target& target = cost::zen5_target) {
  BuildOptions options;
  options.target = target;
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

/// What the members of a team fetch from each other at every step.
std::vector<Crossing> crossings_with(Plan plan, const cost::MachineModel& model,
                                     const std::vector<int>& threads) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) plan.steps[i].threads = threads[i];
  const Whereabouts where = whereabouts(plan, Pieces(plan), model, 2);
  std::map<const Step*, cost::KernelWork> works;
  const auto work_of = [&](const Step& step) -> const cost::KernelWork& {
    const auto [known, is_new] = works.try_emplace(&step);
    if (is_new)
      known->second = cost::work_of(plan.kernels[static_cast<std::size_t>(step.index)], {}, model);
    return known->second;
  };
  const std::map<const Step*, Crossing> found =
      crossings(plan, Pieces(plan, owner_pieces), where.data_of_team, work_of, model.overlap);
  std::vector<Crossing> result;
  for (const Step& step : plan.steps) result.push_back(found.at(&step));
  return result;
}

/// Two products of square matrices, the second one of what the first one made, turned or not: more
/// than one kernel, and a worker has its rows of each result.
Graph two_products(std::int64_t size, bool turned) {
  Graph graph;
  const Value x = graph.input("x", f32, {size, size}), w = graph.param("w", f32, {size, size});
  const Value y = matmul(x, w);
  graph.output("z", matmul(turned ? transpose(y, {1, 0}) : y, w));
  return graph;
}

TEST(Crossing, rows_that_a_worker_wrote_it_has) {
  const cost::MachineModel model = cost::model_of_zen5();
  const Plan plan = plan_of(two_products(128, false), model, 1);
  ASSERT_EQ(plan.steps.size(), 2U);
  for (const Crossing& crossing : crossings_with(plan, model, {2, 2})) {
    EXPECT_EQ(crossing.all_read(), 0);
    EXPECT_EQ(crossing.all_written(), 0);
  }
}

TEST(Crossing, half_of_its_part_of_what_is_turned_a_worker_gets_from_the_other) {
  const cost::MachineModel model = cost::model_of_zen5();
  constexpr double bytes = 128 * 128 * 4;
  const Plan plan = plan_of(two_products(128, true), model, 1);
  ASSERT_EQ(plan.steps.size(), 2U);
  const std::vector<Crossing> both = crossings_with(plan, model, {2, 2});
  EXPECT_NEAR(both[1].all_read(), bytes / 4, 0.05 * bytes);
  // What both read since is taken from one of them by who writes it.
  EXPECT_NEAR(both[0].all_written(), bytes / 2, 0.05 * bytes);
}

TEST(Crossing, windows_reach_over_into_rows_of_the_other) {
  const cost::MachineModel model = cost::model_of_zen5();
  // Two workers have the same number of the product's blocks of rows.
  constexpr std::int64_t size = 24, channels = 64;
  constexpr double row = size * channels * 4;
  const auto fetched = [&](std::int64_t window) {
    Graph graph;
    const Value y = matmul(graph.input("x", f32, {size * size, channels}),
                           graph.param("w", f32, {channels, channels}));
    const op::WindowReduce pool{.kind = Reduction::max,
                                .window = {window, window},
                                .strides = {1, 1},
                                .pad_low = {window / 2, window / 2},
                                .pad_high = {window / 2, window / 2},
                                .channels_last = true};
    graph.output("z", graph.add_one(pool, {reshape(y, {1, size, size, channels})}));
    const Plan plan = plan_of(graph, model, 1);
    EXPECT_EQ(plan.steps.size(), 2U);
    const std::vector<Crossing> found = crossings_with(plan, model, {2, 2});
    EXPECT_DOUBLE_EQ(found.at(1).beyond[0] + found.at(1).beyond[1], found.at(1).all_read());
    // Who wrote those rows takes them back in the next run.
    EXPECT_NEAR(found.at(0).all_written(), found.at(1).all_read(), 0.2 * row);
    return found.at(1).all_read();
  };
  EXPECT_EQ(fetched(1), 0);
  EXPECT_NEAR(fetched(3), row, 0.2 * row);
  EXPECT_NEAR(fetched(5), 2 * row, 0.2 * row);
}

TEST(Crossing, who_makes_pixels_turns_their_channels) {
  const cost::MachineModel model = cost::model_of_zen5();
  for (const std::int64_t channels : {3, 64}) {
    Graph graph;
    constexpr std::int64_t pixels = 28 * 28;
    const Value y =
        matmul(graph.input("x", f32, {pixels, 64}), graph.param("w", f32, {64, channels}));
    graph.output("z", tanh(transpose(y, {1, 0})));
    const Plan plan = plan_of(graph, model, 1);
    ASSERT_EQ(plan.steps.size(), 2U);
    const double row = static_cast<double>(channels) * 4, bytes = pixels * row;
    // Blocks of lanes do not end where the rows of a product do.
    EXPECT_LE(crossings_with(plan, model, {2, 2})[1].all_read(), 0.2 * bytes) << channels;
  }
}

/// A third of the columns of a product, by head: the first worker made all of them and more.
TEST(Crossing, heads_of_one_third_of_a_product_come_from_who_made_it) {
  const cost::MachineModel model = cost::model_of_zen5();
  constexpr std::int64_t rows = 32, heads = 16, width = 64;
  Graph graph;
  const Value qkv =
      matmul(graph.input("x", f32, {rows, 64}), graph.param("w", f32, {64, 3 * heads * width}));
  const Value q = reshape(slice(qkv, {0, 0}, {rows, heads * width}), {rows, heads, width});
  graph.output("y", matmul(transpose(q, {1, 0, 2}), graph.param("v", f32, {heads, width, width})));
  graph.output("k", slice(qkv, {0, heads * width}, {rows, 3 * heads * width}));
  const Plan plan = plan_of(graph, model, 1);
  std::size_t products = 0;
  const std::vector<Crossing> found =
      crossings_with(plan, model, std::vector<int>(plan.steps.size(), 2));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (plan.steps[i].name != "matmul" || products++ == 0) continue;
    constexpr double of_second = rows * heads / 2 * width * 4;
    EXPECT_NEAR(found[i].all_read(), of_second, 0.05 * of_second);
  }
  EXPECT_EQ(products, 2U);
}

/// The transform of an image and its products.
Graph products_of_points(std::int64_t tiles, std::int64_t channels) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 4 * tiles + 2, 4 * tiles + 2, channels});
  const Value w = graph.param("w", f32, {36, channels, channels});
  graph.output("y", matmul(graph.add_one(op::WinogradImage{4}, {x}), w));
  return graph;
}

TEST(Crossing, who_makes_points_multiplies_them) {
  constexpr std::int64_t side = 8, channels = 64;
  const cost::MachineModel model = cost::model_of_zen5();
  Plan plan = plan_of(products_of_points(side, channels), model, 2);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(std::get<loop::Nest>(plan.kernels[0].body).parts, 2);
  EXPECT_EQ(crossings_with(plan, model, {2, 2})[1].all_read(), 0);
  // Shared out by tiles a worker has half of each point's.
  std::get<loop::Nest>(plan.kernels[0].body).parts = 1;
  constexpr double bytes = 36 * side * side * channels * 4;
  EXPECT_NEAR(crossings_with(plan, model, {2, 2})[1].all_read(), bytes / 4, 0.05 * bytes);
}

/// The pass of an image over columns (0), or over rows (1).
loop::Nest& pass_of_image(Plan& plan, std::size_t number) {
  return std::get<loop::Nest>(std::get<loop::Strips>(plan.kernels.at(0).body).stages.at(number));
}

/// Workers that share out the points of an image share out its tiles instead.
void share_out_tiles(Plan& plan) {
  pass_of_image(plan, 0).parts = 1;
  loop::Nest& rows = pass_of_image(plan, 1);
  const auto drop_first = [](auto& list) { list.erase(list.begin()); };
  drop_first(rows.extents);
  --rows.parallel_dims;
  rows.extents[static_cast<std::size_t>(--rows.lead)] *= 2;
  for (loop::Access& access : rows.accesses) drop_first(access.strides);
  for (loop::Store& store : rows.stores) drop_first(store.access.strides);
}

TEST(Crossing, who_makes_points_in_two_passes_multiplies_them) {
  constexpr std::int64_t side = 8, channels = 64;
  const cost::MachineModel model = cost::model_of_narrow_zen4();
  Plan plan = plan_of(products_of_points(side, channels), model, 2, cost::zen2_target);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(pass_of_image(plan, 0).parts, 2);
  EXPECT_EQ(crossings_with(plan, model, {2, 2})[1].all_read(), 0);
  share_out_tiles(plan);
  constexpr double bytes = 36 * side * side * channels * 4;
  EXPECT_NEAR(crossings_with(plan, model, {2, 2})[1].all_read(), bytes / 4, 0.05 * bytes);
}

TEST(Crossing, who_makes_tiles_multiplies_them_where_the_matrix_is_small) {
  const cost::MachineModel model = cost::model_of_zen5();
  const Plan plan = plan_of(products_of_points(10, 32), model, 2);
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(std::get<loop::Nest>(plan.kernels[0].body).parts, 1);
  // But for pieces that two workers share.
  constexpr double bytes = 36 * 10 * 10 * 32 * 4;
  EXPECT_LT(crossings_with(plan, model, {2, 2})[1].all_read(), 0.05 * bytes);
}

TEST(Crossing, of_what_one_worker_made_the_other_fetches_half) {
  const cost::MachineModel model = cost::model_of_zen5();
  constexpr double bytes = 128 * 128 * 4;
  const Plan plan = plan_of(two_products(128, false), model, 1);
  ASSERT_EQ(plan.steps.size(), 2U);
  for (const Crossing& crossing : crossings_with(plan, model, {1, 1}))
    EXPECT_EQ(crossing.all_read() + crossing.all_written(), 0);
  const std::vector<Crossing> turns = crossings_with(plan, model, {1, 2});
  EXPECT_NEAR(turns[1].all_read(), bytes / 2, 0.1 * bytes);
  EXPECT_NEAR(turns[0].all_written(), bytes / 2, 0.1 * bytes);  // the next run
}

TEST(Crossing, where_lines_move_to_who_reads_them_that_worker_may_write_them) {
  cost::MachineModel model = cost::model_of_zen5();
  constexpr double bytes = 128 * 128 * 4;
  Graph graph;
  const Value x = graph.input("x", f32, {128, 128}), w = graph.param("w", f32, {128, 128});
  const Value y = matmul(x, w);                   // by both, each half of the rows
  graph.output("z", matmul(y, w));                // by one, who reads all rows
  graph.output("again", tanh(matmul(y, w) + y));  // by both
  const Plan plan = plan_of(graph, model, 1);
  ASSERT_EQ(plan.steps.size(), 3U);
  const auto found = [&](double back) {
    model.overlap.fetched_back = back;
    return crossings_with(plan, model, {2, 1, 2});
  };
  // The other one reads its half for the second time: it shares it, or gets it back for a part of
  // the price.
  EXPECT_EQ(found(0)[2].all_read(), 0);
  EXPECT_NEAR(found(0.25)[2].all_read(), 0.25 * bytes / 2, 0.05 * bytes);
  for (const double back : {0.0, 0.25})
    EXPECT_NEAR(found(back)[1].all_read(), bytes / 2, 0.05 * bytes) << back;
}

TEST(Crossing, lines_that_two_workers_write_a_part_of_are_taken_back) {
  const cost::MachineModel model = cost::model_of_zen5();
  constexpr std::int64_t rows = 200;
  const auto written = [&](std::int64_t columns) {
    Graph graph;
    const Value x = graph.input("x", f32, {rows, columns});
    graph.output("y", x - reduce(x, Reduction::max, {0}, true));
    const Plan plan = plan_of(graph, model, 1);
    EXPECT_EQ(plan.steps.size(), 1U);
    const Crossing crossing = crossings_with(plan, model, {2}).at(0);
    EXPECT_NEAR(64 * crossing.torn_lines, crossing.all_written(), 64);
    return crossing.all_written();
  };
  // Both have half of each row's columns: whole lines, or whole registers of whole lines, or parts
  // of lines on both sides.
  EXPECT_EQ(written(64), 0);
  EXPECT_EQ(written(80), 0);
  EXPECT_NEAR(written(58), 2 * 64 * rows, 64);
}

TEST(Crossing, what_no_cache_of_a_core_holds_crosses_nothing) {
  const cost::MachineModel model = cost::model_of_zen5();
  const Plan plan = plan_of(two_products(2048, true), model, 1);
  ASSERT_EQ(plan.steps.size(), 2U);
  constexpr double bytes = 2048.0 * 2048 * 4;
  for (const Crossing& crossing : crossings_with(plan, model, {2, 2}))
    EXPECT_LT(crossing.all_read() + crossing.all_written(), 0.15 * bytes);
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

TEST(TeamCost, BytesOfTheOtherCoreAreNeverCheaperAndNothingToOneThread) {
  const Plan plan = plan_of(two_products(256, true), cost::model_of_zen5(), 1);
  ASSERT_EQ(plan.steps.size(), 2U);
  const std::vector<double> alone = times_with(plan, cost::model_of_zen5(), {1, 1});
  std::vector<double> before(2, 0);
  for (const double rate : {100.0, 10.0, 1.0, 0.1}) {
    cost::MachineModel model = cost::model_of_zen5();
    model.other_core = {rate, rate};
    const std::vector<double> team = times_with(plan, model, {2, 2});
    for (std::size_t i = 0; i < team.size(); ++i) {
      EXPECT_GT(team[i], before[i]) << rate;  // both read or take what the other one wrote
      EXPECT_GT(team[i], alone[i] / 2) << rate;
      EXPECT_DOUBLE_EQ(times_with(plan, model, {1, 1})[i], alone[i]);
    }
    before = team;
  }
}

TEST(TeamCost, CoresThatAreFartherApartTakeNoLess) {
  const Plan plan = plan_of(two_steps(256), cost::model_of_zen5(), 1);
  std::vector<double> before(2, 0);
  for (const double rate : {100.0, 20.0, 5.0, 1.0}) {
    cost::MachineModel model = cost::model_of_zen5();
    model.other_core = {rate, rate};
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
  model.other_core = {0.01, 0.01};
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
