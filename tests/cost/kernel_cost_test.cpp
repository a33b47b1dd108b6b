// Laws of predicted times: what must hold whatever the figures are.
#include "cost/kernel_cost.hpp"

#include <gtest/gtest.h>

#include "codegen/nest_build.hpp"
#include "cost/kernel_work.hpp"
#include "cost/measure_kernels.hpp"
#include "cost/presets.hpp"
#include "cost/row_maps.hpp"
#include "cost/touched.hpp"

namespace rlx::cost {
namespace {

double ns_of(const loop::Kernel& kernel, int threads = 1) {
  return predict(kernel, {}, model_of_zen5(), threads).ns;
}

TEST(KernelCost, PredictsPositiveTimesForEveryFamily) {
  for (const auto vendor : {codegen::CpuFacts::Vendor::other, codegen::CpuFacts::Vendor::amd,
                            codegen::CpuFacts::Vendor::intel}) {
    for (const auto isa : {codegen::Isa::portable, codegen::Isa::avx2, codegen::Isa::avx512}) {
      codegen::CpuFacts facts;
      facts.vendor = vendor;
      facts.family = 25;
      const codegen::Target made{isa, "", ""};
      const MachineModel model = preset_for(facts, made);
      EXPECT_GT(predict(gemm_kernel(8, 32, 16, f32, made), {}, model, 1).ns, 0) << model.family;
      EXPECT_GT(predict(read_kernel(4, 100), {}, model, 1).ns, 0) << model.family;
      EXPECT_GT(predict(op_kernel(ScalarOp::exp, 1, 64), {}, model, 1).ns, 0) << model.family;
    }
  }
}

TEST(KernelCost, PresetsTellTheZensApart) {
  const auto family_of = [](std::uint32_t family, std::uint32_t model) {
    const codegen::CpuFacts facts{codegen::CpuFacts::Vendor::amd, family, model, {}};
    return preset_for(facts, {codegen::Isa::avx2, "", ""}).family;
  };
  EXPECT_EQ(family_of(23, 0x01), "x86-64, avx2");
  EXPECT_EQ(family_of(23, 0x31), "AMD Zen 2, avx2");
  for (const std::uint32_t model : {0x01U, 0x21U, 0x50U})
    EXPECT_EQ(family_of(25, model), "AMD Zen 3, avx2") << model;
  for (const std::uint32_t model : {0x11U, 0x61U, 0x74U, 0xa0U})
    EXPECT_EQ(family_of(25, model), "AMD Zen 4, avx2") << model;
  EXPECT_EQ(family_of(26, 0x02), "AMD Zen 5, avx2");
}

TEST(KernelCost, Zen3DividesAsZen4AndHasTheCachesOfZen2) {
  const MachineModel zen2 = model_of_zen2(), zen3 = model_of_zen3(), zen4 = model_of_narrow_zen4();
  const auto cycles = [](const MachineModel& model) {
    return model.op(ScalarOp::div) / model.cycle;
  };
  EXPECT_LT(cycles(zen3), 0.7 * cycles(zen2));
  EXPECT_NEAR(cycles(zen3), cycles(zen4), 0.3);
  EXPECT_EQ(zen3.cache_bytes[1], zen2.cache_bytes[1]);
  EXPECT_EQ(zen3.cache_bytes[1], zen4.cache_bytes[1] / 2);
}

TEST(KernelCost, GrowsWithTheShape) {
  for (std::int64_t size = 16; size <= 512; size *= 2) {
    EXPECT_LT(ns_of(gemm_kernel(size, 64, 64, f32, zen5_target)),
              ns_of(gemm_kernel(size * 2, 64, 64, f32, zen5_target)));
    EXPECT_LT(ns_of(gemm_kernel(64, size, 64, f32, zen5_target)),
              ns_of(gemm_kernel(64, size * 2, 64, f32, zen5_target)));
    EXPECT_LT(ns_of(gemm_kernel(64, 64, size, f32, zen5_target)),
              ns_of(gemm_kernel(64, 64, size * 2, f32, zen5_target)));
    EXPECT_LT(ns_of(read_kernel(size, 64)), ns_of(read_kernel(size * 2, 64)));
    EXPECT_LT(ns_of(rows_kernel(size, 64, f32)), ns_of(rows_kernel(size * 2, 64, f32)));
  }
}

TEST(KernelCost, ExpensiveOpsCostMore) {
  const double add = ns_of(op_kernel(ScalarOp::add, 4, 4096));
  const double exp = ns_of(op_kernel(ScalarOp::exp, 4, 4096));
  const double pow = ns_of(op_kernel(ScalarOp::pow, 4, 4096));
  EXPECT_LT(add, exp);
  EXPECT_LT(exp, pow);
}

TEST(KernelCost, ThreadsShareTheWorkAndNeverMultiplyIt) {
  const loop::Kernel gemm = gemm_kernel(512, 512, 512, f32, zen5_target);
  const double one = ns_of(gemm, 1), two = ns_of(gemm, 2), four = ns_of(gemm, 4);
  EXPECT_LT(two, one);
  EXPECT_LT(four, two);
  EXPECT_GE(two, one / 2);
  EXPECT_GE(four, one / 4);
  // One work item cannot be shared.
  const loop::Kernel tiny = rows_kernel(1, 16, f32);
  EXPECT_EQ(ns_of(tiny, 1), ns_of(tiny, 8));
}

TEST(KernelCost, FarDataTakesLonger) {
  const loop::Kernel kernel = rows_kernel(512, 64, f32);
  const double bytes = 512 * 80 * 4;
  double before = 0;
  for (std::size_t level = 0; level < level_count; ++level) {
    Residency where;
    where.bytes[level] = bytes;
    const std::vector<Residency> both(2, where);
    const double ns = predict(kernel, both, model_of_zen5(), 1).ns;
    EXPECT_GT(ns, before) << level;
    before = ns;
  }
}

TEST(KernelCost, RowsApartTakeNoLessThanOneRun) {
  EXPECT_LT(ns_of(copy_kernel(128, 384, 384)), ns_of(copy_kernel(128, 384, 768)));
  EXPECT_LT(ns_of(copy_kernel(128, 384, 768)), ns_of(copy_kernel(256, 384, 768)));
}

TEST(KernelCost, RowsHalfAPageApartBeginAnewWhereDataIsNotInL1) {
  const MachineModel model = model_of_zen4();
  constexpr std::int64_t rows = 200, columns = 32;
  const auto rows_apart = [&](std::int64_t apart) {
    return work_of(copy_kernel(rows, columns, apart), {}, model).far_rows;
  };
  EXPECT_EQ(rows_apart(columns), 0);
  EXPECT_EQ(rows_apart(columns + 256), 0);
  EXPECT_EQ(rows_apart(columns + 512), rows);
  for (const std::size_t level : {0u, 1u}) {
    Residency where;
    where.bytes[level] = rows * columns * 4;
    KernelWork work = work_of(copy_kernel(rows, columns, 1024), std::vector(2, where), model);
    const double with_rows = time_of(work, model, 1).ns;
    work.far_rows = 0;
    const double without = time_of(work, model, 1).ns;
    if (level == 0) {
      EXPECT_EQ(with_rows, without);
    } else {
      EXPECT_GT(with_rows, without + 0.1 * rows);
    }
  }
}

TEST(KernelCost, RowsWithGapsBringWholeLinesAndMoreOfThem) {
  const MachineModel model = model_of_rapids(true);
  const auto lines_with_gaps = [&](std::int64_t columns, std::int64_t apart) {
    return work_of(copy_kernel(100, columns, apart), {}, model).stores_with_gaps;
  };
  EXPECT_EQ(lines_with_gaps(32, 32), 0);
  EXPECT_EQ(lines_with_gaps(24, 32), 0) << "a line of every row is not whole, none is left out";
  EXPECT_EQ(lines_with_gaps(32, 128), 100 * 2);
  EXPECT_EQ(lines_with_gaps(24, 96), 100 * 2);
  EXPECT_EQ(touched_bytes(copy_kernel(100, 24, 96), 1), 100 * 2 * 64);
  // Rows of 24 begin in turn at a line and in the middle of one.
  EXPECT_NEAR(touched_bytes(copy_kernel(100, 16, 24), 1), 100 * 1.5 * 64, 64);
  Residency where;
  where.bytes[2] = 100 * 32 * 4;
  KernelWork work = work_of(copy_kernel(100, 32, 128), std::vector(2, where), model);
  const double with_gaps = time_of(work, model, 1).ns;
  work.stores_with_gaps = 0;
  EXPECT_GT(with_gaps, time_of(work, model, 1).ns);
}

TEST(KernelCost, RegistersAcrossLinesAreCountedByTheirShare) {
  const MachineModel model = model_of_rapids(true);
  const auto across = [&](std::int64_t columns) {
    // A map of rows that are read apart, so that they do not become one.
    loop::Kernel kernel = copy_kernel(100, columns, 2 * columns);
    return work_of(kernel, {}, model).lines_across / (100.0 * static_cast<double>(columns) / 16);
  };
  EXPECT_EQ(across(32), 0);
  // Of the two registers of a row of 24 the masked one never lies across, the other every second
  // time.
  EXPECT_DOUBLE_EQ(across(24), 0.25);
  EXPECT_GT(across(30), 0.4);
}

TEST(KernelCost, GuardsAlongARowOfOneRoundAreNumbersInTheCode) {
  const MachineModel model = model_of_zen3();
  const auto compute = [&](bool guarded) {
    loop::Kernel kernel = copy_kernel(64, 19, 32);
    loop::Access& access = std::get<loop::Nest>(kernel.body).accesses[0];
    if (guarded) access.guards = {{.offset = -1, .extent = 18, .coefficients = {0, 1}}};
    return work_of(kernel, {}, model).compute;
  };
  const double vectors = 64 * 3;
  EXPECT_LT(compute(true) - compute(false), vectors * model.cycle);
}

TEST(KernelCost, BlocksInsideOfAllBordersAskNoGuards) {
  const MachineModel model = model_of_rapids(false);
  // Five shifted rows, each with its own border along the rows.
  const auto compute = [&](std::int64_t rows, std::int64_t border) {
    loop::Kernel kernel = copy_kernel(rows, 64, 64);
    auto& nest = std::get<loop::Nest>(kernel.body);
    const loop::Access row = nest.accesses[0];
    for (std::int64_t i = 0; i < 5; ++i) {
      loop::Access& access = i == 0 ? nest.accesses[0] : nest.accesses.emplace_back(row);
      access.guards = {{.offset = -border, .extent = rows - 2 * border, .coefficients = {1, 0}}};
      if (i == 0) continue;
      const auto load = static_cast<ScalarId>(nest.nodes.size());
      nest.nodes.push_back({.op = ScalarOp::load, .dtype = f32, .index = static_cast<int>(i)});
      nest.nodes.push_back(
          {.op = ScalarOp::add, .dtype = f32, .a = nest.stores[0].node, .b = load});
      nest.stores[0].node = load + 1;
    }
    return work_of(kernel, {}, model).compute;
  };
  EXPECT_LT(compute(256, 1), 0.9 * compute(256, 100));
}

TEST(KernelCost, GuardsOfRowsAreAskedOnceARow) {
  const MachineModel model = model_of_narrow_zen4();
  const auto of_guard = [&](std::int64_t columns) {
    loop::Kernel kernel = copy_kernel(64, columns, columns);
    const double plain = work_of(kernel, {}, model).compute;
    auto& nest = std::get<loop::Nest>(kernel.body);
    nest.accesses[0].guards = {{.offset = -1, .extent = 62, .coefficients = {1, 0}}};
    return work_of(kernel, {}, model).compute - plain;
  };
  EXPECT_GT(of_guard(256), 0);
  EXPECT_NEAR(of_guard(1024), of_guard(256), 0.1 * of_guard(256));
}

TEST(KernelCost, AdditionsToProductsShowInPart) {
  const auto compute = [](bool of_products, double added_product) {
    MachineModel model = model_of_narrow_zen4();
    model.overlap.added_product = added_product;
    testing::NestBuilder nest({4096});
    const int x = nest.buffer(f32, 4096), y = nest.buffer(f32, 4096);
    const ScalarId element = nest.load(x, {1});
    ScalarId sum = element;
    for (int i = 1; i <= 8; ++i) {
      const ScalarId factor = nest.constant(DType::f32, i);
      const ScalarId part = of_products ? nest.binary(ScalarOp::mul, element, factor) : element;
      sum = nest.binary(ScalarOp::add, sum, part);
    }
    nest.store(y, sum, {1});
    return work_of(nest.kernel(1), {}, model).compute;
  };
  EXPECT_LT(compute(true, 0.6), 0.9 * compute(true, 1));
  EXPECT_DOUBLE_EQ(compute(false, 0.6), compute(false, 1));
}

TEST(KernelCost, HalfARegisterTakesOneOfTwoSteps) {
  const auto compute = [](std::int64_t columns, const MachineModel& model) {
    return work_of(curve_kernel(ScalarOp::tanh, columns), {}, model).compute;
  };
  EXPECT_NEAR(compute(8, model_of_zen4()), 0.5 * compute(16, model_of_zen4()),
              0.05 * compute(16, model_of_zen4()));
  EXPECT_DOUBLE_EQ(compute(8, model_of_zen5()), compute(16, model_of_zen5()));
}

TEST(KernelCost, ElementsAloneUnderAGuardTakeMore) {
  const MachineModel model = model_of_zen4();
  loop::Kernel kernel = copy_kernel(64, 29, 29);
  auto& nest = std::get<loop::Nest>(kernel.body);
  nest.accesses[0].strides = {1, 64};
  const double plain = work_of(kernel, {}, model).compute;
  nest.accesses[0].guards = {{.offset = -1, .extent = 62, .coefficients = {1, 0}}};
  EXPECT_GT(work_of(kernel, {}, model).compute, 1.1 * plain);
}

TEST(KernelCost, CrossingWaitsBesideTheInstructions) {
  const MachineModel model = model_of_zen4();
  const KernelWork product = work_of(gemm_kernel(256, 256, 256, f32, zen5_target), {}, model);
  const double ns = time_of(product, model, 2).ns;
  constexpr double crossing = 1000;
  const auto with = [&](const KernelWork& work, const CrossingTime& time) {
    return time_of(work, model, 2, 0, time).ns;
  };
  EXPECT_GT(with(product, {.fetched = crossing}), ns);
  EXPECT_LT(with(product, {.fetched = crossing}), ns + 0.6 * crossing);
  const KernelWork copy = work_of(copy_kernel(256, 512, 512), {}, model);
  EXPECT_GT(with(copy, {.fetched = 10 * crossing}), 9 * crossing);
}

TEST(KernelCost, InstructionsHideLessOfWhatIsTakenToBeWritten) {
  MachineModel model = model_of_rapids(true);
  model.overlap.taken_beside = 0.5;
  const KernelWork series = work_of(op_kernel(ScalarOp::exp, 8, 2048), {}, model);
  const double ns = time_of(series, model, 2).ns, crossing = 0.2 * ns;
  const double fetched = time_of(series, model, 2, 0, {.fetched = crossing}).ns - ns;
  const double taken = time_of(series, model, 2, 0, {.taken = crossing}).ns - ns;
  EXPECT_LT(fetched, 0.5 * crossing);
  EXPECT_GT(taken, 0.5 * crossing);
}

TEST(KernelCost, PlacesThatSeveralAccessesReachAreReadOnce) {
  // Four loads of neighbours move what one load of them all moves; four of parts far apart more.
  const auto sum_of = [](std::int64_t apart) {
    loop::Kernel kernel = copy_kernel(64, 1024, 1024);
    kernel.buffers[0].elements = 64 * 1024 + 3 * apart;
    auto& nest = std::get<loop::Nest>(kernel.body);
    for (int i = 1; i < 4; ++i) {
      nest.accesses.push_back(nest.accesses[0]);
      nest.accesses.back().offset = i * apart;
      nest.nodes.push_back({.op = ScalarOp::load, .dtype = f32, .index = i});
    }
    for (int i = 0; i < 3; ++i)
      nest.nodes.push_back(
          {.op = ScalarOp::add, .dtype = f32, .a = i == 0 ? 0 : 3 + i, .b = i + 1});
    nest.stores[0].node = 6;
    return kernel;
  };
  double near = 0, far = 0;
  for (const double bytes : work_of(sum_of(16), {}, model_of_zen5()).read) near += bytes;
  for (const double bytes : work_of(sum_of(64 * 1024), {}, model_of_zen5()).read) far += bytes;
  EXPECT_NEAR(near, (64 * 1024 + 3 * 16) * 4, 1);
  EXPECT_NEAR(far, 4 * 64 * 1024 * 4, 1);
}

TEST(KernelCost, FartherCodeAndFirstBytesNeverTakeLess) {
  const MachineModel model = model_of_zen5();
  const KernelWork work = work_of(read_kernel(4, 64), {}, model);
  EXPECT_LT(time_of(work, model, 1, 0).ns, time_of(work, model, 1, 3).ns);
  EXPECT_LT(time_of(work, model, 1, 3).ns, time_of(work, model, 1, 15).ns);
  double before = 0;
  for (std::size_t level = 1; level < level_count; ++level) {
    KernelWork far = work;
    far.jumps = 100;
    far.starts = 100;
    far.read = {};
    far.read[level] = 4096;
    const double ns = time_of(far, model, 1).ns;
    EXPECT_GT(ns, before);
    before = ns;
  }
}

/// Elements of columns times what `of_sum` makes of their sum.
loop::Kernel scaled_columns(ScalarOp of_sum, std::int64_t rows, std::int64_t columns) {
  testing::NestBuilder nest({columns, rows});
  const int in = nest.buffer(f32, rows * columns), out = nest.buffer(f32, rows * columns);
  const ScalarId x = nest.load(in, {1, columns});
  const ScalarId factor = nest.unary(of_sum, nest.reduce(ReduceKind::sum, x));
  nest.store(out, nest.binary(ScalarOp::mul, x, factor), {1, columns});
  return nest.kernel(1);
}

TEST(KernelCost, WhatAColumnHasOnceIsCountedOnce) {
  const MachineModel model = model_of_rapids(true);
  const double plain = predict(scaled_columns(ScalarOp::abs, 64, 608), {}, model, 1).ns;
  const double divided = predict(scaled_columns(ScalarOp::reciprocal, 64, 608), {}, model, 1).ns;
  EXPECT_GT(divided, plain);
  EXPECT_LT(divided, 1.2 * plain);
}

/// A depthwise window over an image of so many channels, with a curve behind its sums or none;
/// pixels lie `apart` elements apart, or side by side.
loop::Kernel window_kernel(std::int64_t channels, std::int64_t size, std::int64_t taps,
                           bool sigmoids, std::int64_t apart = 0) {
  apart = std::max(apart, channels);
  const std::int64_t in_row = (size + taps - 1) * apart;
  testing::NestBuilder nest({size, size, channels, taps, taps});
  const int in = nest.buffer(f32, (size + taps - 1) * in_row),
            weights = nest.buffer(f32, taps * taps * channels),
            out = nest.buffer(f32, size * size * channels);
  const ScalarId x = nest.load(in, {in_row, apart, 1, in_row, apart});
  const ScalarId w = nest.load(weights, {0, 0, 1, taps * channels, channels});
  ScalarId y = nest.reduce(ReduceKind::sum, nest.binary(ScalarOp::mul, x, w));
  if (sigmoids) y = nest.unary(ScalarOp::reciprocal, nest.unary(ScalarOp::exp, y));
  nest.store(out, y, {size * channels, channels, 1, 0, 0});
  return nest.kernel(3);
}
double ns_of_window(std::int64_t channels, std::int64_t size, std::int64_t taps, bool sigmoids) {
  const loop::Kernel kernel = window_kernel(channels, size, taps, sigmoids);
  return predict(kernel, {}, model_of_rapids(true), 1).ns;
}

TEST(KernelCost, WindowsReadAgainWhatL1DoesNotHold) {
  const MachineModel model = model_of_rapids(true);
  const auto again = [&](std::int64_t channels, std::int64_t size, std::int64_t taps) {
    const loop::Kernel kernel = window_kernel(channels, size, taps, false);
    return work_of(kernel, {}, model).streamed[1] / (4.0 * static_cast<double>(channels));
  };
  EXPECT_EQ(again(32, 20, 3), 0);
  // Down the rows of two bands with some of the channels: their weights twice.
  EXPECT_LE(again(192, 20, 5), 2 * 25);
  // Lines a quarter of a page apart fall into the same sets: weights and halos for every tile.
  EXPECT_GE(again(256, 20, 5), 20 * (25 + 5 * 24));
}

TEST(KernelCost, WindowsOverSomeChannelsOfAConcatenationReadThoseAlone) {
  const MachineModel model = model_of_rapids(true);
  const auto work = [&](std::int64_t apart) {
    return work_of(window_kernel(224, 7, 3, false, apart), {}, model);
  };
  const KernelWork alone = work(0), part = work(1440);
  EXPECT_EQ(part.streamed[1], alone.streamed[1]);
  EXPECT_LE(part.starts, 1.1 * alone.starts);
}

/// Planes that are added are no halo of each other.
TEST(KernelCost, SumsOfTwoPlanesReadEachPlaneOnce) {
  constexpr std::int64_t pixels = 56 * 56, channels = 64, plane = pixels * channels;
  testing::NestBuilder nest({pixels, channels, 2});
  const int in = nest.buffer(f32, 2 * plane), out = nest.buffer(f32, plane);
  const ScalarId x = nest.load(in, {channels, 1, plane});
  nest.store(out, nest.reduce(ReduceKind::sum, x), {channels, 1, 0});
  const KernelWork work = work_of(nest.kernel(2), {}, model_of_rapids(true));
  EXPECT_EQ(work.streamed[1], 0);
  EXPECT_LE(work.starts, 2 * plane * 4 / 64);
}

TEST(KernelCost, DivisionsBehindAWindowShowBesideItsSums) {
  const double sums = ns_of_window(64, 40, 3, false), all = ns_of_window(64, 40, 3, true);
  const MachineModel model = model_of_rapids(true);
  const double registers = 40 * 40 * 64 / 16.0;
  EXPECT_GT(all - sums, 0.9 * registers * model.op(ScalarOp::reciprocal));
}

TEST(KernelCost, NoImagesTakeNoTimeOfTheirOwn) {
  testing::NestBuilder nest({0, 20, 20, 192, 5, 5});
  const std::int64_t in_row = 24 * 192, image = 24 * in_row;
  const int in = nest.buffer(f32, 0), weights = nest.buffer(f32, 25 * 192),
            out = nest.buffer(f32, 0);
  const ScalarId x = nest.load(in, {image, in_row, 192, 1, in_row, 192});
  const ScalarId w = nest.load(weights, {0, 0, 0, 1, 5 * 192, 192});
  const ScalarId y = nest.reduce(ReduceKind::sum, nest.binary(ScalarOp::mul, x, w));
  nest.store(out, y, {400 * 192, 20 * 192, 192, 1, 0, 0});
  const MachineModel model = model_of_rapids(true);
  EXPECT_EQ(predict(nest.kernel(4), {}, model, 1).compute, 0);
}

TEST(KernelCost, StoresOfOneColumnWaitForEachOtherByRow) {
  MachineModel waits = model_of_rapids(true), none = waits;
  waits.overlap.masked_store = 10;
  none.overlap.masked_store = 0;
  const auto waited_cycles = [&](std::int64_t columns) {
    const loop::Kernel kernel = gemm_kernel(600, columns, 8, f32, zen5_target);
    return (predict(kernel, {}, waits, 1).ns - predict(kernel, {}, none, 1).ns) / waits.cycle;
  };
  EXPECT_NEAR(waited_cycles(1), 6'000, 600);
  EXPECT_EQ(waited_cycles(2), 0);
  EXPECT_EQ(waited_cycles(3), 0);
  EXPECT_EQ(waited_cycles(4), 0);
}

// Weights of 8 MB, far from all caches of a core, behind 49 rows that take longer.
TEST(KernelCost, PanelsThatAreAskedForArriveBesideTheProducts) {
  MachineModel model = model_of_rapids(true);
  const loop::Kernel kernel = gemm_kernel(49, 2048, 1024, f32, zen5_target);
  std::vector<Residency> at(kernel.buffers.size());
  const auto b = static_cast<std::size_t>(std::get<loop::Contraction>(kernel.body).b_buffer);
  at[b].bytes[3] = 2048.0 * 1024 * 4;
  const auto longer = [&](double asked) {
    model.overlap.asked_beside = asked;
    return predict(kernel, at, model, 1).ns / predict(kernel, {}, model, 1).ns;
  };
  EXPECT_LT(longer(1), 1.2);
  EXPECT_GT(longer(0), 1.25);
}

TEST(KernelCost, IsDeterministic) {
  const loop::Kernel kernel = gemm_kernel(100, 70, 33, f32, zen5_target);
  EXPECT_EQ(ns_of(kernel, 2), ns_of(kernel, 2));
}

}  // namespace
}  // namespace rlx::cost
