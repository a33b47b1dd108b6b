// Rows and columns that are reduced: what waits for what.
#include <gtest/gtest.h>

#include "codegen/nest_build.hpp"
#include "cost/kernel_cost.hpp"
#include "cost/presets.hpp"
#include "cost/row_passes.hpp"

namespace rlx::cost {
namespace {

/// Sums or maxima of so many columns.
loop::Kernel reduced_columns(ReduceKind kind, std::int64_t rows, std::int64_t columns) {
  testing::NestBuilder nest({columns, rows});
  const int in = nest.buffer(f32, rows * columns), out = nest.buffer(f32, columns);
  nest.store(out, nest.reduce(kind, nest.load(in, {1, columns})), {1, 0});
  return nest.kernel(1);
}

/// Sums of rows.
loop::Kernel reduced_rows(std::int64_t rows, std::int64_t columns) {
  testing::NestBuilder nest({rows, columns});
  const int in = nest.buffer(f32, rows * columns), out = nest.buffer(f32, rows);
  nest.store(out, nest.reduce(ReduceKind::sum, nest.load(in, {columns, 1})), {1, 0});
  return nest.kernel(1);
}

TEST(RowCost, ARowMoreTakesNoWholeBlockOfRows) {
  const MachineModel model = model_of_rapids(true);
  for (std::int64_t rows = 8; rows < 60; ++rows) {
    const double before = predict(testing::softmax(rows, 160), {}, model, 1).ns;
    const double after = predict(testing::softmax(rows + 1, 160), {}, model, 1).ns;
    EXPECT_LT(after, before * (1 + 3.0 / static_cast<double>(rows))) << rows;
  }
}

TEST(RowCost, MaximaOfFewColumnsWaitLongerThanSums) {
  const MachineModel model = model_of_rapids(true);
  const auto ns_of_columns = [&](ReduceKind kind, std::int64_t columns) {
    return predict(reduced_columns(kind, 512, columns), {}, model, 1).ns;
  };
  EXPECT_GT(ns_of_columns(ReduceKind::max, 10), 1.5 * ns_of_columns(ReduceKind::sum, 10));
  // Of seven vectors three wait for themselves alone, of eight none.
  EXPECT_GT(ns_of_columns(ReduceKind::max, 112), 1.3 * ns_of_columns(ReduceKind::max, 128));
}

// An addition takes three cycles, and the next one of the same sum waits.
TEST(RowCost, ShortSumsOfColumnsWaitBesideOthers) {
  MachineModel model = model_of_narrow_zen4();
  const auto waits = [&](double terms, double blocks) {
    const Body term{.alu = model.op(ScalarOp::add), .loads = 1};
    ColumnSums sums(model);
    const double chain = 3 * model.cycle * terms;
    sums.add(term * terms, term.ns(model) * terms * blocks, chain * blocks);
    return (sums.waits({}, blocks) + term.ns(model) * terms * blocks) / (chain * blocks);
  };
  EXPECT_DOUBLE_EQ(waits(5, 1), 1) << "one waits for itself";
  EXPECT_LT(waits(5, 1000), 0.5) << "thirty are under way";
  EXPECT_GE(waits(1000, 4), 1) << "no second one is in sight";
  EXPECT_GT(waits(5, 2), waits(5, 20));
  const double as_measured = waits(5, 20);
  model.overlap.short_chains = 0;
  EXPECT_LT(waits(5, 20), as_measured) << "twenty leave little to wait for";
  EXPECT_DOUBLE_EQ(waits(5, 1), 1);
}

// A comparison and a selection take Zen 4 two cycles, an addition three.
TEST(RowCost, MaximaOfFewColumnsWaitNoLongerWhereComparisonsAreQuick) {
  const MachineModel model = model_of_narrow_zen4();
  const auto compute = [&](ReduceKind kind) {
    return predict(reduced_columns(kind, 512, 8), {}, model, 1).compute;
  };
  EXPECT_LE(compute(ReduceKind::max), compute(ReduceKind::sum));
}

TEST(RowCost, FirstPassesRunBesideTheBlockBefore) {
  const MachineModel model = model_of_narrow_zen4();
  MachineModel waits = model;
  waits.overlap.first_pass = 1;
  const auto compute = [](const loop::Kernel& kernel, const MachineModel& of) {
    return predict(kernel, {}, of, 1).compute;
  };
  const loop::Kernel sums = reduced_rows(64, 200), softmax = testing::softmax(64, 200);
  EXPECT_LT(compute(sums, model), 0.9 * compute(sums, waits));
  EXPECT_LT(compute(softmax, model), compute(softmax, waits));
  const loop::Kernel alone = reduced_rows(1, 200);
  EXPECT_DOUBLE_EQ(compute(alone, model), compute(alone, waits)) << "one row waits for itself";
}

// The last tile of a row reaches back where no mask ends it.
TEST(RowCost, TilesThatReachBackTakeNoMoreThanAWholeOne) {
  const auto compute = [](MachineModel model, std::int64_t along) {
    Overlap& overlap = model.overlap;
    overlap.load_across = overlap.store_across = overlap.turned_across = 1;
    testing::NestBuilder nest({64, along});
    const int in = nest.buffer(f32, 64 * along), out = nest.buffer(f32, 64 * along);
    nest.store(out, nest.load(in, {1, 64}), {along, 1});
    return predict(nest.kernel(2), {}, model, 1).compute;
  };
  EXPECT_DOUBLE_EQ(compute(model_of_narrow_zen4(), 44), compute(model_of_narrow_zen4(), 48));
  EXPECT_GT(compute(model_of_zen4(), 44), compute(model_of_zen4(), 48));
}

}  // namespace
}  // namespace rlx::cost
