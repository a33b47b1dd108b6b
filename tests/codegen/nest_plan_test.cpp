// Where lanes run in a nest, and what a work item is.
#include "codegen/llvm/nest_plan.hpp"

#include <gtest/gtest.h>

#include "codegen/host_target.hpp"

namespace rlx::codegen {
namespace {

Machine machine_with(Isa isa) { return machine_of({isa, "", ""}); }

/// Images of `size` x `size` points with so many channels side by side, less their mean by channel,
/// in place.
loop::Nest centred(std::int64_t channels, std::int64_t size) {
  const std::vector<std::int64_t> strides{1, size * channels, channels};
  loop::Nest nest;
  nest.extents = {channels, size, size};
  nest.parallel_dims = 1;
  nest.accesses = {{.buffer = 0, .offset = 0, .strides = strides}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0, .reduce_kind = ReduceKind::sum},
                {.op = ScalarOp::sub, .dtype = f32, .a = 0, .b = 1}};
  nest.stores = {{{.buffer = 0, .offset = 0, .strides = strides}, 2}};
  return nest;
}

std::int64_t step_of_lanes(const NestPlan& plan) {
  return plan.nest.accesses[0].strides[static_cast<std::size_t>(plan.vector_dim)];
}

TEST(NestPlan, LanesRunAlongWhatLiesSideBySideWhereNoneIsLeft) {
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    for (const std::int64_t channels : {8, 16, 48, 64})
      EXPECT_EQ(step_of_lanes(plan_nest(centred(channels, 128), machine_with(isa), false)), 1)
          << channels;
}

/// Channels last of an image of `size` x `size` out of a larger one, to channels first.
loop::Nest channels_first(std::int64_t channels, std::int64_t size) {
  loop::Nest nest;
  nest.extents = {channels, size, size};
  nest.parallel_dims = 3;
  nest.accesses = {{.buffer = 0, .strides = {1, (size + 1) * channels, channels}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {size * size, size, 1}}, 0}};
  return nest;
}

TEST(NestPlan, WorkersShareOutWhatLiesFarthestApartWhereRowsAreShort) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    for (const std::int64_t size : {5, 7, 14}) {
      const NestPlan plan = plan_nest(channels_first(256, size), machine_with(isa), false);
      EXPECT_TRUE(plan.blocks_first);
      const auto split = static_cast<std::size_t>(plan.split_dim);
      EXPECT_EQ(plan.nest.stores[0].access.strides[split], size * size);
      EXPECT_EQ(plan.split_size % 16, 0);
      EXPECT_EQ(plan.items,
                plan.points(0, plan.inner_dim) * ((256 + plan.split_size - 1) / plan.split_size));
    }
    EXPECT_FALSE(plan_nest(channels_first(256, 56), machine_with(isa), false).blocks_first);
  }
}

TEST(NestPlan, WovenRunsWalkAlongWhatTheirLanesReadApart) {
  // Blocks of 2 x 2 points of an image with 64 channels side by side, to planes.
  loop::Nest nest;
  nest.extents = {64, 56, 2, 56, 2};
  nest.parallel_dims = 5;
  nest.accesses = {{.buffer = 0, .strides = {1, 56 * 256, 128, 256, 64}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {112 * 112, 224, 112, 2, 1}}, 0}};
  const NestPlan plan = plan_nest(nest, machine_with(Isa::avx512), false);
  EXPECT_TRUE(plan.woven);
  EXPECT_EQ(plan.tile, 2U);
  const auto read = [&](int dim) {
    return plan.nest.accesses[0].strides[static_cast<std::size_t>(dim)];
  };
  EXPECT_EQ(read(plan.vector_dim), 256);
  EXPECT_EQ(read(plan.tile_dim()), 64);
  EXPECT_EQ(read(plan.tile_dim() - 1), 1);
}

TEST(NestPlan, FewImagesThatAreTurnedAreSharedOutByTheirPixels) {
  loop::Nest nest;
  const std::int64_t pixels = 4087, channels = 24;
  nest.extents = {3, channels, pixels};
  nest.parallel_dims = 3;
  nest.accesses = {{.buffer = 0, .strides = {pixels * channels, 1, channels}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {pixels * channels, pixels, 1}}, 0}};
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    EXPECT_GE(plan_nest(nest, machine_with(isa), false).items, 8);
  }
  const NestPlan plan = plan_nest(nest, machine_with(Isa::avx512), false);
  EXPECT_EQ(plan.split_dim, plan.vector_dim);
  EXPECT_EQ(plan.inner_dim, plan.tile_dim());
}

/// A channel of an image with eight side by side, behind a border.
loop::Nest one_channel(std::int64_t rows, std::int64_t columns) {
  loop::Nest nest;
  nest.extents = {rows, columns};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .offset = 81, .strides = {8 * columns, 8}}};
  nest.accesses[0].guards = {{.offset = 0, .extent = columns - 10, .coefficients = {0, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 0, .offset = 3, .strides = {8 * columns, 8}}, 0}};
  return nest;
}

TEST(NestPlan, LanesApartLieInAsFewLinesAsTheyCan) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const NestPlan plan = plan_nest(one_channel(172, 309), machine_with(isa), false);
    EXPECT_EQ(step_of_lanes(plan), 8);
  }
}

TEST(NestPlan, LanesRunAlongWhatIsWrittenWherePagesAreTurned) {
  loop::Nest nest;
  nest.extents = {1024, 256};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {1, 1024}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {256, 1}}, 0}};
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const NestPlan plan = plan_nest(nest, machine_with(isa), false);
    EXPECT_EQ(step_of_lanes(plan), 1024);
    EXPECT_EQ(plan.turned.size(), 1u);
  }
}

/// Rows with a row added to each.
loop::Nest rows_and_a_row(std::int64_t rows, std::int64_t columns) {
  loop::Nest nest;
  nest.extents = {rows, columns};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {columns, 1}}, {.buffer = 1, .strides = {0, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::load, .dtype = f32, .index = 1},
                {.op = ScalarOp::add, .dtype = f32, .a = 0, .b = 1}};
  nest.stores = {{{.buffer = 2, .strides = {columns, 1}}, 2}};
  return nest;
}

/// The largest of 2 x 2 points, every `step` of them, of planes far apart: channels last behind.
loop::Nest pool(std::int64_t step) {
  loop::Nest nest;
  nest.extents = {16, 16, 64, 2, 2};
  nest.parallel_dims = 3;
  nest.accesses = {{.buffer = 0, .strides = {step * 100, step, 10000, 100, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0, .reduce_kind = ReduceKind::max}};
  nest.stores = {{{.buffer = 1, .strides = {1024, 64, 1, 0, 0}}, 1}};
  return nest;
}

TEST(NestPlan, LanesAFewElementsApartAreNearerThanPlanes) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    for (const std::int64_t step : {2, 3})
      EXPECT_EQ(step_of_lanes(plan_nest(pool(step), machine_with(isa), false)), step);
    EXPECT_EQ(step_of_lanes(plan_nest(pool(5), machine_with(isa), false)), 10000)
        << "lanes one by one either way, and results side by side";
  }
}

TEST(NestPlan, TwoWorkersHaveAboutTheSame) {
  for (const std::int64_t rows : {6, 10, 13, 14, 20, 22, 30, 100}) {
    for (const std::int64_t columns : {200, 512, 896}) {
      const NestPlan plan =
          plan_nest(rows_and_a_row(rows, columns), machine_with(Isa::avx512), false);
      if (plan.items < 2) continue;
      ASSERT_EQ(plan.split_dim, 0);
      const std::int64_t first = std::min(plan.items / 2 * plan.split_size, rows);
      EXPECT_LE(std::max(first, rows - first), rows / 2 + rows % 2 + rows / 20)
          << rows << " x " << columns << ", blocks of " << plan.split_size;
    }
  }
}

/// The same rows as the steps before and behind, also where there are many blocks of them.
TEST(NestPlan, TwoWorkersHaveHalfOfTheRowsEach) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1600, 24},
                                      {1600, 48},
                                      {1600, 96},
                                      {400, 96},
                                      {6400, 24}}) {
    const NestPlan plan =
        plan_nest(rows_and_a_row(rows, columns), machine_with(Isa::avx512), false);
    EXPECT_EQ(plan.items / 2 * plan.split_size, rows / 2) << rows << " x " << columns;
  }
  // Sums along rows, so many rows at a time.
  for (const std::int64_t rows : {6, 10, 12, 20, 30, 40}) {
    loop::Nest nest;
    nest.extents = {rows, 192, 60};
    nest.parallel_dims = 2;
    nest.accesses = {{.buffer = 0, .strides = {60 * 192, 1, 192}}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                  {.op = ScalarOp::reduce, .dtype = f32, .a = 0, .reduce_kind = ReduceKind::sum}};
    nest.stores = {{{.buffer = 1, .strides = {192, 1, 0}}, 1}};
    const NestPlan plan = plan_nest(nest, machine_with(Isa::avx512), false);
    EXPECT_EQ(plan.items / 2 * plan.split_size, rows / 2) << rows;
  }
}

TEST(NestPlan, WorkersThatWriteToEveryPointShareNoLines) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    for (const std::int64_t channels : {8, 16, 24, 32, 48, 64, 128}) {
      const NestPlan plan = plan_nest(centred(channels, 128), machine_with(isa), false);
      const std::int64_t two_lines = 32;
      EXPECT_LE(plan.items * two_lines, std::max(channels + two_lines - 1, two_lines)) << channels;
    }
    EXPECT_GT(plan_nest(centred(128, 128), machine_with(isa), false).items, 1);
  }
}

/// exp of each of so many inputs, to an output of its own.
loop::Nest exponentials(int count) {
  loop::Nest nest;
  nest.extents = {64, 128};
  nest.parallel_dims = 2;
  for (int i = 0; i < count; ++i) {
    nest.accesses.push_back({.buffer = i, .strides = {128, 1}});
    nest.nodes.push_back({.op = ScalarOp::load, .dtype = f32, .index = i});
    nest.nodes.push_back({.op = ScalarOp::exp, .dtype = f32, .a = 2 * i});
    nest.stores.push_back({{.buffer = count + i, .strides = {128, 1}}, 2 * i + 1});
  }
  return nest;
}

TEST(NestPlan, ManySeriesOfOneVectorLeaveNoRegistersForAnother) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const NestPlan two = plan_nest(exponentials(2), machine_with(isa), false);
    EXPECT_EQ(two.unroll, isa == Isa::avx512 ? 8U : 4U);
    EXPECT_TRUE(two.abreast);
    const NestPlan many = plan_nest(exponentials(16), machine_with(isa), false);
    EXPECT_EQ(many.unroll, 1U);
    EXPECT_FALSE(many.abreast);
  }
}

TEST(NestPlan, TwoVectorsOfASeriesGoSideBySideWhereTheProcessorHoldsFew) {
  const NestPlan paired = plan_nest(exponentials(1), machine_with(Isa::avx2), false);
  EXPECT_TRUE(paired.pairs_series && paired.abreast);
  EXPECT_FALSE(plan_nest(exponentials(1), machine_with(Isa::avx512), false).pairs_series);
  EXPECT_FALSE(plan_nest(centred(64, 128), machine_with(Isa::avx2), false).pairs_series);
  loop::Nest one = exponentials(1);
  one.extents = {1, 8};  // a single vector
  EXPECT_FALSE(plan_nest(one, machine_with(Isa::avx2), false).pairs_series);
  loop::Nest turned = exponentials(1);
  turned.stores[0].access.strides = {1, 64};
  const NestPlan tiles = plan_nest(turned, machine_with(Isa::avx2), false);
  EXPECT_FALSE(tiles.turned.empty());
  EXPECT_FALSE(tiles.pairs_series);
}

/// A chain of tanh(1 / (1 + e^-x)), as nets write sigmoids.
loop::Nest chain_of_curves(int links) {
  loop::Nest nest;
  nest.extents = {64 * 128};
  nest.parallel_dims = 1;
  nest.accesses = {{.buffer = 0, .strides = {1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::constant, .dtype = f32, .value = 1}};
  ScalarId last = 0;
  const auto add = [&](const ScalarNode& node) {
    nest.nodes.push_back(node);
    return static_cast<ScalarId>(nest.nodes.size()) - 1;
  };
  for (int i = 0; i < links; ++i) {
    const ScalarId negative = add({.op = ScalarOp::neg, .dtype = f32, .a = last});
    const ScalarId power = add({.op = ScalarOp::exp, .dtype = f32, .a = negative});
    const ScalarId sum = add({.op = ScalarOp::add, .dtype = f32, .a = 1, .b = power});
    const ScalarId logistic = add({.op = ScalarOp::div, .dtype = f32, .a = 1, .b = sum});
    last = add({.op = ScalarOp::tanh, .dtype = f32, .a = logistic});
  }
  nest.stores = {{{.buffer = 1, .strides = {1}}, last}};
  return nest;
}

TEST(NestPlan, SeriesThatWaitForEachOtherLeaveRegistersForOtherVectors) {
  const Machine machine = machine_with(Isa::avx512);
  EXPECT_EQ(plan_nest(chain_of_curves(1), machine).unroll, 8U);
  EXPECT_EQ(plan_nest(chain_of_curves(4), machine).unroll, 8U);
  EXPECT_EQ(plan_nest(chain_of_curves(8), machine).unroll, 4U);  // the code gets too long
  // Of fewer registers half are enough for series beside each other, all for one after the other.
  EXPECT_EQ(plan_nest(chain_of_curves(1), machine_with(Isa::avx2)).unroll, 8U);
  EXPECT_EQ(plan_nest(exponentials(2), machine_with(Isa::avx2)).unroll, 4U);
}

TEST(NestPlan, SeriesAreWhatCodeMakesInOneGo) {
  const loop::Nest nest = chain_of_curves(2);
  std::vector<bool> needed(nest.nodes.size());
  needed.back() = true;
  // A logistic ends in its division where code makes it without one, else in 1 + e^x.
  const Machine masked = machine_with(Isa::avx512), fused = machine_with(Isa::avx2);
  EXPECT_EQ(series_of(nest, needed, {}, masked), (std::vector<ScalarId>{5, 6, 10, 11}));
  EXPECT_EQ(series_of(nest, needed, {}, fused), (std::vector<ScalarId>{4, 6, 9, 11}));
  EXPECT_EQ(series_of(nest, needed, {}, machine_with(Isa::portable)),
            (std::vector<ScalarId>{3, 6, 8, 11}));
  const ScalarId known[] = {6};
  EXPECT_EQ(series_of(nest, needed, known, masked), (std::vector<ScalarId>{10, 11}));
}

// Vectors that no round takes are computed one after the other.
TEST(NestPlan, SeriesTakeFewRounds) {
  loop::Nest nest = exponentials(2);
  for (const auto& [vectors, unroll] :
       {std::pair{8, 8U}, {9, 8U}, {11, 8U}, {12, 4U}, {15, 4U}, {16, 8U}, {20, 4U}, {28, 8U}}) {
    nest.extents.back() = vectors * 16;
    for (loop::Access& access : nest.accesses) access.strides[0] = nest.extents.back();
    for (loop::Store& store : nest.stores) store.access.strides[0] = nest.extents.back() + 16;
    const NestPlan plan = plan_nest(nest, machine_with(Isa::avx512), false);
    EXPECT_EQ(plan.unroll, unroll) << vectors;
  }
}

/// exp(x - max(x)) of `count` rows.
loop::Nest powers(std::int64_t count, std::int64_t columns) {
  loop::Nest nest;
  nest.extents = {count, columns};
  nest.parallel_dims = 1;
  nest.accesses = {{.buffer = 0, .strides = {columns, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0, .reduce_kind = ReduceKind::max},
                {.op = ScalarOp::sub, .dtype = f32, .a = 0, .b = 1},
                {.op = ScalarOp::exp, .dtype = f32, .a = 2}};
  nest.stores = {{{.buffer = 1, .strides = {columns, 1}}, 3}};
  return nest;
}

// Behind a product nobody knows how many rows there are at once: those of one vector are joined
// together all the same.
TEST(NestPlan, RowsOfOneVectorAreJoinedTogether) {
  const Machine machine = machine_with(Isa::avx512);
  EXPECT_EQ(plan_nest(powers(80, 13), machine, true).rows, 8U);
  EXPECT_EQ(plan_nest(powers(80, 13), machine, false).rows, 8U);
  EXPECT_EQ(plan_nest(powers(80, 30), machine, true).rows, 1U);
  EXPECT_EQ(plan_nest(powers(1, 13), machine, true).rows, 1U);
}

/// Channels first to channels last.
loop::Nest channels_last(std::int64_t channels, std::int64_t points) {
  loop::Nest nest;
  nest.extents = {points, channels};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {1, points}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {channels, 1}}, 0}};
  return nest;
}

// Tiles are turned also where the last of them has few lanes: lanes along the points would be
// stored one by one.
TEST(NestPlan, FewLanesBehindWholeTilesAreTurned) {
  for (const std::int64_t channels : {16, 17, 21, 32, 37}) {
    const NestPlan plan =
        plan_nest(channels_last(channels, 1024), machine_with(Isa::avx512), false);
    EXPECT_EQ(plan.turned.size(), 1U) << channels;
    EXPECT_EQ(plan.nest.stores[0].access.strides[static_cast<std::size_t>(plan.vector_dim)], 1);
  }
}

}  // namespace
}  // namespace rlx::codegen
