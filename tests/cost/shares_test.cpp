// How a kernel's buffers fall on the workers that share its items.
#include "cost/shares.hpp"

#include <gtest/gtest.h>

#include "cost/kernel_cost.hpp"
#include "cost/presets.hpp"
#include "passes/passes.hpp"
#include "plan/build.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::cost {
namespace {

/// Those of the first kernel of a program.
std::vector<Share> shares_of(const Graph& graph) {
  plan::BuildOptions options;
  options.target = zen5_target;
  options.model = model_of_zen5();
  const plan::Plan plan = plan::build_plan(plan::flatten(graph).value(), options).value();
  return work_of(plan.kernels.at(0), {}, options.model).shares;
}

const Share* find(const std::vector<Share>& shares, bool written) {
  for (const Share& share : shares) {
    if (share.written == written) return &share;
  }
  return nullptr;
}

TEST(Shares, a_map_falls_in_order) {
  Graph graph;
  graph.output("y", tanh(graph.input("x", f32, {64, 300})));
  const std::vector<Share> shares = shares_of(graph);
  ASSERT_EQ(shares.size(), 2U);
  for (const Share& share : shares) {
    EXPECT_EQ(share.kind, Share::Kind::in_order);
    EXPECT_EQ(share.first, 0);
    EXPECT_EQ(share.last, 64 * 300 - 1);
  }
}

TEST(Shares, a_transpose_reads_or_writes_woven) {
  Graph graph;
  graph.output("y", tanh(transpose(graph.input("x", f32, {96, 200}), {1, 0})));
  const std::vector<Share> shares = shares_of(graph);
  const Share *read = find(shares, false), *written = find(shares, true);
  ASSERT_TRUE(read && written);
  EXPECT_NE(read->kind, written->kind);
  const Share& woven = read->kind == Share::Kind::woven ? *read : *written;
  EXPECT_EQ(woven.kind, Share::Kind::woven);
  EXPECT_EQ(woven.period, read->kind == Share::Kind::woven ? 200 : 96);
}

TEST(Shares, columns_are_shared_out_by_what_workers_take_at_once) {
  Graph sums;
  const Value x = sums.input("x", f32, {187, 400});
  sums.output("y", x - reduce(x, Reduction::max, {0}, true));
  const std::vector<Share> of_sums = shares_of(sums);
  const Share* written = find(of_sums, true);
  ASSERT_TRUE(written);
  EXPECT_EQ(written->kind, Share::Kind::woven);
  EXPECT_EQ(written->period, 400);
  EXPECT_EQ(written->unit % 16, 0) << "whole registers";
  EXPECT_LT(written->unit, 400);

  Graph product;
  const Value a = product.input("a", f32, {4, 64});
  product.output("y", matmul(a, product.param("w", f32, {64, 640})));
  const std::vector<Share> of_product = shares_of(product);
  written = find(of_product, true);
  ASSERT_TRUE(written);
  EXPECT_EQ(written->kind, Share::Kind::woven);
  EXPECT_EQ(written->unit % 16, 0) << "panels";
  EXPECT_LT(written->unit, 640);
}

TEST(Shares, windows_reach_over_though_they_are_higher_than_the_image) {
  for (const std::int64_t rows : {2, 3, 40}) {
    Graph graph;
    const Value image = graph.input("x", f32, {1, rows, 32, 48});
    const Value planes = transpose(image, {0, 3, 1, 2});
    const Value made = conv(planes, graph.param("w", f32, {48, 1, 5, 5}),
                            {.pad_low = {2, 2}, .pad_high = {2, 2}, .groups = 48});
    graph.output("y", transpose(made, {0, 2, 3, 1}));
    graph = passes::canonicalise(std::move(graph)).value();
    graph = passes::simplify(passes::channels_last(graph).value()).value();
    const std::vector<Share> shares = shares_of(passes::drop_dead(std::move(graph)).value());
    const Share* read = find(shares, false);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, Share::Kind::in_order) << rows;
    // Four rows, and four pixels of the next one.
    EXPECT_EQ(read->reach(), (4 * 32 + 4) * 48) << rows;
  }
}

TEST(Shares, windows_touch_the_channels_that_they_read) {
  const auto elements = [](std::int64_t all) {
    Graph graph;
    const Value image = graph.input("x", f32, {1, 40, 32, all});
    const Value part = slice(image, {0, 0, 0, 0}, {1, 40, 32, 48});
    const Value made = conv(transpose(part, {0, 3, 1, 2}), graph.param("w", f32, {48, 1, 3, 3}),
                            {.pad_low = {1, 1}, .pad_high = {1, 1}, .groups = 48});
    graph.output("y", transpose(made, {0, 2, 3, 1}));
    graph = passes::canonicalise(std::move(graph)).value();
    graph = passes::simplify(passes::channels_last(graph).value()).value();
    const std::vector<Share> shares = shares_of(passes::drop_dead(std::move(graph)).value());
    const Share* read = find(shares, false);
    return read ? static_cast<double>(read->elements) : 0;
  };
  EXPECT_EQ(elements(48), 40 * 32 * 48);
  EXPECT_NEAR(elements(480), 40 * 32 * 48, 40 * 48);
}

/// Whatever the last product would do alone.
TEST(Shares, workers_share_the_rows_of_a_chain) {
  Graph graph;
  const Value q = graph.input("q", f32, {64, 48}), k = graph.input("k", f32, {48, 32});
  graph.output("y", matmul(softmax(matmul(q, k), {.axis = 1}), graph.input("v", f32, {32, 640})));
  graph = passes::lower(std::move(graph), [](const Graph&, const Node&) { return false; }).value();
  graph = passes::simplify(passes::canonicalise(std::move(graph)).value()).value();
  plan::BuildOptions options;
  options.target = zen5_target;
  options.model = model_of_zen5();
  const plan::Plan plan = plan::build_plan(plan::flatten(graph).value(), options).value();
  ASSERT_TRUE(std::holds_alternative<loop::Chain>(plan.kernels.at(0).body));
  const KernelWork work = work_of(plan.kernels[0], {}, options.model);
  const Share* const written = find(work.shares, true);
  ASSERT_TRUE(written);
  EXPECT_EQ(written->kind, Share::Kind::in_order);
}

TEST(Shares, what_rows_have_in_common_everybody_reads) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 300}), row = graph.input("row", f32, {300});
  graph.output("y", x * row);
  int common = 0, parts = 0;
  for (const Share& share : shares_of(graph)) {
    common += share.kind == Share::Kind::each && share.last == 299;
    parts += share.kind == Share::Kind::in_order;
  }
  EXPECT_EQ(common, 1);
  EXPECT_EQ(parts, 2);
}

TEST(Shares, a_slice_begins_where_it_lies) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 300});
  graph.output("y", tanh(slice(x, {16, 0}, {48, 300})));
  const std::vector<Share> shares = shares_of(graph);
  const Share* read = find(shares, false);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->first, 16 * 300);
  EXPECT_EQ(read->last, 48 * 300 - 1);
}

TEST(Shares, rows_of_a_product_read_their_part_of_a) {
  Graph graph;
  const Value x = graph.input("x", f32, {512, 64});
  graph.output("y", matmul(x, graph.param("w", f32, {64, 32})));
  const std::vector<Share> shares = shares_of(graph);
  const Share *read = find(shares, false), *written = find(shares, true);
  ASSERT_TRUE(read && written);
  EXPECT_EQ(read->kind, Share::Kind::in_order);
  EXPECT_EQ(written->kind, Share::Kind::in_order);
}

TEST(Shares, columns_of_one_row_are_made_from_all_of_it) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 512});
  graph.output("y", matmul(x, graph.param("w", f32, {512, 2048})));
  const std::vector<Share> shares = shares_of(graph);
  const Share *read = find(shares, false), *written = find(shares, true);
  ASSERT_TRUE(read && written);
  EXPECT_EQ(read->kind, Share::Kind::each);
  EXPECT_EQ(written->kind, Share::Kind::in_order);
}

}  // namespace
}  // namespace rlx::cost
