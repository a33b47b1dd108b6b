// Reductions: answers of NumPy, neutral elements, NaN, and the words of refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/known_answers.hpp"

namespace rlx {
namespace {

using testing::counting;
using testing::expect_tensor;
using testing::refusal;
using testing::run;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(reduce, sums_over_any_axes) {
  const Tensor x = counting<float>({2, 3, 2});
  expect_tensor<float>(run(op::Reduce{Reduction::sum, {1}, false}, {x})[0], {2, 2}, {6, 9, 24, 27});
  expect_tensor<float>(run(op::Reduce{Reduction::sum, {0, 2}, true}, {x})[0], {1, 3, 1},
                       {14, 22, 30});
  expect_tensor<float>(run(op::Reduce{Reduction::sum, {}, false}, {x})[0], {}, {66});
  expect_tensor<float>(run(op::Reduce{Reduction::mean, {-1}, false}, {x})[0], {2, 3},
                       {0.5, 2.5, 4.5, 6.5, 8.5, 10.5});
  expect_tensor<float>(run(op::Reduce{Reduction::max, {0}, false}, {x})[0], {3, 2},
                       {6, 7, 8, 9, 10, 11});
}

TEST(reduce, gives_neutral_elements_over_nothing) {
  const Tensor none(f64, {0, 1});
  const auto of = [&](Reduction kind) {
    return run(op::Reduce{kind, {0}, false}, {none})[0].as<double>()[0];
  };
  EXPECT_EQ(of(Reduction::sum), 0);
  EXPECT_EQ(of(Reduction::prod), 1);
  EXPECT_EQ(of(Reduction::min), infinity);
  EXPECT_EQ(of(Reduction::max), -infinity);
  EXPECT_TRUE(std::isnan(of(Reduction::mean)));
  EXPECT_EQ(run(op::Reduce{Reduction::max, {0}, false}, {Tensor(i8, {0})})[0].as<std::int8_t>()[0],
            -128);
  EXPECT_EQ(
      run(op::Reduce{Reduction::min, {0}, false}, {Tensor(u16, {0})})[0].as<std::uint16_t>()[0],
      65535);
  EXPECT_TRUE(run(op::Reduce{Reduction::min, {0}, false}, {Tensor(boolean, {0})})[0].as<bool>()[0]);
}

TEST(reduce, wraps_integers_and_truncates_their_means) {
  expect_tensor<std::uint8_t>(
      run(op::Reduce{Reduction::sum, {0}, false}, {Tensor::of<std::uint8_t>({2}, {200, 100})})[0],
      {}, {44});
  expect_tensor<std::int32_t>(
      run(op::Reduce{Reduction::mean, {0}, false}, {Tensor::of<std::int32_t>({2}, {-3, 0})})[0], {},
      {-1});
}

TEST(reduce, keeps_nan_in_min_and_max) {
  const Tensor x = Tensor::of<float>({3}, {1, nan, 2});
  EXPECT_TRUE(std::isnan(run(op::Reduce{Reduction::min, {0}, false}, {x})[0].as<float>()[0]));
  EXPECT_TRUE(std::isnan(run(op::Reduce{Reduction::max, {0}, false}, {x})[0].as<float>()[0]));
}

TEST(reduce, accumulates_halves_wide) {
  // 4096 ones: a sum in f16 would stop at 2048.
  const Tensor ones =
      run(op::Broadcast{{4096}}, {run(op::Cast{f16}, {Tensor::scalar(1.0f)})[0]})[0];
  const Tensor sum = run(op::Cast{f32}, run(op::Reduce{Reduction::sum, {0}, false}, {ones}))[0];
  expect_tensor<float>(sum, {}, {4096});
}

TEST(reduce, takes_truths_only_for_any_and_all) {
  const Tensor x = Tensor::of<bool>({2, 2}, {true, false, true, true});
  expect_tensor<bool>(run(op::Reduce{Reduction::all, {1}, false}, {x})[0], {2}, {false, true});
  expect_tensor<bool>(run(op::Reduce{Reduction::any, {1}, false}, {x})[0], {2}, {true, true});
  EXPECT_EQ(refusal(op::Reduce{Reduction::any, {0}, false}, {{f32, {2}}}),
            "The op reduce takes bool for any and all, not f32[2].");
  EXPECT_EQ(refusal(op::Reduce{Reduction::sum, {0}, false}, {{boolean, {2}}}),
            "The op reduce takes numbers for sum, mean and prod, not bool[2].");
  EXPECT_EQ(refusal(op::Reduce{Reduction::max, {0}, false}, {{c64, {2}}}),
            "The op reduce takes what has an order for min and max, not c64[2].");
  EXPECT_EQ(refusal(op::Reduce{Reduction::sum, {2}, false}, {{f32, {2, 3}}}),
            "Axis (2) is outside the rank (2) of f32[2,3].");
  EXPECT_EQ(refusal(op::Reduce{Reduction::sum, {1, -1}, false}, {{f32, {2, 3}}}),
            "Axis (1) of f32[2,3] is named twice.");
}

TEST(arg_reduce, finds_positions) {
  const Tensor x = Tensor::of<float>({2, 4}, {1, 5, 5, 2, -1, -1, -3, -3});
  expect_tensor<std::int64_t>(run(op::ArgReduce{.max = true, .axis = 1}, {x})[0], {2}, {1, 0});
  expect_tensor<std::int64_t>(
      run(op::ArgReduce{.max = true, .axis = 1, .select_last = true}, {x})[0], {2}, {2, 1});
  expect_tensor<std::int64_t>(
      run(op::ArgReduce{.max = false, .axis = 0, .keep_dims = true}, {x})[0], {1, 4}, {1, 1, 1, 1});
  expect_tensor<std::int64_t>(
      run(op::ArgReduce{.max = false, .axis = 0}, {Tensor::of<float>({3}, {0, nan, -9})})[0], {},
      {1});
  EXPECT_EQ(refusal(op::ArgReduce{.axis = 0}, {{f32, {0}}}),
            "Axis (0) of f32[0] has no element whose position arg_reduce could give.");
}

TEST(cumulative, runs_both_ways) {
  const Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  expect_tensor<float>(run(op::Cumulative{Reduction::sum, 0}, {x})[0], {4}, {1, 3, 6, 10});
  expect_tensor<float>(run(op::Cumulative{Reduction::sum, 0, true, false}, {x})[0], {4},
                       {0, 1, 3, 6});
  expect_tensor<float>(run(op::Cumulative{Reduction::sum, 0, false, true}, {x})[0], {4},
                       {10, 9, 7, 4});
  expect_tensor<float>(run(op::Cumulative{Reduction::prod, 0, true, true}, {x})[0], {4},
                       {24, 12, 4, 1});
  expect_tensor<std::int64_t>(
      run(op::Cumulative{Reduction::sum, 0}, {counting<std::int64_t>({3, 2})})[0], {3, 2},
      {0, 1, 2, 4, 6, 9});
  EXPECT_EQ(refusal(op::Cumulative{Reduction::mean, 0}, {{f32, {2}}}),
            "The op cumulative has no kind (mean).");
}

}  // namespace
}  // namespace rlx
