// The cut of a chain's rows into items and register blocks.
#include "codegen/llvm/chain_plan.hpp"

#include <gtest/gtest.h>

#include <array>

namespace rlx::codegen {
namespace {

TEST(ChainPlan, register_blocks_cover_all_rows_and_differ_by_one) {
  for (std::int64_t rows = 1; rows <= 70; ++rows) {
    for (const std::int64_t most : {1, 4, 6, 14}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, at most " << most);
      const RowCut cut = cut_rows(rows, most);
      EXPECT_LE(cut.height, most);
      EXPECT_GE(cut.tall_blocks, 1);
      EXPECT_EQ(cut.tall_blocks * cut.height + cut.short_blocks * (cut.height - 1), rows);
      EXPECT_EQ(cut.tall_blocks + cut.short_blocks, (rows + most - 1) / most);
    }
  }
}

ContractionPlan second_plan(std::int64_t batches, std::int64_t rows, std::int64_t height) {
  ContractionPlan plan;
  plan.batches = batches;
  plan.rows = rows;
  plan.block_rows = height;
  plan.row_blocks = plan.short_blocks = (rows + height - 1) / height;
  return plan;
}

TEST(ChainPlan, items_cover_all_rows_and_none_is_empty) {
  for (const std::int64_t batches : {1, 6, 200}) {
    for (const std::int64_t rows : {1, 5, 16, 49, 64, 196, 577, 1500}) {
      for (const std::int64_t columns : {16, 512, 6000}) {
        SCOPED_TRACE(::testing::Message() << batches << " of " << rows << " rows, " << columns);
        const std::array<loop::Buffer, 1> buffers{
            loop::Buffer{DType::f32, batches * rows * columns, true, true}};
        const ChainPlan plan = plan_chain(buffers, nullptr, second_plan(batches, rows, 6));
        EXPECT_GE(plan.last_rows(), 1);
        EXPECT_LE(plan.last_rows(), plan.group_rows);
        EXPECT_EQ(plan.items(), batches * plan.groups);
        EXPECT_LE(plan.group_rows * columns * 4, 200 * 1024);  // stays in the cache
      }
    }
  }
}

TEST(ChainPlan, few_items_of_a_batch_are_even) {
  const std::array<loop::Buffer, 1> buffers{loop::Buffer{DType::f32, 49 * 768, true, true}};
  const ChainPlan plan = plan_chain(buffers, nullptr, second_plan(1, 49, 6));
  EXPECT_EQ(plan.groups, 2);
  EXPECT_EQ(plan.group_rows, 25);
}

TEST(ChainPlan, every_block_of_an_item_asks_for_its_part_of_a_panel) {
  ContractionPlan stage = second_plan(1, 49, 6);
  stage.asking_blocks = 9;
  stage.asked_bytes = 8;
  share_asking(stage, 25);
  EXPECT_EQ(stage.asking_blocks, 5);
  EXPECT_GE(stage.asking_blocks * stage.asked_bytes, 9 * 8);
  stage.asking_blocks = 0;
  share_asking(stage, 25);
  EXPECT_EQ(stage.asking_blocks, 0);
}

/// Scores of 8 x 200 columns that a mask of bools hides.
loop::Chain masked_chain() {
  loop::Chain chain;
  loop::Contraction& first = chain.first;
  first.m_extents = {8};
  first.n = 200;
  first.nodes = {{.op = ScalarOp::accumulator},
                 {.op = ScalarOp::load, .dtype = boolean, .index = 0},
                 {.op = ScalarOp::constant, .value = -1e4},
                 {.op = ScalarOp::select, .a = 1, .b = 0, .c = 2}};
  first.accesses = {{0, 0, {200, 1}, {}, {}, 0}};
  first.stores = {{{1, 0, {208, 1}, {}, {}, 0}, 3}};
  chain.first.row_epilogue.nodes = {
      {.op = ScalarOp::load, .index = 0},
      {.op = ScalarOp::reduce, .a = 0, .reduce_kind = ReduceKind::max},
      {.op = ScalarOp::sub, .a = 0, .b = 1},
      {.op = ScalarOp::exp, .a = 2}};
  return chain;
}

TEST(ChainPlan, what_a_mask_hides_is_known) {
  const std::array<loop::Buffer, 2> buffers{loop::Buffer{boolean, 1600, false},
                                            loop::Buffer{f32, 1664, true, true}};
  const loop::Chain chain = masked_chain();
  const auto found = find_hidden_scores(chain.first, buffers);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->mask, 0);
  EXPECT_EQ(found->value, -1e4);
  EXPECT_TRUE(hides_columns(chain));
  // A mask along rows alone, one that is chosen the other way round, a number that is none.
  loop::Chain other = chain;
  other.first.accesses[0].strides = {1, 0};
  EXPECT_FALSE(find_hidden_scores(other.first, buffers).has_value());
  other = chain;
  std::swap(other.first.nodes[3].b, other.first.nodes[3].c);
  EXPECT_FALSE(find_hidden_scores(other.first, buffers).has_value());
  other = chain;
  other.first.nodes[2] = {.op = ScalarOp::load, .index = 1};
  EXPECT_FALSE(find_hidden_scores(other.first, buffers).has_value());
  other = chain;
  other.first.accesses.push_back({.buffer = 0, .strides = {0, 0}, .indirect = {{.node = 0}}});
  EXPECT_FALSE(find_hidden_scores(other.first, buffers).has_value());
  // Without powers nothing is zero; without a mask there is nothing to look for.
  other = chain;
  other.first.row_epilogue.nodes.pop_back();
  EXPECT_FALSE(hides_columns(other));
  other = chain;
  other.first.nodes.resize(1);
  other.first.accesses.clear();
  EXPECT_FALSE(hides_columns(other));
}

}  // namespace
}  // namespace rlx::codegen
