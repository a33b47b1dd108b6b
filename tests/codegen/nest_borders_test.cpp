// Windows over planes whose rows they reach beyond: lanes run along the rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "codegen/llvm/nest_plan.hpp"
#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

/// Windows over planes of rows x columns, with as much padding before each axis as behind it.
struct Windows {
  std::int64_t planes, rows, columns, taps, stride = 1, dilation = 1, pad = 0;

  std::int64_t results(std::int64_t extent) const {
    return (extent + 2 * pad - dilation * (taps - 1) - 1) / stride + 1;
  }
  std::string text() const {
    return fmt::format("{} planes of {} x {}, {} taps, stride {}, dilation {}, padding {}", planes,
                       rows, columns, taps, stride, dilation, pad);
  }
};

/// The largest element of each window, or the sum with weights of the plane's own; `everywhere`:
/// what lies beyond the plane counts as 1, which no bound of a loop can leave out.
loop::Kernel kernel_of(const Windows& w, ReduceKind kind, bool everywhere = false) {
  const std::int64_t rows = w.results(w.rows), columns = w.results(w.columns);
  NestBuilder nest({w.planes, rows, columns, w.taps, w.taps});
  const int in = nest.buffer(f32, w.planes * w.rows * w.columns);
  loop::Access access{.buffer = in,
                      .offset = -w.pad * (w.columns + 1),
                      .strides = {w.rows * w.columns, w.stride * w.columns, w.stride,
                                  w.dilation * w.columns, w.dilation}};
  access.fill = everywhere                ? 1
                : kind == ReduceKind::max ? -std::numeric_limits<double>::infinity()
                                          : 0;
  if (w.pad > 0)
    access.guards = {{-w.pad, w.rows, {0, w.stride, 0, w.dilation, 0}},
                     {-w.pad, w.columns, {0, 0, w.stride, 0, w.dilation}}};
  ScalarId x = nest.load(access);
  if (kind == ReduceKind::sum) {
    const int weights = nest.buffer(f32, w.planes * w.taps * w.taps);
    x = nest.binary(ScalarOp::mul, x, nest.load(weights, {w.taps * w.taps, 0, 0, w.taps, 1}));
  }
  const int out = nest.buffer(f32, w.planes * rows * columns);
  nest.store(out, nest.unary(ScalarOp::neg, nest.reduce(kind, x)),
             {rows * columns, columns, 1, 0, 0});
  return nest.kernel(3);
}

codegen::NestPlan plan_of(const Windows& w, codegen::Isa isa) {
  return codegen::plan_nest(std::get<loop::Nest>(kernel_of(w, ReduceKind::max).body),
                            codegen::machine_of({isa, "", ""}));
}

TEST(NestBorders, LanesAskOnlyWhereRowsEnd) {
  const auto inside = [](const Windows& w) {
    const codegen::NestPlan plan = plan_of(w, codegen::Isa::avx2);
    return std::pair(plan.inside.begin, plan.inside.end);
  };
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(inside({8, 20, 20, 3, 1, 1, 1}), Range(1, 19));
  EXPECT_EQ(inside({8, 40, 40, 3, 2, 1, 1}), Range(1, 20)) << "the last one ends with its row";
  EXPECT_EQ(inside({8, 40, 41, 3, 2, 1, 1}), Range(1, 20));
  EXPECT_EQ(inside({8, 40, 40, 3, 1, 4, 4}), Range(4, 36));
  EXPECT_EQ(inside({8, 20, 20, 3}), Range(0, 0)) << "nothing is asked";
  EXPECT_EQ(inside({8, 20, 9, 3, 1, 1, 1}), Range(0, 0)) << "a register is not filled";
  EXPECT_EQ(inside({8, 20, 20, 9, 1, 1, 4}), Range(0, 0)) << "too many lie at the borders";
}

TEST(NestBorders, NeighboursShareTheTapsThatAreWrittenOut) {
  // Rows of a tile read each other's rows: the taps down the rows come last.
  const codegen::NestPlan plan = plan_of({8, 20, 20, 3, 1, 1, 1}, codegen::Isa::avx2);
  EXPECT_GT(plan.tile, 1U);
  const std::vector<std::int64_t>& strides = plan.nest.accesses.front().strides;
  EXPECT_EQ(strides.back(), strides[static_cast<std::size_t>(plan.tile_dim())]);
}

TEST(NestBorders, EveryPaddedWindow) {
  for (const std::int64_t columns : {9, 17, 20, 50}) {
    for (const std::int64_t taps : {2, 3, 5}) {
      for (const std::int64_t stride : {1, 2, 3}) {
        const std::int64_t dilation = taps == 3 ? 2 : 1;
        const std::int64_t pad = dilation * (taps - 1) / 2 + taps % 2;
        const Windows w{3, 7, columns, taps, stride, dilation, pad};
        SCOPED_TRACE(w.text());
        expect_as_interpreted(kernel_of(w, ReduceKind::max), 0, 5);
        expect_as_interpreted(kernel_of(w, ReduceKind::sum), 1e-5, 5);
      }
    }
  }
}

TEST(NestBorders, WhatLiesBeyondMayCount) {
  for (const std::int64_t columns : {12, 20, 37})
    for (const std::int64_t stride : {1, 2})
      expect_as_interpreted(kernel_of({3, 11, columns, 3, stride, 1, 1}, ReduceKind::max, true), 0,
                            7);
}

}  // namespace
}  // namespace rlx::testing
