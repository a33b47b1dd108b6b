// The cut of contractions into register blocks and work items.
#include "codegen/llvm/contraction_plan.hpp"

#include <gtest/gtest.h>

#include "codegen/machine.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen {
namespace {

ContractionPlan plan_of(const Target& target, std::int64_t rows, std::int64_t columns,
                        std::int64_t depth) {
  const loop::Kernel kernel = testing::matmul({.m = rows, .n = columns, .k = depth}, target);
  const auto& contraction = std::get<loop::Contraction>(kernel.body);
  return plan_contraction(contraction, f32, f32, PlanMachine(machine_of(target)));
}

TEST(ContractionPlan, blocks_cover_all_rows) {
  for (const Target& target : testing::host_targets()) {
    for (std::int64_t rows = 1; rows <= 200; ++rows) {
      for (const std::int64_t columns : {8, 32, 64, 96, 192, 640}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
        const ContractionPlan plan = plan_of(target, rows, columns, 576);
        EXPECT_GE(plan.block_rows, 1);
        EXPECT_EQ(plan.block_rows * plan.row_blocks + plan.row_blocks - plan.short_blocks, rows);
        EXPECT_LE(plan.row_groups, plan.row_blocks);
        EXPECT_EQ(plan.work_items, plan.row_groups * plan.column_blocks);
      }
    }
  }
}

TEST(ContractionPlan, few_items_fall_into_two_halves) {
  for (const Target& target : testing::host_targets()) {
    for (std::int64_t rows = 12; rows <= 200; ++rows) {
      SCOPED_TRACE(::testing::Message() << rows << " rows");
      // Long enough to be shared out, in one column block where registers are wide enough.
      const ContractionPlan plan = plan_of(target, rows, 64, 2304);
      EXPECT_TRUE(plan.work_items % 2 == 0 || plan.work_items > 15) << plan.work_items;
    }
  }
}

}  // namespace
}  // namespace rlx::codegen
