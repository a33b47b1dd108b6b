// Nests whose accesses data moves: rows and elements that indices name.
#include <gtest/gtest.h>

#include "codegen/llvm/nest_plan.hpp"
#include "graph/elementwise_eval.hpp"
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

/// Elements of each row of a table whose places a list tells, each `step` behind the one before it
/// or less; plus what they sum to where a row is `summed`.
loop::Kernel picked(std::int64_t extent, std::int64_t count, int step, DType dtype, DType of_list,
                    bool summed) {
  constexpr std::int64_t rows = 3;
  NestBuilder nest({rows, count});
  const int table = nest.buffer(dtype, rows * extent), list = nest.buffer(of_list, count);
  const int out = nest.buffer(dtype, rows * count);
  loop::Access access{.buffer = table, .strides = {extent, 0}};
  access.indirect.push_back({.node = nest.load(list, {0, 1}),
                             .stride = 1,
                             .extent = extent,
                             .within = true,
                             .step = step});
  const ScalarId x = nest.load(access);
  const ScalarId y = summed ? nest.binary(ScalarOp::add, x, nest.reduce(ReduceKind::sum, x)) : x;
  nest.store(out, y, {count, 1});
  return nest.kernel(summed ? 1 : 2);
}

/// Contents with a list of such places.
Contents with_places(const loop::Kernel& kernel, std::int64_t extent, std::int64_t count,
                     int step) {
  static std::mt19937 random(5);
  const auto any = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  };
  Contents contents = random_contents(kernel, random);
  std::int64_t place = any(2);
  for (std::int64_t i = 0; i < count; ++i) {
    store_datum(kernel.buffers[1].dtype, contents[1].data(), i, {0, place});
    place = step == 0 ? any(extent) : std::min(place + any(step + 1), extent - 1);
  }
  return contents;
}

TEST(NestGather, ElementsThatLieCloseToEachOther) {
  for (const int step : {0, 1, 2, 3}) {
    for (const std::int64_t extent : {2, 8, 14, 17, 33, 70}) {
      for (const std::int64_t count : {5, 8, 21, 32, 100}) {
        const loop::Kernel kernel = picked(extent, count, step, f32, i32, false);
        expect_as_interpreted(kernel, with_places(kernel, extent, count, step), 0);
      }
    }
    for (const auto& [dtype, of_list] :
         {std::pair{f32, i64}, std::pair{f16, i32}, std::pair{i32, i32}}) {
      for (const bool summed : {false, true}) {
        const loop::Kernel kernel = picked(33, 45, step, dtype, of_list, summed);
        expect_as_interpreted(kernel, with_places(kernel, 33, 45, step),
                              dtype == f16 ? 2e-2 : 1e-5);
      }
    }
  }
}

TEST(NestGather, OneOrTwoRegistersAreReadForPlacesInOrder) {
  const auto machine = [](codegen::Isa isa) { return codegen::machine_of({isa, "", ""}); };
  const auto registers = [](const loop::Kernel& kernel, const codegen::Machine& on) {
    const auto& nest = std::get<loop::Nest>(kernel.body);
    const codegen::NestPlan plan = codegen::plan_nest(nest, on);
    const loop::Access& access = plan.nest.accesses.back();
    const DType dtype = kernel.buffers[static_cast<std::size_t>(access.buffer)].dtype;
    const loop::Indirect* part = codegen::picked_part(
        access, dtype, plan.nest.nodes, plan.nest.accesses, plan.vector_dim, plan.lanes, on);
    return part == nullptr ? 0 : part->step;
  };
  for (const auto isa : {codegen::Isa::avx2, codegen::Isa::avx512}) {
    for (const int step : {0, 1, 2, 3})
      EXPECT_EQ(registers(picked(40, 100, step, f32, i32, false), machine(isa)), step % 3);
    EXPECT_EQ(registers(picked(40, 100, 1, f16, i64, true), machine(isa)), 1);
    EXPECT_EQ(registers(picked(40, 100, 1, f64, i32, false), machine(isa)), 0);
    EXPECT_EQ(registers(picked(40, 3, 1, f32, i32, false), machine(isa)), 0) << "few lanes";
  }
  EXPECT_EQ(registers(picked(40, 100, 1, f32, i32, false), machine(codegen::Isa::portable)), 0);
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
