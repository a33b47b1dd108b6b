// Nests whose accesses data moves: rows and elements that indices name.
#include <gtest/gtest.h>

#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

/// A row of a table for each of some indices; `second`: plus a row that other indices name.
loop::Kernel rows_of_table(std::int64_t count, std::int64_t width, std::int64_t rows, bool second) {
  NestBuilder nest({count, width});
  const int table = nest.buffer(f32, rows * width), out = nest.buffer(f32, count * width);
  const int error = nest.buffer(i32, 1);
  const auto row = [&] {
    const ScalarId index = nest.load(nest.buffer(i64, count), {1, 0});
    loop::Access access{.buffer = table, .strides = {0, 1}};
    access.indirect.push_back({.node = index, .stride = width, .extent = rows});
    return nest.load(access);
  };
  const ScalarId first = row();
  nest.store(out, second ? nest.binary(ScalarOp::add, first, row()) : first, {width, 1});
  nest.nest().error_buffer = error;
  return nest.kernel(2);
}

TEST(NestGather, RowsAndBadIndices) {
  for (const std::int64_t rows : {12, 4})
    for (const std::int64_t width : {1, 3, 21, 64, 100})
      for (const bool second : {false, true})
        expect_as_interpreted(rows_of_table(6, width, rows, second), 0, 7);
}

TEST(NestGather, IndicesAreCheckedOnceARow) {
  const auto checks = [&](bool second) {
    const auto code =
        generator().generate(rows_of_table(6, 1000, 12, second), {codegen::Isa::avx2, "", ""});
    EXPECT_TRUE(code.ok());
    const auto byte = [&](std::size_t at) { return std::to_integer<int>(code->object[at]); };
    int count = 0;  // MOV DWORD PTR [register], 1: C7 /0
    for (std::size_t i = 0; i + 6 <= code->object.size(); ++i)
      count += byte(i) == 0xc7 && byte(i + 1) < 8 && byte(i + 2) == 1 && byte(i + 3) == 0 &&
               byte(i + 4) == 0 && byte(i + 5) == 0;
    return count;
  };
  EXPECT_EQ(checks(false), 1);
  EXPECT_EQ(checks(true), 2);
}

// Lanes of rows, one behind the other and joined, that begin where data says.
TEST(NestGather, NormsOfRows) {
  for (const std::int64_t width : {8, 30, 64, 200}) {
    for (const std::int64_t count : {1, 5, 40}) {
      NestBuilder nest({count, width});
      const int table = nest.buffer(f32, 12 * width), indices = nest.buffer(i64, count);
      const int out = nest.buffer(f32, count * width), error = nest.buffer(i32, 1);
      const ScalarId index = nest.load(indices, {1, 0});
      loop::Access access{.buffer = table, .strides = {0, 1}};
      access.indirect.push_back({.node = index, .stride = width, .extent = 12});
      const ScalarId x = nest.load(access);
      const ScalarId total = nest.reduce(ReduceKind::sum, nest.binary(ScalarOp::mul, x, x));
      nest.store(out, nest.binary(ScalarOp::sub, x, total), {width, 1});
      nest.nest().error_buffer = error;
      expect_as_interpreted(nest.kernel(1), 1e-5, 3);
    }
  }
}

TEST(NestGather, Elements) {
  NestBuilder nest({6, 21});
  const int table = nest.buffer(f16, 50), indices = nest.buffer(i32, 6 * 21);
  const int out = nest.buffer(f16, 6 * 21), error = nest.buffer(i32, 1);
  const ScalarId index = nest.load(indices, {21, 1});
  loop::Access access{.buffer = table, .strides = {1, 0}};
  access.indirect.push_back({.node = index, .stride = 1, .extent = 10});
  nest.store(out, nest.load(access), {21, 1});
  nest.nest().error_buffer = error;
  expect_as_interpreted(nest.kernel(2), 0, 7);
}

// Rows that are written where data says.
TEST(NestGather, RowsOfTheResult) {
  for (const std::int64_t width : {3, 21, 100}) {
    NestBuilder nest({6, width});
    const int in = nest.buffer(f32, 6 * width), indices = nest.buffer(i64, 6);
    const int out = nest.buffer(f32, 12 * width), error = nest.buffer(i32, 1);
    const ScalarId index = nest.load(indices, {1, 0});
    nest.store(out, nest.load(in, {width, 1}), {0, 1});
    nest.nest().stores.back().access.indirect.push_back(
        {.node = index, .stride = width, .extent = 12});
    nest.nest().error_buffer = error;
    expect_as_interpreted(nest.kernel(1), 0, 7);
  }
}

}  // namespace
}  // namespace rlx::testing
