// Laws of caches: code that several kernels share is nearer than code of each its own, and what is
// written to a level comes on top of what is read from it.
#include <gtest/gtest.h>

#include <limits>

#include "cost/kernel_work.hpp"
#include "cost/measure_kernels.hpp"
#include "cost/presets.hpp"
#include "plan/build.hpp"
#include "plan/predict.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

/// Layers one behind the other, of one shape or of shapes that all differ.
Plan layers(int count, std::int64_t narrower) {
  Graph graph;
  std::int64_t width = 512;
  Value x = graph.input("x", f32, {16, width});
  for (int i = 0; i < count; ++i) {
    const std::int64_t next = width - narrower;
    x = relu(matmul(x, graph.param("w" + std::to_string(i), f32, {width, next})));
    width = next;
  }
  graph.output("y", x);
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = cost::model_of_zen5();
  return build_plan(flatten(graph).value(), options).value();
}

/// Lines of code that a run of the plan brings into the first level.
double lines_from_afar(const Plan& plan) {
  const Whereabouts where = whereabouts(plan, Pieces(plan), cost::model_of_zen5());
  double bytes = 0;
  for (const auto& [step, code] : where.code)
    bytes += code.bytes[1] + code.bytes[2] + code.bytes[3];
  return bytes / 64;
}

/// Bytes that a run's steps find beyond the caches of the first core.
double bytes_from_afar(Plan plan, int threads) {
  for (Step& step : plan.steps) step.threads = threads;
  const Whereabouts where = whereabouts_of_first(plan, Pieces(plan), cost::model_of_zen5());
  double bytes = 0;
  for (const auto& [step, data] : where.data) {
    for (const cost::Residency& buffer : data) bytes += buffer.bytes[2] + buffer.bytes[3];
  }
  return bytes;
}

TEST(CacheCost, OfSharedStepsACoreKeepsItsPart) {
  // 1.4 MB of weights: one core's L2 does not hold them, half of them it does.
  const Plan plan = layers(1, 200);
  EXPECT_EQ(bytes_from_afar(plan, 2), 0);
  const Plan larger = layers(3, 0);
  EXPECT_GT(bytes_from_afar(larger, 1), bytes_from_afar(larger, 4));
  EXPECT_EQ(bytes_from_afar(larger, 8), 0);
}

TEST(CacheCost, KernelsOfOneShapeShareTheirCode) {
  const Plan alike = layers(40, 0), different = layers(40, 8);
  ASSERT_EQ(alike.steps.size(), different.steps.size());
  EXPECT_EQ(lines_from_afar(alike), 0);
  EXPECT_GT(lines_from_afar(different), 40 * 10);
}

TEST(CacheCost, LittleCodeStaysInTheFirstLevel) { EXPECT_EQ(lines_from_afar(layers(4, 8)), 0); }

TEST(CacheCost, CodeFromFartherAwayNeverTakesLess) {
  const cost::MachineModel model = cost::model_of_zen5();
  const cost::KernelWork work = cost::work_of(cost::read_kernel(1, 64), {}, model);
  double before = 0;
  for (const double line : model.code_line) {
    const double ns = cost::time_of(work, model, 1, line).ns;
    EXPECT_GE(ns, before);
    before = ns;
  }
}

TEST(CacheCost, WhatIsWrittenComesOnTopOfWhatIsRead) {
  const cost::MachineModel model = cost::model_of_zen5();
  for (std::size_t level = 1; level < cost::level_count; ++level) {
    cost::KernelWork reads, writes, both;
    reads.read[level] = both.read[level] = 1e6;
    writes.written[level] = both.written[level] = 1e6;
    const auto memory = [&](const cost::KernelWork& work) {
      return cost::time_of(work, model, 1).memory;
    };
    EXPECT_DOUBLE_EQ(memory(both), memory(reads) + memory(writes)) << level;
  }
}

/// An image of planes `apart` elements from each other that becomes channels last, with a border:
/// lanes go from plane to plane.
loop::Kernel channels_last(std::int64_t channels, std::int64_t side, std::int64_t apart) {
  loop::Nest nest;
  nest.extents = {side + 2, side + 2, channels};
  nest.parallel_dims = 3;
  nest.accesses = {{0, -side - 1, {side, 1, apart}, {}, {}, 0}};
  nest.accesses[0].guards = {{-1, side, {1, 0, 0}}, {-1, side, {0, 1, 0}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{1, 0, {(side + 2) * channels, channels, 1}, {}, {}, 0}, 0}};
  return {{{f32, channels * apart, false}, {f32, (side + 2) * (side + 2) * channels, true}},
          std::move(nest)};
}

TEST(CacheCost, LanesWhoseLinesShareAFewSetsOfTheFirstLevelComeFromTheSecond) {
  const cost::MachineModel model = cost::model_of_zen5();
  const auto time = [&](std::int64_t channels, std::int64_t apart) {
    return cost::predict(channels_last(channels, 12, apart), {}, model, 1).ns;
  };
  // Rows too short for tiles that are turned. Planes of 4096 bytes: all lines of 32 channels fall
  // into one set, those of 8 find room in it.
  EXPECT_GT(time(32, 1024), 1.5 * time(32, 1040));
  EXPECT_LT(time(8, 1024), 1.2 * time(8, 1040));
}

/// y[i] = the sum of `planes` arrays of so many elements; a guard that x[i] exists, where asked
/// for.
loop::Kernel sum_of_planes(int planes, bool guarded = false, std::int64_t elements = 8192) {
  loop::Nest nest;
  nest.extents = {elements};
  nest.parallel_dims = 1;
  for (int i = 0; i < planes; ++i) {
    loop::Access plane{.buffer = 0, .offset = i * elements, .strides = {1}};
    if (guarded) plane.guards = {{0, elements - 3, {1}}};
    nest.accesses.push_back(plane);
    nest.nodes.push_back({.op = ScalarOp::load, .dtype = f32, .index = i});
  }
  for (int i = 1; i < planes; ++i)
    nest.nodes.push_back(
        {.op = ScalarOp::add, .dtype = f32, .a = i == 1 ? 0 : planes + i - 2, .b = i});
  nest.stores.push_back(
      {{.buffer = 1, .strides = {1}}, static_cast<ScalarId>(nest.nodes.size()) - 1});
  return {{{f32, elements * planes, false}, {f32, elements, true}}, std::move(nest)};
}

TEST(CacheCost, MapsOfMoreValuesThanRegistersSpill) {
  const cost::MachineModel zen2 = cost::model_of_zen2();
  const auto compute = [&](int planes) {
    return cost::predict(sum_of_planes(planes), {}, zen2, 1).compute;
  };
  EXPECT_GT(compute(36) / compute(12), 1.5 * 36 / 12);
}

TEST(CacheCost, StreamsThatShareSetsOfTheFirstLevelTakeLonger) {
  const cost::MachineModel zen4 = cost::model_of_zen4();
  const auto crowded = [&](int planes, std::int64_t elements) {
    return cost::work_of(sum_of_planes(planes, false, elements), {}, zen4).crowded;
  };
  // Planes of whole pages begin in the same set, which holds eight lines.
  EXPECT_EQ(crowded(8, 8192), 0);
  EXPECT_GT(crowded(16, 8192), 0);
  EXPECT_GT(crowded(32, 8192), 2 * crowded(16, 8192));
  EXPECT_EQ(crowded(32, 8192 + 16), 0);
}

TEST(CacheCost, WhatNobodyTouchesForLongComesFromMemory) {
  const Plan plan = layers(4, 8);
  const auto from_memory = [&](double forgotten) {
    cost::MachineModel model = cost::model_of_zen5();
    model.forgotten = forgotten;
    const Whereabouts where = whereabouts(plan, Pieces(plan), model);
    double bytes = 0;
    for (const auto& [step, found] : where.data)
      for (const cost::Residency& one : found) bytes += one.bytes[3];
    return bytes;
  };
  EXPECT_EQ(from_memory(std::numeric_limits<double>::infinity()), 0);
  EXPECT_GT(from_memory(1e6), 0);
  EXPECT_GT(from_memory(1e3), from_memory(1e6));
}

/// The rest of a program pushes out weights and code, and leaves what its last step made.
TEST(CacheCost, WhatIsDoneElsewherePushesWeightsAway) {
  const cost::MachineModel model = cost::model_of_zen5();
  const Plan plan = layers(4, 8);
  const auto found = [&](const cost::Elsewhere& elsewhere, Storage storage) {
    const Whereabouts where = whereabouts(plan, Pieces(plan), model, 1, elsewhere);
    cost::Residency sum;
    for (const Step& step : plan.steps) {
      for (std::size_t i = 0; i < step.buffers.size(); ++i) {
        if (plan.buffers[static_cast<std::size_t>(step.buffers[i])].storage != storage) continue;
        for (std::size_t level = 0; level < cost::level_count; ++level)
          sum.bytes[level] += where.data.at(&step)[i].bytes[level];
      }
    }
    return sum.bytes;
  };
  const auto near = found({}, Storage::weight);
  EXPECT_GT(near[1] + near[2], 0);
  EXPECT_EQ(near[3], 0);
  EXPECT_GT(found({.bytes = 1e9}, Storage::weight)[3], 0.9 * (near[1] + near[2]));
  EXPECT_EQ(found({.bytes = 1e9}, Storage::arena), found({}, Storage::arena));
  const auto code_from_memory = [&](const cost::Elsewhere& elsewhere) {
    const Whereabouts where = whereabouts(plan, Pieces(plan), model, 1, elsewhere);
    double bytes = 0;
    for (const auto& [step, code] : where.code) bytes += code.bytes[3];
    return bytes;
  };
  EXPECT_GT(code_from_memory({.bytes = 1e9}), code_from_memory({}));
  Plan near_plan = plan, far_plan = plan;
  choose_threads(near_plan, model, 1);
  choose_threads(far_plan, model, 1, {.bytes = 1e9});
  EXPECT_GT(far_plan.predicted_ns, near_plan.predicted_ns);
}

TEST(CacheCost, RowsThatDataNamesLeaveTheOthersOfTheirTableUntouched) {
  Graph graph;
  const Value table = graph.param("table", f32, {100000, 64});
  const Value at = graph.input("at", i64, {4});
  const Value x = graph.input("x", f32, {4, 64});
  graph.output("y", exp(x));
  graph.output("rows", gather(table, at, 0));
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = cost::model_of_zen5();
  const Plan plan = build_plan(flatten(graph).value(), options).value();
  const Whereabouts where = whereabouts(plan, Pieces(plan), options.model);
  for (const auto& [step, found] : where.data)
    for (const cost::Residency& one : found) EXPECT_EQ(one.bytes[2] + one.bytes[3], 0);
}

TEST(CacheCost, GuardsAlongLanesTakeLongerWithoutMasks) {
  const auto more = [](const cost::MachineModel& model) {
    return cost::predict(sum_of_planes(2, true), {}, model, 1).compute /
           cost::predict(sum_of_planes(2), {}, model, 1).compute;
  };
  EXPECT_GT(more(cost::model_of_zen2()), 2 * more(cost::model_of_zen5()));
}

/// Depthwise 3x3 windows over 16 channels of 16 rows and `columns`, from planes where asked for;
/// then a division of each result, where asked for.
loop::Kernel windows(std::int64_t columns, bool planes, bool divides) {
  constexpr std::int64_t rows = 16, channels = 16;
  loop::Access image{.buffer = 0};
  if (planes) image.strides = {columns, 1, rows * columns, columns, 1};
  else image.strides = {columns * channels, channels, 1, columns * channels, channels};
  image.offset = -image.strides[0] - image.strides[1];
  image.guards = {{-1, rows, {1, 0, 0, 1, 0}}, {-1, columns, {0, 1, 0, 0, 1}}};
  loop::Nest nest;
  nest.extents = {rows, columns, channels, 3, 3};
  nest.parallel_dims = 3;
  nest.accesses = {image, {.buffer = 1, .strides = {0, 0, 1, 3 * channels, channels}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::load, .dtype = f32, .index = 1},
                {.op = ScalarOp::mul, .dtype = f32, .a = 0, .b = 1},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 2}};
  if (divides) nest.nodes.push_back({.op = ScalarOp::reciprocal, .dtype = f32, .a = 3});
  nest.stores.push_back({{.buffer = 2, .strides = {columns * channels, channels, 1, 0, 0}},
                         static_cast<ScalarId>(nest.nodes.size()) - 1});
  const std::int64_t elements = rows * columns * channels;
  return {{{f32, elements, false}, {f32, 9 * channels, false}, {f32, elements, true}},
          std::move(nest)};
}

TEST(CacheCost, WindowsTakeAllThatTheyWantOfALineAtOnce) {
  // Every other 3 x 3 window over 64 planes of 32 x 32 with a border, channels last behind them.
  const auto time = [](std::int64_t apart) {
    loop::Nest nest;
    nest.extents = {15, 16, 64, 3, 3};
    nest.parallel_dims = 3;
    nest.accesses = {{.buffer = 0, .offset = -1, .strides = {64, 2, apart, 32, 1}}};
    nest.accesses[0].guards = {{-1, 32, {0, 2, 0, 0, 1}}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                  {.op = ScalarOp::reduce, .dtype = f32, .a = 0}};
    nest.stores.push_back({{.buffer = 1, .strides = {1024, 64, 1, 0, 0}}, 1});
    const loop::Kernel kernel{{{f32, 64 * apart, false}, {f32, 15 * 16 * 64, true}}, nest};
    return cost::predict(kernel, {}, cost::model_of_narrow_zen4(), 1).ns;
  };
  EXPECT_GT(time(1024), time(1040)) << "lines in one set";
  EXPECT_LT(time(1024), 1.7 * time(1040)) << "of each line all elements are taken at once";
}

TEST(CacheCost, GuardsCostLessWhereARowIsOneRoundOfTheLoop) {
  const auto of_a_column = [](std::int64_t columns) {
    // So wide that too many points lie at the borders for code of their own.
    loop::Kernel kernel = windows(columns, true, false);
    auto& nest = std::get<loop::Nest>(kernel.body);
    nest.extents.back() = 9;
    nest.accesses[0].offset -= 3;
    nest.accesses[0].guards[1].offset = -4;
    const double compute = cost::predict(kernel, {}, cost::model_of_zen2(), 1).compute;
    return compute / static_cast<double>(columns);
  };
  EXPECT_LT(of_a_column(14), 0.7 * of_a_column(28));
}

TEST(CacheCost, PointsAtEndsOfRowsAreNotMadeInTwoSteps) {
  const auto points = [](double loads_per_cycle) {
    cost::MachineModel model = cost::model_of_zen4();
    model.loads_per_cycle = loads_per_cycle;  // at most one: registers go through in two steps
    loop::Kernel kernel = windows(58, true, false);
    const double all = cost::predict(kernel, {}, model, 1).compute;
    // The same windows where no column lies outside.
    std::get<loop::Nest>(kernel.body).accesses[0].guards[1] = {0, 60, {0, 1, 0, 0, 1}};
    return all - cost::predict(kernel, {}, model, 1).compute;
  };
  EXPECT_NEAR(points(1), points(1.001) / 2, 0.02 * points(1));
}

TEST(CacheCost, RowsThatAskAtTheirEndsAloneTakeLess) {
  const auto compute = [](bool asks) {
    loop::Kernel kernel = windows(28, true, false);
    auto& guards = std::get<loop::Nest>(kernel.body).accesses[0].guards;
    // The same guard again, but for where it begins: no lane is sure to lie inside.
    if (asks) guards[1].offset = -28;
    return cost::predict(kernel, {}, cost::model_of_narrow_zen4(), 1).compute;
  };
  EXPECT_LT(compute(false), 0.7 * compute(true));
}

/// Sums of 3 x 3 values: of a padded window over a plane, whose rows are the outer dim of the taps
/// or the inner one, or of one value of each of nine planes.
loop::Kernel sums_of_nine(bool windows, bool rows_inside = false) {
  constexpr std::int64_t rows = 30, columns = 67, plane = columns * rows;
  loop::Nest nest;
  nest.extents = {rows, columns, 3, 3};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {columns, 1, 3 * plane, plane}}};
  if (windows) nest.accesses[0].strides = {columns, 1, columns, 1};
  nest.accesses[0].guards = {{-1, rows, {1, 0, 1, 0}}, {-1, columns, {0, 1, 0, 1}}};
  if (rows_inside) {
    std::swap(nest.accesses[0].strides[2], nest.accesses[0].strides[3]);
    for (loop::Guard& guard : nest.accesses[0].guards)
      std::swap(guard.coefficients[2], guard.coefficients[3]);
  }
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0}};
  nest.stores.push_back({{.buffer = 1, .strides = {columns, 1, 0, 0}}, 1});
  return {{{f32, 9 * plane, false}, {f32, rows * columns, true}}, nest};
}

TEST(CacheCost, WindowsFindRowsThatOthersHaveRead) {
  const auto starts = [](bool windows) {
    return cost::work_of(sums_of_nine(windows, true), {}, cost::model_of_zen5()).starts;
  };
  EXPECT_NEAR(starts(true), starts(false) / 9, 1e-9 * starts(false));
  EXPECT_GT(starts(true), 0);
}

TEST(CacheCost, OverlappingWindowsWaitOnceForLinesThatLoadsLieAcross) {
  const auto compute = [](bool windows, double load_across) {
    cost::MachineModel model = cost::model_of_zen5();
    model.loads_per_cycle = 0.25;  // that nothing else takes longer
    model.overlap.load_across = load_across;
    return cost::predict(sums_of_nine(windows), {}, model, 1).compute;
  };
  // What the third and fourth access's time of such a load adds, beside the second one's.
  const auto further = [&](bool windows) {
    return (compute(windows, 4) - compute(windows, 2)) /
           (compute(windows, 2) - compute(windows, 1));
  };
  EXPECT_NEAR(further(false), 2, 0.01);
  EXPECT_NEAR(further(true), 2.0 / 9, 0.01) << "a ninth is read for the first time";
}

TEST(CacheCost, TurnedTilesWaitForLinesThatTheyTakeInPieces) {
  // y = x transposed, against a copy of as many elements.
  loop::Kernel turned{{{f32, 128 * 200, false}, {f32, 128 * 200, true}}, {}};
  loop::Nest nest;
  nest.extents = {128, 200};
  nest.parallel_dims = 2;
  nest.accesses = {{.buffer = 0, .strides = {1, 128}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {200, 1}}, 0}};
  turned.body = nest;
  const cost::KernelWork work = cost::work_of(turned, {}, cost::model_of_zen2());
  EXPECT_EQ(work.turned_lines, 2 * 128 * 200 * 4 / 64);
  EXPECT_EQ(cost::work_of(sum_of_planes(1), {}, cost::model_of_zen2()).turned_lines, 0);
  const double told = cost::time_of(work, cost::model_of_zen2(), 1).memory;
  cost::KernelWork whole = work;
  whole.turned_lines = 0;
  EXPECT_LT(cost::time_of(whole, cost::model_of_zen2(), 1).memory, told);
}

TEST(CacheCost, TilesOfHalfLinesWaitWhereSetsLoseTheRest) {
  // Planes of 1024 pixels become channels last; those 4096 bytes apart begin in one set of L1.
  const auto compute = [](const cost::MachineModel& model, std::int64_t channels,
                          std::int64_t apart) {
    loop::Kernel kernel{{{f32, channels * apart, false}, {f32, channels * 1024, true}}, {}};
    loop::Nest nest;
    nest.extents = {1024, channels};
    nest.parallel_dims = 2;
    nest.accesses = {{.buffer = 0, .strides = {1, apart}}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
    nest.stores = {{{.buffer = 1, .strides = {channels, 1}}, 0}};
    kernel.body = nest;
    return cost::work_of(kernel, {}, model).compute;
  };
  const cost::MachineModel narrow = cost::model_of_narrow_zen4();
  EXPECT_GT(compute(narrow, 48, 1024), 2 * compute(narrow, 48, 1040));
  EXPECT_DOUBLE_EQ(compute(narrow, 8, 1024), compute(narrow, 8, 1040)) << "ways for all of them";
  const cost::MachineModel whole = cost::model_of_zen4();
  EXPECT_DOUBLE_EQ(compute(whole, 48, 1024), compute(whole, 48, 1040)) << "runs are whole lines";
}

TEST(CacheCost, DivisionsBehindWindowsWorkBesideTheirSums) {
  for (const cost::MachineModel& model : {cost::model_of_zen2(), cost::model_of_zen5()}) {
    const auto compute = [&](bool divides) {
      return cost::predict(windows(32, false, divides), {}, model, 1).compute;
    };
    const double registers = 16.0 * 32 * 16 / model.machine.lanes(4);
    EXPECT_LT(compute(true) - compute(false), 0.5 * registers * model.op(ScalarOp::reciprocal));
  }
}

TEST(CacheCost, PanelsHideBehindInstructionsBetterThanStreamsOfMaps) {
  // Where both take as long, less of either shows the better they overlap.
  const auto shown = [](const loop::Kernel& kernel) {
    const cost::MachineModel zen2 = cost::model_of_zen2();
    cost::KernelWork work = cost::work_of(kernel, {}, zen2);
    work.read = {0, 1e6 * zen2.read[1], 0, 0};
    work.compute = 1e6, work.beside = 1;
    return cost::time_of(work, zen2, 1).ns;
  };
  const codegen::Target avx2{codegen::Isa::avx2, "", ""};
  EXPECT_LT(shown(cost::gemm_kernel(64, 64, 64, f32, avx2)), 0.95 * shown(sum_of_planes(2)));
}

TEST(CacheCost, StreamsThatNeverBreakAreFetchedFarAhead) {
  const cost::MachineModel rapids = cost::model_of_rapids(false);
  const auto power = [&](std::int64_t row_step) {
    loop::Nest nest;
    nest.extents = {32, 1024};
    nest.parallel_dims = 2;
    nest.accesses = {{.buffer = 0, .strides = {row_step, 1}}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0},
                  {.op = ScalarOp::exp, .dtype = f32, .a = 0}};
    nest.stores = {{{.buffer = 1, .strides = {1024, 1}}, 1}};
    const loop::Kernel kernel{{{f32, 32 * row_step, false}, {f32, 32 * 1024, true}}, nest};
    return cost::work_of(kernel, {}, rapids).power;
  };
  EXPECT_EQ(power(1024), rapids.overlap.stream_power);
  EXPECT_GT(power(1024), power(4096));
}

TEST(CacheCost, ARowThatIsReadByItselfStartsOnce) {
  // A row of a table, whose number only data tells, as the rows of a product.
  const cost::MachineModel rapids = cost::model_of_rapids(false);
  const auto work = [&](std::int64_t rows) {
    loop::Nest nest;
    nest.extents = {rows, 64};
    nest.parallel_dims = 1;
    nest.accesses = {
        {.buffer = 0, .strides = {1, 0}},
        {.buffer = 1, .strides = {0, 1}, .indirect = {{.node = 0, .stride = 64, .extent = 100}}}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = i64, .index = 0},
                  {.op = ScalarOp::load, .dtype = f32, .index = 1}};
    nest.stores = {{{.buffer = 2, .strides = {64, 1}}, 1}};
    const std::vector<loop::Buffer> buffers{
        {i64, rows, false}, {f32, 6400, false}, {f32, rows * 64, true}};
    cost::KernelWork sum;
    cost::add_nest(sum, nest, buffers, rapids, true);
    return sum.compute + sum.overhead;
  };
  EXPECT_LT(work(1), work(2));
}

TEST(CacheCost, CoresThatTakeARegisterInTwoStepsHaveFiguresOfTheirOwn) {
  codegen::CpuFacts facts;
  facts.vendor = codegen::CpuFacts::Vendor::amd;
  facts.family = 25;
  facts.model = 0x11;
  const cost::MachineModel zen5 = cost::model_of_zen5();
  const cost::MachineModel zen4 = cost::preset_for(facts, cost::zen5_target);
  // Series wait for results, too: they lose less than what is done by units alone.
  EXPECT_GT(zen4.op(ScalarOp::add), 1.9 * zen5.op(ScalarOp::add));
  EXPECT_LT(zen4.op(ScalarOp::exp) / zen5.op(ScalarOp::exp),
            0.9 * zen4.op(ScalarOp::add) / zen5.op(ScalarOp::add));
  EXPECT_LT(zen4.read[1], 0.6 * zen5.read[1]);
  // What waits for units hides what streams bring.
  EXPECT_GT(zen4.overlap.power, zen5.overlap.power);
  EXPECT_GT(zen4.overlap.block_power, zen5.overlap.block_power);
  // Cores of a family that nobody measured have the figures that stand beside their meaning.
  facts.vendor = codegen::CpuFacts::Vendor::other;
  EXPECT_EQ(cost::preset_for(facts, cost::zen5_target).overlap.max_steps,
            cost::Overlap().max_steps);
}

}  // namespace
}  // namespace rlx::plan
