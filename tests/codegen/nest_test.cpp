// Generated nests of the shapes that models have, against the interpreter.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "codegen/llvm/nest_plan.hpp"
#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Nest, TailsOfEveryLength) {
  for (std::int64_t n = 1; n <= 70; ++n) {
    expect_as_interpreted(residual_add({n}), 0, static_cast<unsigned>(n));
  }
}

/// Several series, one of them of a whole row's value, in rounds of many vectors and what is left.
TEST(Nest, SeriesOfEveryLength) {
  for (const DType dtype : {f32, f64}) {
    for (std::int64_t n = 1; n <= 330; n += n < 20 ? 1 : 31) {
      NestBuilder nest({3, n});
      const int in = nest.buffer(dtype, 3 * n), row = nest.buffer(dtype, 3);
      const int bent = nest.buffer(dtype, 3 * n), both = nest.buffer(dtype, 3 * n);
      const ScalarId wave = nest.unary(ScalarOp::tanh, nest.load(in, {n, 1}));
      const ScalarId grown =
          nest.unary(ScalarOp::exp, nest.binary(ScalarOp::mul, wave, nest.load(row, {1, 0})));
      const ScalarId of_row = nest.unary(ScalarOp::exp, nest.load(row, {1, 0}));
      nest.store(bent, wave, {n, 1});
      nest.store(both, nest.binary(ScalarOp::add, nest.unary(ScalarOp::erf, grown), of_row),
                 {n, 1});
      expect_as_interpreted(nest.kernel(2), dtype == f32 ? 2e-6 : 1e-12, static_cast<unsigned>(n));
    }
  }
}

TEST(Nest, LongRowsInItems) { expect_as_interpreted(residual_add({9001}), 0, 2); }

TEST(Nest, Transposes) {
  NestBuilder nest({13, 37});
  const int in = nest.buffer(f32, 13 * 37), out = nest.buffer(f32, 13 * 37);
  nest.store(out, nest.load(in, {1, 13}), {37, 1});
  expect_as_interpreted(nest.kernel(2), 0, 1);
}

TEST(Nest, TurnsTiles) {
  for (const DType dtype : {f32, f64, bf16, i32}) {
    for (const std::int64_t rows : {4, 16, 31, 67}) {
      for (const std::int64_t columns : {5, 16, 40}) {
        NestBuilder nest({3, rows, columns});
        const std::int64_t size = 3 * rows * columns;
        const int in = nest.buffer(dtype, size), other = nest.buffer(dtype, size);
        const int out = nest.buffer(dtype, size);
        const ScalarId turned = nest.load(in, {rows * columns, 1, rows});
        const ScalarId straight = nest.load(other, {rows * columns, columns, 1});
        nest.store(out, nest.binary(ScalarOp::max, turned, straight), {rows * columns, columns, 1});
        expect_as_interpreted(nest.kernel(3), 0, static_cast<unsigned>(rows));
      }
    }
  }
}

/// Whether there is a next tile to ask for is decided once, not for each of the rows of this one.
TEST(Nest, TurnedTilesAskForTheNextAtOnce) {
  NestBuilder nest({64, 96});
  const int in = nest.buffer(f32, 64 * 96), out = nest.buffer(f32, 64 * 96);
  nest.store(out, nest.load(in, {1, 64}), {96, 1});
  const auto code = generator().generate(nest.kernel(2), {codegen::Isa::avx2, "", ""});
  ASSERT_TRUE(code.ok());
  const auto byte = [&](std::size_t at) { return std::to_integer<int>(code->object[at]); };
  int asked = 0, chosen = 0;  // PREFETCHT0 or PREFETCHW: 0F 18 or 0F 0D; CMOVcc of 64 bits
  for (std::size_t i = 1; i + 3 <= code->object.size(); ++i) {
    if (byte(i) != 0x0f) continue;
    asked += byte(i + 1) == 0x18 || byte(i + 1) == 0x0d;
    chosen += (byte(i + 1) & 0xf0) == 0x40 && (byte(i - 1) & 0xf8) == 0x48;
  }
  EXPECT_GE(asked, 8);
  EXPECT_LE(chosen, 10) << "some for the bounds of loops";
}

/// Channels of groups in turns: rows are read in runs, and written every second to fourth element.
TEST(Nest, WeavesRuns) {
  for (const std::int64_t groups : {2, 3, 4, 5}) {
    for (const std::int64_t channels : {4, 7, 8, 28, 33, 64}) {
      for (const DType dtype : {DType::f32, DType::f64, DType::i8}) {
        NestBuilder nest({3, channels, groups});
        const std::int64_t row = channels * groups;
        const int in = nest.buffer(dtype, 3 * row), out = nest.buffer(dtype, 3 * row);
        const ScalarId x = nest.load(in, {row, 1, channels});
        nest.store(out, nest.binary(ScalarOp::add, x, x), {row, groups, 1});
        expect_as_interpreted(nest.kernel(3), 0, 3);
      }
    }
  }
}

TEST(Nest, PlansToWeaveFewGroups) {
  const auto tile_of = [](std::int64_t groups, const codegen::Machine& machine) {
    NestBuilder nest({3, 28, groups});
    const int in = nest.buffer(DType::f32, 84 * groups), out = nest.buffer(DType::f32, 84 * groups);
    nest.store(out, nest.load(in, {28 * groups, 1, 28}), {28 * groups, groups, 1});
    nest.kernel(3);
    const codegen::NestPlan plan = codegen::plan_nest(nest.nest(), machine);
    return plan.woven ? plan.tile : 0;
  };
  for (const codegen::Isa isa : {codegen::Isa::avx2, codegen::Isa::avx512}) {
    const codegen::Machine machine = codegen::machine_of({.isa = isa});
    EXPECT_EQ(tile_of(2, machine), 2U);
    EXPECT_EQ(tile_of(4, machine), 4U);
    EXPECT_EQ(tile_of(5, machine), 0U);
  }
}

/// Borders around an image that becomes channels last: tiles are turned under their guards.
TEST(Nest, TurnsTilesWithBorders) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const std::int64_t side : {3, 14, 16, 33}) {
      for (const std::int64_t channels : {5, 16, 40}) {
        NestBuilder nest({side + 3, side + 2, channels});
        const int in = nest.buffer(dtype, side * side * channels);
        const int out = nest.buffer(dtype, (side + 3) * (side + 2) * channels);
        loop::Access access{
            .buffer = in, .offset = -2 * side - 1, .strides = {side, 1, side * side}, .fill = 0.5};
        access.guards = {{.offset = -2, .extent = side, .coefficients = {1, 0, 0}},
                         {.offset = -1, .extent = side, .coefficients = {0, 1, 0}}};
        nest.store(out, nest.load(access), {(side + 2) * channels, channels, 1});
        expect_as_interpreted(nest.kernel(3), 0, static_cast<unsigned>(side));
      }
    }
  }
}

/// Zeros above and below of elements of every width, also wider than a line's lanes of floats.
TEST(Nest, ReadsZerosOutsideOfRows) {
  for (const DType dtype : {i64, f64, f32, bf16, u8}) {
    for (const std::int64_t columns : {16, 40}) {
      NestBuilder nest({6, columns});
      const int in = nest.buffer(dtype, 4 * columns), other = nest.buffer(f32, 6 * columns);
      const int out = nest.buffer(f32, 6 * columns);
      loop::Access access{.buffer = in, .offset = -columns, .strides = {columns, 1}};
      access.guards = {{.offset = -1, .extent = 4, .coefficients = {1, 0}}};
      const ScalarId x = nest.cast(nest.load(access), f32);
      nest.store(out, nest.binary(ScalarOp::add, x, nest.load(other, {columns, 1})), {columns, 1});
      expect_as_interpreted(nest.kernel(2), 0, 1);
    }
  }
}

/// Channels last, cut out of larger images, as small channels first: items are blocks of channels.
TEST(Nest, TurnsSmallImages) {
  for (const DType dtype : {f32, f64, bf16, i8}) {
    for (const std::int64_t side : {1, 3, 7, 12}) {
      for (const std::int64_t channels : {5, 32, 100}) {
        NestBuilder nest({channels, side, side});
        const int in = nest.buffer(dtype, side * (side + 1) * channels);
        const int out = nest.buffer(dtype, channels * side * side);
        nest.store(out, nest.load(in, {1, (side + 1) * channels, channels}),
                   {side * side, side, 1});
        expect_as_interpreted(nest.kernel(3), 0, static_cast<unsigned>(side));
      }
    }
  }
}

/// A few large images: items are blocks of pixels.
TEST(Nest, TurnsFewImages) {
  for (const DType dtype : {f32, bf16}) {
    for (const std::int64_t pixels : {700, 4087}) {
      for (const std::int64_t channels : {20, 24}) {
        NestBuilder nest({2, channels, pixels});
        const int in = nest.buffer(dtype, 2 * pixels * channels);
        const int out = nest.buffer(dtype, 2 * pixels * channels);
        nest.store(out, nest.load(in, {pixels * channels, 1, channels}),
                   {pixels * channels, pixels, 1});
        expect_as_interpreted(nest.kernel(3), 0, 1);
      }
    }
  }
}

/// Windows over channels last whose results are channels first.
TEST(Nest, TurnsSmallPools) {
  for (const std::int64_t side : {1, 3, 6, 9}) {
    for (const std::int64_t channels : {5, 32, 100}) {
      NestBuilder nest({side, side, channels, 2, 2});
      const std::int64_t line = (side + 1) * channels;
      const int in = nest.buffer(f32, (side + 1) * line);
      const int out = nest.buffer(f32, channels * side * side);
      const ScalarId x = nest.load(in, {line, channels, 1, line, channels});
      nest.store(out, nest.reduce(ReduceKind::max, x), {side, 1, side * side, 0, 0});
      expect_as_interpreted(nest.kernel(3), 0, static_cast<unsigned>(side));
    }
  }
}

/// y[i] = x[step * i], of so many.
loop::Kernel every(std::int64_t step, std::int64_t count) {
  loop::Nest nest;
  nest.extents = {count};
  nest.parallel_dims = 1;
  nest.accesses = {{.buffer = 0, .strides = {step}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32, .index = 0}};
  nest.stores = {{{.buffer = 1, .strides = {1}}, 0}};
  return {{{f32, step * (count - 1) + 1, false}, {f32, count, true}}, std::move(nest)};
}

// What a mask leaves of lanes a few elements apart is read by loads under masks of their elements,
// none behind the last.
TEST(Nest, TailsOfEverySecondElementAreNotGathered) {
  for (const std::int64_t step : {2, 3, 4, 5})
    for (const std::int64_t count : {3, 13, 16, 19, 45})
      expect_as_interpreted(every(step, count), 0, 2);
  const auto gathers = [](std::int64_t step) {
    const auto code = generator().generate(every(step, 19), {codegen::Isa::avx512, "", ""});
    EXPECT_TRUE(code.ok());
    const auto byte = [&](std::size_t at) { return std::to_integer<int>(code->object[at]); };
    int count = 0;  // VGATHERxPS zmm: 62, map 2 of opcodes, 64 bytes, 92 or 93
    for (std::size_t i = 0; i + 5 <= code->object.size(); ++i)
      count += byte(i) == 0x62 && (byte(i + 1) & 0x07) == 2 && (byte(i + 2) & 0x07) == 5 &&
               (byte(i + 4) & 0xfe) == 0x92;
    return count;
  };
  EXPECT_GT(gathers(5), 0) << "or the test looks for the wrong bytes";
  for (const std::int64_t step : {2, 3, 4}) EXPECT_EQ(gathers(step), 0) << step;
}

TEST(Nest, ReversesRows) {
  NestBuilder nest({5, 37});
  const int in = nest.buffer(f32, 5 * 37), out = nest.buffer(f32, 5 * 37);
  nest.store(out, nest.load(in, {37, -1}, 36), {37, 1});
  expect_as_interpreted(nest.kernel(2), 0, 1);
}

TEST(Nest, SoftmaxOfEveryLength) {
  for (std::int64_t n = 1; n <= 70; n += n < 20 ? 1 : 5) {
    expect_as_interpreted(softmax(7, n), 2e-6, static_cast<unsigned>(n));
  }
}

TEST(Nest, SoftmaxInPlace) {
  loop::Kernel kernel = softmax(5, 45);
  auto& nest = std::get<loop::Nest>(kernel.body);
  nest.stores[0].access.buffer = 0;
  kernel.buffers[0].written = true;
  expect_as_interpreted(kernel, 2e-6, 3);
}

TEST(Nest, SoftmaxOverOuterDim) {
  for (const std::int64_t columns : {1, 9, 16, 70}) {
    loop::Kernel kernel = softmax(columns, 11);
    auto& nest = std::get<loop::Nest>(kernel.body);
    nest.accesses[0].strides = {1, columns};
    nest.stores[0].access.strides = {1, columns};
    expect_as_interpreted(kernel, 2e-6, static_cast<unsigned>(columns));
  }
}

TEST(Nest, AddsInPlace) {
  for (const std::int64_t n : {3, 16, 100}) {
    loop::Kernel kernel = residual_add({5, n});
    std::get<loop::Nest>(kernel.body).stores[0].access.buffer = 1;
    kernel.buffers[1].written = true;
    expect_as_interpreted(kernel, 0, static_cast<unsigned>(n));
  }
}

/// Rows whose rest is stored in pieces that end where the next row begins.
TEST(Nest, RowsInPlaceOfEveryLength) {
  for (const DType dtype : {f64, f32, bf16, i8}) {
    for (std::int64_t n = 1; n <= 70; n += n < 20 ? 1 : 7) {
      NestBuilder nest({5, n});
      const int rows = nest.buffer(dtype, 5 * n), bias = nest.buffer(dtype, 5);
      const ScalarId moved =
          nest.binary(ScalarOp::add, nest.load(rows, {n, 1}), nest.load(bias, {1, 0}));
      nest.store(rows, moved, {n, 1});
      expect_as_interpreted(nest.kernel(2), 0, static_cast<unsigned>(n));
    }
  }
}

TEST(Nest, LayerNorm) {
  for (const std::int64_t n : {16, 384, 37, 5}) {
    expect_as_interpreted(layer_norm(9, n), 1e-5, static_cast<unsigned>(n));
  }
}

TEST(Nest, SumsOverOuterDim) {
  NestBuilder nest({37, 19});
  const int in = nest.buffer(f32, 19 * 37), out = nest.buffer(f32, 37);
  nest.store(out, nest.reduce(ReduceKind::sum, nest.load(in, {1, 37})), {1, 0});
  expect_as_interpreted(nest.kernel(1), 1e-5, 4);
}

TEST(Nest, MaxPoolWithPadding) {
  for (const std::int64_t channels : {1, 3, 16, 40}) {
    expect_as_interpreted(max_pool(9, 11, channels), 0, static_cast<unsigned>(channels));
  }
}

TEST(Nest, DepthwiseConvolution) {
  for (const std::int64_t channels : {1, 7, 16, 96}) {
    for (const std::int64_t stride : {1, 2}) {
      expect_as_interpreted(depthwise(10, 12, channels, 3, stride), 1e-5,
                            static_cast<unsigned>(channels));
    }
  }
}

TEST(Nest, PositionsOfExtremes) {
  for (const ReduceKind kind : {ReduceKind::argmin, ReduceKind::argmax}) {
    for (const std::int64_t n : {1, 5, 16, 33, 200}) {
      for (const DType dtype : {f32, i8, i64}) {
        NestBuilder rows({4, n});
        const int in = rows.buffer(dtype, 4 * n), out = rows.buffer(i64, 4);
        rows.store(out, rows.reduce(kind, rows.load(in, {n, 1})), {1, 0});
        expect_as_interpreted(rows.kernel(1), 0, 5);
        NestBuilder columns({n, 6});
        const int source = columns.buffer(dtype, 6 * n), target = columns.buffer(i64, n);
        columns.store(target, columns.reduce(kind, columns.load(source, {1, n})), {1, 0});
        expect_as_interpreted(columns.kernel(1), 0, 6);
      }
    }
  }
}

TEST(Nest, PositionsAmongTheLeastAreTheFirst) {
  // Rows of nothing but the values that maxima start from, and of those and NaN.
  for (const std::int64_t n : {1, 16, 33, 200}) {
    for (const double limit : {100.0, 1.9}) {
      NestBuilder nest({4, n});
      const int in = nest.buffer(f32, 4 * n), out = nest.buffer(i64, 4);
      const ScalarId x = nest.load(in, {n, 1});
      const ScalarId small = nest.binary(ScalarOp::less, x, nest.constant(f32, limit), boolean);
      const ScalarId y = nest.select(small, nest.constant(f32, -INFINITY), nest.constant(f32, NAN));
      nest.store(out, nest.reduce(ReduceKind::argmax, y), {1, 0});
      expect_as_interpreted(nest.kernel(1), 0, 12);
    }
  }
}

TEST(Nest, SigmoidsAmongOtherCurves) {
  // Several curves are computed vector beside vector, 1 + e^x along with its sum.
  NestBuilder nest({3, 200});
  const int in = nest.buffer(f32, 600), out = nest.buffer(f32, 600), other = nest.buffer(f32, 600);
  const ScalarId one = nest.constant(f32, 1);
  const ScalarId e = nest.unary(
      ScalarOp::exp, nest.binary(ScalarOp::mul, nest.load(in, {200, 1}), nest.constant(f32, 50)));
  const ScalarId sum = nest.binary(ScalarOp::add, one, nest.unary(ScalarOp::exp, e));
  nest.store(out, nest.binary(ScalarOp::div, one, sum), {200, 1});
  nest.store(other, nest.binary(ScalarOp::add, e, one), {200, 1});
  expect_as_interpreted(nest.kernel(2), 1e-5, 13);
}

TEST(Nest, PadsWithFill) {
  NestBuilder nest({7, 40});
  const int in = nest.buffer(f32, 5 * 33), out = nest.buffer(f32, 7 * 40);
  loop::Access access{.buffer = in, .offset = -33 - 3, .strides = {33, 1}, .fill = 2.5};
  access.guards = {{.offset = -1, .extent = 5, .coefficients = {1, 0}},
                   {.offset = -3, .extent = 33, .coefficients = {0, 1}}};
  nest.store(out, nest.load(access), {40, 1});
  expect_as_interpreted(nest.kernel(2), 0, 8);
}

TEST(Nest, OnePointAndNone) {
  expect_as_interpreted(residual_add({1, 1, 1}), 0, 1);
  expect_as_interpreted(residual_add({}), 0, 1);
  expect_as_interpreted(residual_add({4, 0}), 0, 1);
  NestBuilder nothing({3, 0});
  const int in = nothing.buffer(f32, 0), out = nothing.buffer(f32, 3);
  nothing.store(out, nothing.reduce(ReduceKind::max, nothing.load(in, {0, 1})), {1, 0});
  expect_as_interpreted(nothing.kernel(1), 0, 1);
}

TEST(Nest, NanWinsMaxima) {
  NestBuilder nest({2, 50});
  const int in = nest.buffer(f32, 100), out = nest.buffer(f32, 2), where = nest.buffer(i64, 2);
  const ScalarId x = nest.load(in, {50, 1});
  const ScalarId odd = nest.binary(ScalarOp::less, x, nest.constant(f32, -1.8), boolean);
  const ScalarId y = nest.select(odd, nest.constant(f32, NAN), x);
  nest.store(out, nest.reduce(ReduceKind::max, y), {1, 0});
  nest.store(where, nest.reduce(ReduceKind::argmax, y), {1, 0});
  expect_as_interpreted(nest.kernel(1), 0, 11);
}

TEST(Nest, ComplexIsRefusedWithASentence) {
  NestBuilder nest({4});
  const int in = nest.buffer(c64, 4), out = nest.buffer(c64, 4);
  nest.store(out, nest.load(in, {1}), {1});
  const auto code = generator().generate(nest.kernel(1), host_targets()[0]);
  ASSERT_FALSE(code.ok());
  EXPECT_EQ(code.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(code.error().message, "Complex element types (c64) are not generated.");
}

TEST(Nest, SameKernelSameBytes) {
  const loop::Kernel kernel = layer_norm(8, 100);
  for (const codegen::Target& target : host_targets()) {
    EXPECT_EQ(generator().generate(kernel, target).value().object,
              generator().generate(kernel, target).value().object);
  }
}

TEST(Nest, ThreadsGenerateAtOnce) {
  const codegen::Target target = host_targets()[0];
  const loop::Kernel kernels[] = {softmax(4, 50), gelu(3, 70), depthwise(6, 8, 20, 3, 1)};
  std::vector<std::vector<std::byte>> alone;
  for (const loop::Kernel& kernel : kernels) {
    alone.push_back(generator().generate(kernel, target).value().object);
  }
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int worker = 0; worker < 4; ++worker) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < alone.size(); ++i) {
        equal += generator().generate(kernels[i], target).value().object == alone[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 12);
}

TEST(Nest, PowersOfQuarters) {
  for (double exponent = -4; exponent <= 4.25; exponent += 0.25) {
    SCOPED_TRACE(exponent);
    NestBuilder nest({3, 21});
    const int in = nest.buffer(DType::f32, 63), out = nest.buffer(DType::f32, 63);
    const ScalarId x = nest.load(in, {21, 1});
    const ScalarId base = nest.binary(ScalarOp::add, nest.binary(ScalarOp::mul, x, x),
                                      nest.constant(DType::f32, 0.3));
    const ScalarId power = nest.constant(DType::f32, exponent);
    nest.store(out, nest.binary(ScalarOp::pow, base, power), {21, 1});
    expect_as_interpreted(nest.kernel(2), 1e-6, 3);
  }
}

TEST(Nest, PowersOfTheEnds) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double base : {-infinity, -2.0, -0.0, 0.0, infinity}) {
    for (const double exponent : {-1.5, -0.75, -0.5, 0.25, 0.5, 1.5, 2.0, 3.0, -2.0, 0.0}) {
      SCOPED_TRACE(base);
      SCOPED_TRACE(exponent);
      NestBuilder nest({17});
      const int in = nest.buffer(DType::f32, 17), out = nest.buffer(DType::f32, 17);
      const ScalarId zero =
          nest.binary(ScalarOp::mul, nest.load(in, {1}), nest.constant(DType::f32, 0));
      const ScalarId x = nest.binary(ScalarOp::max, zero, nest.constant(DType::f32, base));
      const ScalarId value = base <= 0 ? nest.constant(DType::f32, base) : x;
      nest.store(out, nest.binary(ScalarOp::pow, value, nest.constant(DType::f32, exponent)), {1});
      expect_as_interpreted(nest.kernel(1), 1e-6, 3);
    }
  }
}

TEST(Nest, PoolsOfInfinities) { expect_as_interpreted(max_pool(1, 1, 5, -infinity), 0, 1); }

}  // namespace
}  // namespace rlx::testing
