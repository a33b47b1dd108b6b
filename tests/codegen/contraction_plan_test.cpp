// The cut of contractions into register blocks and work items.
#include "codegen/llvm/contraction_plan.hpp"

#include <gtest/gtest.h>

#include "codegen/machine.hpp"
#include "codegen/pack.hpp"
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

/// A machine with tiles, whatever this one has.
const Target tiles{Isa::avx512, "sapphirerapids",
                   "+avx512vnni,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8"};

ContractionPlan tiled_plan(const testing::MatmulOptions& options) {
  const loop::Kernel kernel = testing::matmul(options, tiles);
  return plan_contraction(std::get<loop::Contraction>(kernel.body), options.a, options.b,
                          PlanMachine(machine_of(tiles)));
}

TEST(ContractionPlan, tiles_cover_rows_and_runs) {
  for (const bool bytes : {false, true}) {
    for (std::int64_t rows = 1; rows <= 140; ++rows) {
      for (const std::int64_t depth : {30, 33, 64, 96, 160, 384}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << depth << ", bytes " << bytes);
        const ContractionPlan plan = tiled_plan({.m = rows,
                                                 .n = 80,
                                                 .k = depth,
                                                 .a = bytes ? u8 : bf16,
                                                 .b = bytes ? i8 : bf16,
                                                 .accumulator = bytes ? i32 : f32,
                                                 .k_group = bytes ? 4 : 2});
        const std::int64_t unit = bytes ? 4 : 2, least_steps = 8;
        bool fills = false;
        for (std::int64_t steps = least_steps; steps <= most_tile_steps; ++steps)
          fills = fills || depth % (steps * unit) == 0;
        EXPECT_EQ(plan.tile_steps > 0, fills && rows > 1);
        if (plan.tile_steps == 0) continue;
        EXPECT_EQ(depth % (plan.tile_steps * unit), 0);
        EXPECT_LE(plan.tile_steps, most_tile_steps);
        EXPECT_EQ(plan.block_rows * plan.row_blocks + plan.row_blocks - plan.short_blocks, rows);
        EXPECT_EQ(plan.one_height, plan.short_blocks < plan.row_blocks);
        const TileCut cut(plan.tallest_rows());
        EXPECT_LE(cut.first_rows, tile_rows);
        EXPECT_GE(cut.last_rows, 1);
        EXPECT_EQ(cut.first_rows * (cut.row_tiles - 1) + cut.last_rows, plan.tallest_rows());
        EXPECT_LE(cut.row_tiles * cut.together, 4);
      }
    }
  }
}

/// Where L2 is large, each worker may walk over all of B, so that it reads the rows that it made.
TEST(ContractionPlan, cores_with_large_l2_share_out_rows_of_more_products) {
  const Target rapids{Isa::avx512, "", "+avx512fp16"}, others{Isa::avx512, "", ""};
  // A of 98 KB, B of 256; then A of 25.
  EXPECT_TRUE(plan_of(rapids, 49, 128, 512).rows_outermost);
  EXPECT_FALSE(plan_of(others, 49, 128, 512).rows_outermost);
  EXPECT_FALSE(plan_of(rapids, 49, 512, 128).rows_outermost);
  // More than 512 KB of B are too much; so much comes once, and nobody asks for it.
  EXPECT_FALSE(plan_of(rapids, 196, 384, 384).rows_outermost);
  EXPECT_FALSE(plan_of(rapids, 196, 512, 512).rows_outermost);
  const ContractionPlan plan = plan_of(rapids, 196, 512, 256);
  EXPECT_TRUE(plan.rows_outermost);
  EXPECT_EQ(plan.asking_blocks, 0);
}

/// An A of a MB and more falls into two halves, where B is longer than L2 holds: each walks over
/// all panels, one after the other, and asks for the next.
TEST(ContractionPlan, long_products_share_out_halves_of_the_rows) {
  const Target rapids{Isa::avx512, "", "+avx512fp16"}, others{Isa::avx512, "", ""};
  const ContractionPlan plan = plan_of(rapids, 1024, 384, 1536);
  EXPECT_TRUE(plan.in_halves && plan.rows_outermost);
  EXPECT_EQ(plan.row_groups, 2);
  EXPECT_EQ(plan.work_items, 2 * plan.column_blocks);
  EXPECT_GT(plan.asking_blocks, 0);
  EXPECT_TRUE(plan.asks_for_rows) << "six walks";
  EXPECT_FALSE(plan_of(rapids, 1024, 1536, 384).asks_for_rows) << "24 walks, of which one waits";
  EXPECT_TRUE(plan_of(rapids, 1024, 1536, 384).in_halves);
  EXPECT_TRUE(plan_of(others, 1024, 384, 1536).in_halves) << "whatever L2 there is";
  EXPECT_FALSE(plan_of(rapids, 197, 768, 3072).in_halves) << "walks of 17 blocks each";
  EXPECT_FALSE(plan_of(rapids, 512, 384, 384).in_halves) << "A is short";
  EXPECT_FALSE(plan_of(rapids, 1024, 4096, 4096).in_halves) << "B would come from memory twice";
}

/// Of an image what all windows read counts: strides reach four places for each point.
TEST(ContractionPlan, windows_with_strides_share_out_halves_of_the_rows) {
  const Target rapids{Isa::avx512, "", "+avx512fp16"};
  const auto in_halves = [&](std::int64_t points, std::int64_t stride) {
    constexpr std::int64_t channels = 128, taps = 3, results = 192;
    loop::Kernel kernel =
        testing::matmul({.m = points * points, .n = results, .k = taps * taps * channels}, rapids);
    auto& window = std::get<loop::Contraction>(kernel.body);
    const std::int64_t row = (points * stride + taps) * channels;
    window.m_extents = {points, points}, window.k_extents = {taps, taps, channels};
    window.a_m_strides = {stride * row, stride * channels};
    window.a_k_strides = {row, channels, 1};
    loop::Access& store = window.stores[0].access;
    store.strides = {0, points * results, results, 1};
    return plan_contraction(window, f32, f32, PlanMachine(machine_of(rapids))).in_halves;
  };
  EXPECT_TRUE(in_halves(28, 2));
  EXPECT_FALSE(in_halves(28, 1)) << "an image of 0.5 MB";
}

/// Workers that share out columns read rows that the others made: they ask for them ahead.
TEST(ContractionPlan, blocks_ask_for_the_rows_behind_theirs) {
  const Target rapids{Isa::avx512, "", "+avx512fp16"}, others{Isa::avx512, "", ""};
  EXPECT_TRUE(plan_of(rapids, 49, 512, 128).asks_for_rows);
  EXPECT_FALSE(plan_of(others, 49, 512, 128).asks_for_rows);
  EXPECT_FALSE(plan_of(rapids, 49, 1024, 128).asks_for_rows) << "sixteen walks, of which one waits";
  EXPECT_FALSE(plan_of(rapids, 6, 512, 128).asks_for_rows) << "one block";
  EXPECT_FALSE(plan_of(rapids, 49, 128, 512).asks_for_rows) << "they are its own";
}

/// What one block of rows alone reads streams from memory, which translates ahead where it is told.
TEST(ContractionPlan, streams_of_columns_ask_for_pages) {
  const Target target{Isa::avx512, "", ""};
  EXPECT_TRUE(plan_of(target, 1, 1024, 1024).asks_for_pages);
  EXPECT_TRUE(plan_of(target, 4, 1024, 1024).asks_for_pages);
  EXPECT_FALSE(plan_of(target, 128, 1024, 1024).asks_for_pages) << "blocks ask for their parts";
  EXPECT_FALSE(plan_of(target, 1, 256, 256).asks_for_pages) << "the caches hold it";
}

/// A large B arrives during the first walk over it: four blocks share one, unless one group is
/// left.
TEST(ContractionPlan, whole_rows_walk_seldom_over_a_large_b) {
  const Target target{Isa::avx512, "", ""};
  const auto groups = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    loop::Kernel kernel = testing::matmul({.m = rows, .n = columns, .k = depth}, target);
    auto& contraction = std::get<loop::Contraction>(kernel.body);
    contraction.row_epilogue = {.extents = {rows, columns},
                                .parallel_dims = 1,
                                .nodes = {{.op = ScalarOp::constant, .dtype = f32}}};
    const ContractionPlan plan =
        plan_contraction(contraction, f32, f32, PlanMachine(machine_of(target)));
    return std::pair(plan.row_blocks, plan.row_groups);
  };
  EXPECT_EQ(groups(96, 256, 1024), std::pair(std::int64_t{16}, std::int64_t{4}));
  EXPECT_EQ(groups(96, 256, 256), std::pair(std::int64_t{16}, std::int64_t{8}));
  EXPECT_EQ(groups(64, 256, 768), std::pair(std::int64_t{11}, std::int64_t{4}));
  EXPECT_EQ(groups(64, 256, 256), std::pair(std::int64_t{11}, std::int64_t{11}));
  EXPECT_EQ(groups(12, 256, 1024), std::pair(std::int64_t{2}, std::int64_t{2}));
}

TEST(ContractionPlan, tiles_want_rows_at_one_distance_and_runs_side_by_side) {
  const testing::MatmulOptions options{
      .m = 64, .n = 64, .k = 64, .packed = false, .a = bf16, .b = bf16};
  EXPECT_EQ(tiled_plan(options).tile_steps, most_tile_steps);
  testing::MatmulOptions turned = options;
  turned.transposed_a = true;
  EXPECT_EQ(tiled_plan(turned).tile_steps, 0);
  testing::MatmulOptions wide = options;
  wide.a = wide.b = f32;
  EXPECT_EQ(tiled_plan(wide).tile_steps, 0);
}

/// Rows of B that lie pages apart: a row of A reads four lines of each at a time.
TEST(ContractionPlan, few_rows_read_wide_blocks_in_place) {
  const Target target{Isa::avx2, "", ""};
  const auto vectors = [&](const testing::MatmulOptions& options) {
    const loop::Kernel kernel = testing::matmul(options, target);
    const ContractionPlan plan =
        plan_contraction(std::get<loop::Contraction>(kernel.body), options.a, options.b,
                         PlanMachine(machine_of(target)));
    EXPECT_GE(plan.block_rows, 1);
    return plan.vectors;
  };
  const auto in_place = [&](std::int64_t rows) {
    return vectors({.m = rows, .n = 1024, .k = 1024, .packed = false});
  };
  EXPECT_EQ(in_place(1), 8);
  EXPECT_EQ(in_place(2), 4);
  EXPECT_EQ(in_place(3), 2) << "sixteen registers";
  loop::Kernel grouped = testing::matmul({.m = 1, .n = 1024, .k = 1024, .packed = false}, target);
  auto& in_order = std::get<loop::Contraction>(grouped.body);
  in_order.in_order = true;
  EXPECT_EQ(plan_contraction(in_order, f32, f32, PlanMachine(machine_of(target))).vectors, 2)
      << "the other heights of an expert's rows have blocks of two";
  EXPECT_EQ(vectors({.m = 1, .n = 1024, .k = 1024}), 2) << "panels are one stream";
  EXPECT_EQ(vectors({.m = 1, .n = 1024, .k = 64, .packed = false, .transposed_b = true}), 2);
}

/// The same with thirty-two registers.
TEST(ContractionPlan, few_rows_read_wider_blocks_in_place_into_more_registers) {
  const Target target{Isa::avx512, "", ""};
  const auto vectors = [&](std::int64_t rows, std::int64_t columns) {
    const loop::Kernel kernel =
        testing::matmul({.m = rows, .n = columns, .k = 1024, .packed = false}, target);
    return plan_contraction(std::get<loop::Contraction>(kernel.body), f32, f32,
                            PlanMachine(machine_of(target)))
        .vectors;
  };
  EXPECT_EQ(vectors(1, 1024), 16);
  EXPECT_EQ(vectors(2, 1024), 8);
  EXPECT_EQ(vectors(3, 1024), 4);
  EXPECT_EQ(vectors(1, 64), 4);
}

TEST(ContractionPlan, DeepPanelsOfAnAFromMemoryStayWide) {
  const Target large_l2{Isa::avx512, "", "+avx512fp16"};
  const auto width = [&](std::int64_t rows, std::int64_t k) {
    return choose_packed_layout(768, k, f32, large_l2, rows).panel_width;
  };
  EXPECT_EQ(width(1, 3072), 64);
  EXPECT_EQ(width(512, 3072), 32);   // L2 holds two panels
  EXPECT_EQ(width(1576, 3072), 64);  // 19 MB of A come once for each panel
  EXPECT_EQ(width(1576, 4096), 32);  // L2 holds no wider one
  EXPECT_EQ(width(1576, 768), 64);
}

}  // namespace
}  // namespace rlx::codegen
