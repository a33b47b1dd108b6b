// Laws of the times of products that are not there.
#include "cost/product_cost.hpp"

#include <gtest/gtest.h>

#include "cost/presets.hpp"

namespace rlx::cost {
namespace {

ProductShape product(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  return {.rows = rows,
          .columns = columns,
          .depth = depth,
          .a_rows = rows,
          .a_depth = depth,
          .run = depth};
}

constexpr WholeRows both[] = {WholeRows::results, WholeRows::operands};

double whole_rows(WholeRows rows, const ProductShape& shape, int threads, DType a = f32,
                  DType b = f32) {
  return whole_rows_ns(shape, a, b, true, rows, model_of_zen5(), threads);
}

TEST(ProductCost, WholeRowsNeverTakeLess) {
  for (const WholeRows of : both)
    for (const std::int64_t rows : {1, 5, 16, 100, 1000})
      for (const std::int64_t columns : {1, 40, 384})
        for (const int threads : {1, 2, 16})
          EXPECT_GE(whole_rows(of, product(rows, columns, 256), threads), 0)
              << rows << " " << columns << " " << threads;
}

TEST(ProductCost, FewWholeRowsKeepThreadsWaiting) {
  const ProductShape few = product(4, 1024, 1024);
  const double plain = product_ns(few, f32, f32, true, model_of_zen5(), 2);
  for (const WholeRows rows : both) EXPECT_GT(whole_rows(rows, few, 2), 0.5 * plain);
  EXPECT_LT(whole_rows(WholeRows::results, few, 1), 0.1 * plain);
  // Weights of a kernel that makes its rows are told to arrive beside less of the compute.
  EXPECT_LT(whole_rows(WholeRows::operands, few, 1), 0.3 * plain);
}

TEST(ProductCost, GroupsOfWholeRowsBringWeightsBeyondL2FromL3EachTime) {
  const MachineModel model = model_of_rapids(false);
  const auto more = [&](std::int64_t depth) {
    const ProductShape shape = product(12, 384, depth);
    return whole_rows_ns(shape, f32, f32, true, WholeRows::results, model, 1) /
           product_ns(shape, f32, f32, true, model, 1);
  };
  EXPECT_GT(more(1536), 0.5);  // two walks over 2.4 MB
  EXPECT_LT(more(384), 0.1);   // over 0.6 MB, of which L2 gives one
}

// A panel in L2 that is read once hides behind the products of a few rows, but not of one.
TEST(ProductCost, PanelsOfL2ArriveBesideProducts) {
  const MachineModel model = model_of_rapids(false);
  const auto beside_peak = [&](std::int64_t rows) {
    const double cycles = static_cast<double>(rows) * 256 * 64 / 16 / model.fma_per_cycle;
    return product_ns(product(rows, 256, 64), f32, f32, true, model, 1) / (cycles * model.cycle);
  };
  EXPECT_LT(beside_peak(4), 1.3);
  EXPECT_GT(beside_peak(1), 1.7);
}

// Few groups share a walk over a large B: two workers find as many as they want, sixteen do not.
TEST(ProductCost, FewGroupsOfWholeRowsKeepManyThreadsWaiting) {
  const ProductShape shape = product(96, 256, 1024);
  const double plain = product_ns(shape, f32, f32, true, model_of_rapids(false), 16);
  const auto more = [&](int threads) {
    return whole_rows_ns(shape, f32, f32, true, WholeRows::results, model_of_rapids(false),
                         threads);
  };
  EXPECT_GT(more(16), plain);
  EXPECT_LT(more(2), 0.1 * plain);
}

TEST(ProductCost, KnowsWholeRowsOfEveryKindOfProduct) {
  const ProductShape few = product(4, 1024, 1024);
  EXPECT_GT(whole_rows(WholeRows::results, few, 2, bf16, bf16), 0);
  EXPECT_GT(whole_rows(WholeRows::results, few, 2, u8, i8), 0);
}

TEST(ProductCost, PairsOfBf16PayByTilesWhereDotProductsAreSlow) {
  const MachineModel zen4 = preset_for({codegen::CpuFacts::Vendor::amd, 25, 0x11, {}},
                                       {codegen::Isa::avx512, "", "+avx512bf16"});
  for (const std::int64_t rows : {16, 128, 500}) {
    const ProductShape shape = product(rows, 384, 384);
    const auto ns = [&](DType dtype, const MachineModel& model) {
      return product_ns(shape, dtype, dtype, true, model, 1);
    };
    EXPECT_GT(ns(bf16, model_of_rapids(false)), ns(f32, model_of_rapids(false))) << rows;
    EXPECT_LT(2 * ns(bf16, model_of_rapids(true)), ns(f32, model_of_rapids(true))) << rows;
    EXPECT_LT(ns(bf16, zen4), ns(f32, zen4)) << rows;
  }
}

TEST(ProductCost, TilesTakeLongerForLargerShapes) {
  const MachineModel model = model_of_rapids(true);
  const auto ns = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return product_ns(product(rows, columns, depth), bf16, bf16, true, model, 1);
  };
  for (std::int64_t size = 32; size <= 1024; size *= 2) {
    EXPECT_LT(ns(size, 256, 256), ns(2 * size, 256, 256)) << size;
    EXPECT_LT(ns(256, size, 256), ns(256, 2 * size, 256)) << size;
    EXPECT_LT(ns(256, 256, size), ns(256, 256, 2 * size)) << size;
  }
}

}  // namespace
}  // namespace rlx::cost
