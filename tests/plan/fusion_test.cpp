// The planner of fusions: what it asks, what it joins, what it must leave apart.
#include "plan/fusion.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/presets.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

using ::testing::HasSubstr;

Regions regions_of(const Graph& graph, const FusionPolicy& policy = {}) {
  return form_regions(flatten(graph).value(), policy);
}

/// Never pays.
FusionPolicy unwilling() {
  FusionPolicy policy;
  policy.gate.min_gain_ns = 1e18;
  return policy;
}

Graph chain_graph() {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("y", exp(x + x) * x);
  return graph;
}

std::vector<const FusionQuestion*> of_kind(const Regions& regions, std::string_view kind) {
  std::vector<const FusionQuestion*> list;
  for (const FusionQuestion& question : regions.questions) {
    if (question.kind == kind) list.push_back(&question);
  }
  return list;
}

TEST(Fusion, a_chain_of_maps_is_one_kernel_and_each_join_a_question) {
  const Regions regions = regions_of(chain_graph());
  ASSERT_EQ(regions.list.size(), 1u);
  ASSERT_EQ(regions.questions.size(), 2u);
  const FusionQuestion& last = regions.questions[1];
  EXPECT_TRUE(last.fused);
  EXPECT_EQ(last.before.kernel_launches, 2);
  EXPECT_EQ(last.after.kernel_launches, 1);
  // x once, y once.
  EXPECT_EQ(last.after.device_traffic_bytes, 2 * 64 * 64 * 4);
  EXPECT_EQ(last.after.host_output_bytes, 64 * 64 * 4);
  EXPECT_DOUBLE_EQ(last.score_ns,
                   IoFusionGate::preset(Device::cpu).score_ns(last.before, last.after));
  EXPECT_THAT(last.what, HasSubstr("join"));
}

TEST(Fusion, a_kernel_takes_no_more_than_2048_nodes_of_a_long_chain) {
  Graph graph;
  const Value x = graph.input("x", f32, {16});
  Value sum = x;
  for (int i = 0; i < 5000; ++i) sum = sum + x;
  graph.output("y", sum);
  const Regions regions = regions_of(graph);
  std::size_t nodes = 0;
  for (const Region& region : regions.list) {
    EXPECT_LE(region.nodes.size(), 2048u);
    nodes += region.nodes.size();
  }
  EXPECT_EQ(nodes, 5000u);
  EXPECT_LT(regions.list.size(), 10u);
}

/// A curve over dense points, and the largest one of each row.
Graph rows_of_curves(std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {190, columns});
  graph.output("y", max_over(tanh(x), {1}, true));
  return graph;
}

TEST(Fusion, maps_stay_apart_from_rows_whose_last_register_would_be_nearly_empty) {
  FusionPolicy policy;
  policy.expression_ns = [](std::span<const ScalarNode> nodes) {
    return std::ranges::any_of(nodes,
                               [](const ScalarNode& node) { return node.op == ScalarOp::tanh; })
               ? 5.0
               : 0.1;
  };
  EXPECT_EQ(regions_of(rows_of_curves(32), policy).list.size(), 1u);
  const Regions apart = regions_of(rows_of_curves(17), policy);
  EXPECT_EQ(apart.list.size(), 2u);
  // 190 rows, each in two registers instead of 17 of 16 parts of one.
  ASSERT_FALSE(apart.questions.empty());
  for (const FusionQuestion& question : apart.questions) {
    EXPECT_FALSE(question.fused) << question.what;
    EXPECT_DOUBLE_EQ(question.work_added_ns, 190 * (2 - 17 / 16.0) * 5);
  }
  // What costs little joins all the same.
  policy.expression_ns = [](std::span<const ScalarNode>) { return 0.01; };
  EXPECT_EQ(regions_of(rows_of_curves(17), policy).list.size(), 1u);
}

TEST(Fusion, answers_given_in_advance_count_whatever_the_gate_says) {
  FusionPolicy policy;
  const std::string first = regions_of(chain_graph()).questions[0].what;
  policy.given = {{"something else", true}, {first, false}};
  const Regions parted = regions_of(chain_graph(), policy);
  EXPECT_EQ(parted.questions[0].what, first);
  EXPECT_FALSE(parted.questions[0].fused);
  EXPECT_GE(parted.questions[0].score_ns, policy.gate.min_gain_ns);

  FusionPolicy refusing = unwilling();
  refusing.given[first] = true;
  const Regions regions = regions_of(chain_graph(), refusing);
  EXPECT_EQ(regions.list.size(), 2u);
  EXPECT_LT(regions.questions[0].score_ns, refusing.gate.min_gain_ns);
  EXPECT_TRUE(regions.questions[0].fused);
}

TEST(Fusion, a_gate_that_refuses_is_obeyed_and_its_questions_are_kept) {
  const Regions regions = regions_of(chain_graph(), unwilling());
  EXPECT_EQ(regions.list.size(), 3u);
  EXPECT_EQ(of_kind(regions, "consumer").size(), 2u);
  EXPECT_EQ(of_kind(regions, "recompute").size(), 2u);
  for (const FusionQuestion& question : regions.questions) EXPECT_FALSE(question.fused);
  EXPECT_TRUE(regions_of(chain_graph(), {.enabled = false}).questions.empty());
}

TEST(Fusion, bias_activation_and_residual_follow_a_product) {
  Graph graph;
  const Value x = graph.input("x", f32, {32, 64}), w = graph.param("w", f32, {64, 64}),
              b = graph.param("b", f32, {64});
  graph.output("y", relu(matmul(x, w) + b) + x);
  const Regions regions = regions_of(graph);
  ASSERT_EQ(regions.list.size(), 1u);
  EXPECT_EQ(regions.list[0].kind, Region::Kind::contraction);
}

TEST(Fusion, a_map_that_only_an_epilogue_reads_joins_it) {
  Graph graph;
  const Value x = graph.input("x", f32, {32, 64}), w = graph.param("w", f32, {64, 64}),
              r = graph.input("r", f32, {32, 64});
  graph.output("y", matmul(x, w) + exp(r));
  const Regions regions = regions_of(graph);
  ASSERT_EQ(regions.list.size(), 1u);
  EXPECT_EQ(regions.list[0].nodes.size(), 3u);
}

TEST(Fusion, what_a_product_reads_as_its_operand_is_stored_before) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64}), w = graph.param("w", f32, {64, 64});
  const Value positive = relu(x);
  graph.output("y", matmul(positive, w) + positive);
  const Regions regions = regions_of(graph);
  ASSERT_EQ(regions.list.size(), 2u);
  EXPECT_EQ(regions.list[0].kind, Region::Kind::nest);
  EXPECT_EQ(regions.list[1].kind, Region::Kind::contraction);
}

TEST(Fusion, a_path_around_forbids_a_join) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64}), w = graph.param("w", f32, {64, 64});
  const Value start = exp(x);
  const Value product = matmul(start, w);
  graph.output("y", start * transpose(product, {1, 0}));
  const Regions regions = regions_of(graph);
  EXPECT_EQ(regions.list.size(), 3u);
}

TEST(Fusion, a_softmax_is_one_kernel) {
  Graph graph;
  const Value x = graph.input("x", f32, {8, 100});
  const Value shifted = exp(x - max_over(x, {1}, true));
  graph.output("y", shifted / sum(shifted, {1}, true));
  EXPECT_EQ(regions_of(graph).list.size(), 1u);
}

TEST(Fusion, maps_that_read_the_same_value_run_side_by_side) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("a", exp(x));
  graph.output("b", sqrt(x));
  const Regions regions = regions_of(graph);
  EXPECT_EQ(regions.list.size(), 1u);
  ASSERT_EQ(of_kind(regions, "sibling").size(), 1u);
  // x is read once less.
  const FusionQuestion& asked = *of_kind(regions, "sibling")[0];
  EXPECT_EQ(asked.before.device_traffic_bytes - asked.after.device_traffic_bytes, 64 * 64 * 4);
}

/// Two maps that read halves of a value of so many rows.
Graph maps_of_halves(std::int64_t rows) {
  Graph graph;
  const Value x = graph.input("x", f32, {2 * rows, 64});
  graph.output("a", exp(slice(x, {0, 0}, {rows, 64})));
  graph.output("b", sqrt(slice(x, {rows, 0}, {2 * rows, 64})));
  return graph;
}

TEST(Fusion, maps_of_different_parts_run_side_by_side_where_these_are_small) {
  EXPECT_EQ(regions_of(maps_of_halves(64)).list.size(), 1u);
  const Regions large = regions_of(maps_of_halves(1024));
  EXPECT_EQ(large.list.size(), 2u);
  EXPECT_TRUE(of_kind(large, "sibling").empty());
}

/// A map of `small` dims that two kernels of other dims read.
Graph shared_map(std::int64_t small, std::int64_t large) {
  Graph graph;
  const Value s = graph.input("s", f32, {small}), x = graph.input("x", f32, {large, small}),
              z = graph.input("z", f32, {large + 1, small});
  const Value scale = sqrt(s);
  graph.output("a", x * scale);
  graph.output("b", z * scale);
  return graph;
}

TEST(Fusion, a_map_is_made_anew_where_that_is_cheaper_than_storing_it) {
  const Regions regions = regions_of(shared_map(1, 8));
  ASSERT_EQ(of_kind(regions, "recompute").size(), 1u);
  EXPECT_TRUE(of_kind(regions, "recompute")[0]->fused);
  ASSERT_EQ(regions.list.size(), 2u);
  for (const Region& region : regions.list) EXPECT_EQ(region.recomputed.size(), 1u);
}

TEST(Fusion, a_map_that_would_be_made_too_often_is_stored) {
  const Regions regions = regions_of(shared_map(64, 1'000));
  ASSERT_EQ(of_kind(regions, "recompute").size(), 1u);
  const FusionQuestion& asked = *of_kind(regions, "recompute")[0];
  EXPECT_FALSE(asked.fused);
  EXPECT_GT(asked.work_added_ns, 0);
  EXPECT_LT(asked.score_ns, 0);
  EXPECT_EQ(regions.list.size(), 3u);
}

/// A difference from what `shape` can be repeated to, the sum of its squares by column, and both
/// together again behind another sum.
Graph columns_that_meet_again(Shape shape) {
  Graph graph;
  const Value x = graph.input("x", f32, {1'000, 64}), other = graph.input("other", f32, shape);
  const Value difference = x - other;
  const Value squares = sum(difference * difference, {0}, true);
  graph.output("y", difference / sqrt(sum(squares, {1}, true)));
  return graph;
}

TEST(Fusion, a_map_within_a_kernel_is_made_anew_where_that_is_cheaper_than_storing_it) {
  const Graph graph = columns_that_meet_again({64});
  const Regions regions = regions_of(graph);
  ASSERT_EQ(of_kind(regions, "recompute").size(), 1u);
  const FusionQuestion& asked = *of_kind(regions, "recompute")[0];
  EXPECT_TRUE(asked.fused);
  EXPECT_THAT(asked.what, HasSubstr("sub"));
  EXPECT_EQ(asked.before.kernel_launches, asked.after.kernel_launches);
  // The difference is not written; who reads it reads the columns beside x.
  EXPECT_EQ(asked.before.device_traffic_bytes - asked.after.device_traffic_bytes,
            (1'000 * 64 - 64) * 4);
  int with_it = 0;
  for (const Region& region : regions.list) with_it += region.recomputed.size() == 1 ? 1 : 0;
  EXPECT_EQ(with_it, 2);
}

TEST(Fusion, a_map_within_a_kernel_that_reads_more_than_it_makes_is_stored) {
  const Graph graph = columns_that_meet_again({1'000, 64});
  const Regions regions = regions_of(graph);
  ASSERT_EQ(of_kind(regions, "recompute").size(), 1u);
  EXPECT_FALSE(of_kind(regions, "recompute")[0]->fused);
  for (const Region& region : regions.list) EXPECT_TRUE(region.recomputed.empty());
  // The kernel is whole again.
  const auto& nodes = graph.nodes();
  const auto is_difference = [](const Node& node) { return node.op.is<op::Sub>(); };
  const auto at = static_cast<std::int32_t>(
      std::find_if(nodes.begin(), nodes.end(), is_difference) - nodes.begin());
  const auto home = std::ranges::find_if(regions.list, [&](const Region& region) {
    return std::ranges::binary_search(region.nodes, at);
  });
  ASSERT_NE(home, regions.list.end());
  EXPECT_EQ(home->nodes.size(), 3u);  // the difference, its square, their sum
}

Graph product_with_norm(std::int64_t rows) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, 384}), w = graph.param("w", f32, {384, 384});
  const Value y = matmul(x, w);
  graph.output("y", y / sum(abs(y), {1}, true));
  return graph;
}

TEST(Fusion, whole_rows_join_a_product_that_does_not_take_longer_by_that) {
  const FusionPolicy policy = fusion_policy(cost::model_of_zen5(), 2, true);
  EXPECT_EQ(regions_of(product_with_norm(1'024), policy).list.size(), 1u);
  const FusionPolicy alone = fusion_policy(cost::model_of_zen5(), 1, true);
  EXPECT_EQ(regions_of(product_with_norm(16), alone).list.size(), 1u);
  const Regions shared = regions_of(product_with_norm(16), policy);
  EXPECT_EQ(shared.list.size(), 2u);
  const auto refused = std::find_if(shared.questions.begin(), shared.questions.end(),
                                    [](const FusionQuestion& asked) { return !asked.fused; });
  ASSERT_NE(refused, shared.questions.end());
  EXPECT_GT(refused->work_added_ns, 1'000);
}

TEST(Fusion, reductions_of_the_same_value_are_one_pass) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("largest", max_over(x, {1}, true));
  graph.output("total", sum(x, {1}, true));
  graph.output("power", sum(x * x, {1}, true));
  const Regions regions = regions_of(graph);
  ASSERT_EQ(regions.list.size(), 1u);
  // x once, and three columns.
  const FusionQuestion& last = regions.questions.back();
  EXPECT_EQ(last.after.device_traffic_bytes, (64 * 64 + 3 * 64) * 4);
}

TEST(Fusion, reductions_over_other_axes_stay_apart) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("rows", sum(x, {1}, true));
  graph.output("columns", sum(x, {0}, true));
  EXPECT_EQ(regions_of(graph).list.size(), 2u);
}

TEST(Fusion, a_region_stores_every_value_that_others_read) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64}), y = graph.input("y", f32, {64, 64});
  const Value total = x + y;
  graph.output("total", total);
  graph.output("row", sum(total, {1}, true));
  graph.output("exp", exp(total));
  EXPECT_EQ(regions_of(graph).list.size(), 1u);
}

TEST(Fusion, rows_that_a_product_alone_reads_are_made_within_it) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64}), w = graph.param("w", f32, {64, 64}),
              s = graph.param("s", f32, {64});
  graph.output("y", relu(matmul(relu(x * s), w)));
  const Regions regions = regions_of(graph);
  ASSERT_EQ(regions.list.size(), 1u);
  ASSERT_EQ(regions.list[0].before.size(), 1u);
  EXPECT_EQ(regions.list[0].before[0].kind, Region::Kind::nest);
  ASSERT_EQ(of_kind(regions, "prologue").size(), 1u);
  const FusionQuestion& asked = *of_kind(regions, "prologue")[0];
  EXPECT_EQ(asked.before.device_traffic_bytes - asked.after.device_traffic_bytes, 2 * 64 * 64 * 4);
  EXPECT_EQ(regions_of(graph, unwilling()).list.size(), 4u);
}

TEST(Fusion, few_rows_are_not_made_within_a_product_that_threads_share) {
  const auto graph_of = [](std::int64_t rows) {
    Graph graph;
    const Value x = graph.input("x", f32, {rows, 384}), w = graph.param("w", f32, {384, 384});
    graph.output("y", matmul(relu(x), w));
    return graph;
  };
  const FusionPolicy policy = fusion_policy(cost::model_of_zen5(), 2, true);
  const Regions few = regions_of(graph_of(16), policy);
  ASSERT_EQ(of_kind(few, "prologue").size(), 1u);
  EXPECT_FALSE(of_kind(few, "prologue")[0]->fused);
  EXPECT_GT(of_kind(few, "prologue")[0]->work_added_ns, 1'000);
  EXPECT_EQ(few.list.size(), 2u);
  EXPECT_EQ(regions_of(graph_of(1'024), policy).list.size(), 1u);
  const FusionPolicy alone = fusion_policy(cost::model_of_zen5(), 1, true);
  EXPECT_EQ(regions_of(graph_of(16), alone).list.size(), 1u);
}

TEST(Fusion, the_same_graph_gives_the_same_questions) {
  const Regions first = regions_of(shared_map(8, 16)), second = regions_of(shared_map(8, 16));
  ASSERT_EQ(first.questions.size(), second.questions.size());
  for (std::size_t i = 0; i < first.questions.size(); ++i) {
    EXPECT_EQ(first.questions[i].what, second.questions[i].what);
    EXPECT_EQ(first.questions[i].score_ns, second.questions[i].score_ns);
  }
}

}  // namespace
}  // namespace rlx::plan
