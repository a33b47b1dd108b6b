// Rows that are computed side by side: every length and number of rows against the interpreter, and
// each row with the bits that it has alone.
#include <gtest/gtest.h>

#include <cstring>

#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

/// tanh in front of a softmax, and the sum and the position of the largest of each row beside it.
loop::Kernel many_results(DType dtype, std::int64_t rows, std::int64_t n) {
  NestBuilder nest({rows, n});
  const int in = nest.buffer(dtype, rows * n), out = nest.buffer(dtype, rows * n);
  const int sums = nest.buffer(dtype, rows), places = nest.buffer(DType::i64, rows);
  const ScalarId x = nest.unary(ScalarOp::tanh, nest.load(in, {n, 1}));
  const ScalarId most = nest.reduce(ReduceKind::max, x);
  const ScalarId place = nest.reduce(ReduceKind::argmax, x);
  const ScalarId grown = nest.unary(ScalarOp::exp, nest.binary(ScalarOp::sub, x, most));
  const ScalarId sum = nest.reduce(ReduceKind::sum, grown);
  nest.store(out, nest.binary(ScalarOp::div, grown, sum), {n, 1});
  nest.store(sums, sum, {1, 0});
  nest.store(places, place, {1, 0});
  return nest.kernel(1);
}

/// Softmax of images [images, rows, n] with a mask for each row of an image, shared by the images.
loop::Kernel masked_softmax(std::int64_t images, std::int64_t rows, std::int64_t n) {
  NestBuilder nest({images, rows, n});
  const int in = nest.buffer(DType::f32, images * rows * n);
  const int mask = nest.buffer(DType::f32, rows * n);
  const int out = nest.buffer(DType::f32, images * rows * n);
  const ScalarId x =
      nest.binary(ScalarOp::add, nest.load(in, {rows * n, n, 1}), nest.load(mask, {0, n, 1}));
  const ScalarId most = nest.reduce(ReduceKind::max, x);
  const ScalarId grown = nest.unary(ScalarOp::exp, nest.binary(ScalarOp::sub, x, most));
  const ScalarId sum = nest.reduce(ReduceKind::sum, grown);
  nest.store(out, nest.binary(ScalarOp::div, grown, sum), {rows * n, n, 1});
  return nest.kernel(2);
}

TEST(NestRows, SoftmaxOfEveryLengthAndNumber) {
  for (std::int64_t n = 1; n <= 70; n += n < 18 ? 1 : 13) {
    for (const std::int64_t rows : {1, 2, 3, 7, 8, 9, 40}) {
      if ((n + rows) % 3 == 0 && n > 5) continue;
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
      expect_as_interpreted(softmax(rows, n), 2e-6, static_cast<unsigned>(n));
    }
  }
}

TEST(NestRows, SoftmaxInPlace) {
  for (const std::int64_t rows : {3, 4, 13, 130, 259}) {
    for (const std::int64_t n : {5, 16, 40}) {
      loop::Kernel kernel = softmax(rows, n);
      std::get<loop::Nest>(kernel.body).stores[0].access.buffer = 0;
      kernel.buffers[0].written = true;
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
      expect_as_interpreted(kernel, 2e-6, static_cast<unsigned>(rows));
    }
  }
}

TEST(NestRows, NormsOfEveryNumber) {
  for (std::int64_t rows = 1; rows <= 40; rows += rows < 6 ? 1 : 7) {
    for (const std::int64_t n : {7, 33, 128}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
      expect_as_interpreted(layer_norm(rows, n), 3e-6, static_cast<unsigned>(rows));
    }
  }
}

TEST(NestRows, ResultsOfEveryKindAndType) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const std::int64_t rows : {6, 133}) {
      for (const std::int64_t n : {3, 16, 40}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
        const double tolerance = dtype == f64 ? 1e-12 : dtype == f32 ? 3e-6 : 2e-2;
        expect_as_interpreted(many_results(dtype, rows, n), tolerance, static_cast<unsigned>(n));
      }
    }
  }
}

TEST(NestRows, SumsOfIntegersAndTruths) {
  for (const DType dtype : {i32, i8, i64, boolean}) {
    for (const std::int64_t rows : {8, 37}) {
      for (const std::int64_t n : {4, 16, 50}) {
        NestBuilder nest({rows, n});
        const int in = nest.buffer(dtype, rows * n), out = nest.buffer(dtype, rows);
        const ScalarId x = nest.load(in, {n, 1});
        const ReduceKind kind = dtype == boolean ? ReduceKind::any : ReduceKind::sum;
        nest.store(out, nest.reduce(kind, x), {1, 0});
        expect_as_interpreted(nest.kernel(1), 0, static_cast<unsigned>(n));
      }
    }
  }
}

TEST(NestRows, ManyItemsInManyCuts) {
  std::mt19937 random(5);
  for (const auto& [images, rows, n] :
       {std::tuple{3, 100, 16}, {12, 31, 20}, {70, 9, 24}, {2, 1025, 3}}) {
    const loop::Kernel kernel = masked_softmax(images, rows, n);
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
    expect_as_interpreted(kernel, random_contents(kernel, random), 2e-6, 3);
  }
}

/// Where a row stands in its group, or in one that reaches back, must not show in its bits.
TEST(NestRows, EqualRowsHaveEqualBits) {
  std::mt19937 random(7);
  for (const codegen::Target& target : host_targets()) {
    for (const std::int64_t n : {16, 30, 128}) {
      for (const std::int64_t rows : {3, 8, 21, 70}) {
        const loop::Kernel kernel = rows % 2 == 0 ? softmax(rows, n) : layer_norm(rows, n);
        Contents contents = random_contents(kernel, random);
        const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
        auto row_of = [&](std::vector<std::byte>& values, std::int64_t row) {
          return values.data() + static_cast<std::size_t>(row) * bytes;
        };
        for (std::int64_t row = 1; row < rows; ++row) {
          std::memcpy(row_of(contents.front(), row), row_of(contents.front(), 0), bytes);
        }
        run_generated(kernel, target, contents, 1);
        for (std::int64_t row = 1; row < rows; ++row) {
          EXPECT_EQ(std::memcmp(row_of(contents.back(), row), row_of(contents.back(), 0), bytes), 0)
              << "row " << row << " of " << rows << ", " << n << " elements";
        }
      }
    }
  }
}

}  // namespace
}  // namespace rlx::testing
