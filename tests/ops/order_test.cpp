// Sorting, and results whose dims the data tells: answers of NumPy and of ONNX's examples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ops/known_answers.hpp"

namespace rlx {
namespace {

using testing::counting;
using testing::expect_tensor;
using testing::inferred;
using testing::refusal;
using testing::run;
using Texts = std::vector<std::string>;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST(sort, is_stable_and_puts_nan_last) {
  const Tensor x = Tensor::of<float>({5}, {2, nan, 1, 2, -3});
  const auto ascending = run(op::Sort{-1, false}, {x}), descending = run(op::Sort{-1, true}, {x});
  expect_tensor<std::int64_t>(ascending[1], {5}, {4, 2, 0, 3, 1});
  expect_tensor<std::int64_t>(descending[1], {5}, {1, 0, 3, 2, 4});
  EXPECT_TRUE(std::isnan(ascending[0].as<float>()[4]));
  const auto columns =
      run(op::Sort{0, false}, {Tensor::of<std::uint64_t>({3, 2}, {~0ull, 1, 5, 9, 7, 3})});
  expect_tensor<std::uint64_t>(columns[0], {3, 2}, {5, 1, 7, 3, ~0ull, 9});
}

/// Positions by a stable sort of plain numbers, NaN above all.
std::vector<std::int64_t> stable_positions(const std::vector<double>& x, bool descending) {
  std::vector<std::int64_t> positions(x.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto below = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::stable_sort(positions.begin(), positions.end(), [&](std::int64_t a, std::int64_t b) {
    const double p = x[static_cast<std::size_t>(a)], q = x[static_cast<std::size_t>(b)];
    return descending ? below(q, p) : below(p, q);
  });
  return positions;
}

TEST(sort, orders_every_dtype_as_a_stable_sort_of_numbers_does) {
  std::mt19937 random(1);
  const std::int64_t size = 700;
  for (const DType dtype : {f32, f64, f16, bf16, i8, u8, i16, i32, u32, i64, u64, boolean}) {
    SCOPED_TRACE(name_of(dtype));
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < size; ++i) {
      const int whole = static_cast<int>(random() % 21) - (is_float(dtype) || dtype == i8 ? 10 : 0);
      numbers.push_back(dtype == boolean ? whole % 2 : whole);
      if (is_float(dtype) && i % 17 == 0) numbers.back() = i % 2 ? nan : -INFINITY;
      if (is_float(dtype) && i % 13 == 0) numbers.back() = i % 2 ? -0.0 : INFINITY;
    }
    const Tensor wide = Tensor::of<double>({size}, std::span<const double>(numbers));
    const Tensor x = run(op::Cast{dtype}, {wide})[0];
    for (const bool descending : {false, true}) {
      const std::vector<std::int64_t> expected = stable_positions(numbers, descending);
      const auto sorted = run(op::Sort{0, descending}, {x});
      for (const std::int64_t k : {std::int64_t{5}, std::int64_t{120}, size}) {
        const auto first = run(op::TopK{k, 0, descending}, {x});
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t wanted = expected[static_cast<std::size_t>(i)];
          ASSERT_EQ(first[1].as<std::int64_t>()[static_cast<std::size_t>(i)], wanted) << k;
          ASSERT_EQ(sorted[1].as<std::int64_t>()[static_cast<std::size_t>(i)], wanted);
        }
      }
    }
  }
}

TEST(top_k, gives_the_lower_index_first_on_ties) {
  const Tensor x = Tensor::of<float>({2, 4}, {1, 3, 3, 0, 5, 5, 5, 9});
  const auto largest = run(op::TopK{2, 1}, {x}), smallest = run(op::TopK{3, -1, false}, {x});
  expect_tensor<float>(largest[0], {2, 2}, {3, 3, 9, 5});
  expect_tensor<std::int64_t>(largest[1], {2, 2}, {1, 2, 3, 0});
  expect_tensor<std::int64_t>(smallest[1], {2, 3}, {3, 0, 1, 0, 1, 2});
  EXPECT_EQ(refusal(op::TopK{5, 1}, {{f32, {2, 4}}}),
            "The k (5) of top_k lies outside axis (1) of f32[2,4].");
}

TEST(non_zero, lists_positions_by_axis) {
  expect_tensor<std::int64_t>(
      run(op::NonZero{}, {Tensor::of<bool>({2, 2}, {true, false, true, true})})[0], {2, 3},
      {0, 1, 1, 0, 0, 1});
  expect_tensor<std::int64_t>(run(op::NonZero{}, {Tensor(f32, {3})})[0], {1, 0}, {});
  EXPECT_EQ(inferred(op::NonZero{}, {{f32, {"a", 3, 2}}}), Texts{"i64[3,?]"});
}

TEST(compress, keeps_lines) {
  const Tensor x = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_tensor<float>(run(op::Compress{0}, {x, Tensor::of<bool>({3}, {false, true, true})})[0],
                       {2, 2}, {3, 4, 5, 6});
  expect_tensor<float>(run(op::Compress{1}, {x, Tensor::of<bool>({2}, {false, true})})[0], {3, 1},
                       {2, 4, 6});
  expect_tensor<float>(
      run(op::Compress{}, {x, Tensor::of<bool>({5}, {false, true, false, false, true})})[0], {2},
      {2, 5});
  EXPECT_EQ(refusal(op::Compress{1}, {{f32, {3, 2}}, {boolean, {3}}}),
            "The condition bool[3] of compress is longer than what it chooses from (2).");
  EXPECT_EQ(refusal(op::Compress{}, {{f32, {3}}, {i64, {3}}}),
            "The op compress wants a list of bool as condition, not i64[3].");
}

TEST(unique, sorts_or_keeps_the_order) {
  const Tensor x = Tensor::of<float>({6}, {2, 1, 1, 3, 4, 3});
  const auto sorted = run(op::Unique{}, {x}), in_order = run(op::Unique{std::nullopt, false}, {x});
  expect_tensor<float>(sorted[0], {4}, {1, 2, 3, 4});
  expect_tensor<std::int64_t>(sorted[1], {4}, {1, 0, 3, 4});
  expect_tensor<std::int64_t>(sorted[2], {6}, {1, 0, 0, 2, 3, 2});
  expect_tensor<std::int64_t>(sorted[3], {4}, {2, 1, 2, 1});
  expect_tensor<float>(in_order[0], {4}, {2, 1, 3, 4});
  expect_tensor<std::int64_t>(in_order[1], {4}, {0, 1, 3, 4});
  expect_tensor<std::int64_t>(in_order[2], {6}, {0, 1, 1, 2, 3, 2});
  expect_tensor<std::int64_t>(in_order[3], {4}, {1, 2, 2, 1});
}

TEST(unique, compares_lines_along_an_axis) {
  const auto rows =
      run(op::Unique{0, true}, {Tensor::of<std::int32_t>({3, 3}, {1, 0, 0, 1, 0, 0, 2, 3, 4})});
  expect_tensor<std::int32_t>(rows[0], {2, 3}, {1, 0, 0, 2, 3, 4});
  const auto columns =
      run(op::Unique{1, true}, {Tensor::of<std::int32_t>({2, 3}, {2, 1, 2, 0, 5, 0})});
  expect_tensor<std::int32_t>(columns[0], {2, 2}, {1, 2, 5, 0});
  expect_tensor<std::int64_t>(columns[2], {3}, {1, 0, 1});
}

// The boxes of ONNX's own examples.
const std::initializer_list<float> six_boxes = {0, 0,  1, 1,  0, 0.1f,  1, 1.1f,  0, -0.1f, 1, 0.9f,
                                                0, 10, 1, 11, 0, 10.1f, 1, 11.1f, 0, 100,   1, 101};

std::vector<Tensor> suppress(std::int64_t limit, float iou, float score,
                             std::initializer_list<float> boxes = six_boxes) {
  const Tensor scores = Tensor::of<float>({1, 1, 6}, {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f});
  return run(op::NonMaxSuppression{},
             {Tensor::of<float>({1, 6, 4}, boxes), scores, Tensor::of<std::int64_t>({1}, {limit}),
              Tensor::of<float>({1}, {iou}), Tensor::of<float>({1}, {score})});
}

TEST(non_max_suppression, keeps_the_best_of_overlapping_boxes) {
  expect_tensor<std::int64_t>(suppress(3, 0.5f, 0)[0], {3, 3}, {0, 0, 3, 0, 0, 0, 0, 0, 5});
  expect_tensor<std::int64_t>(suppress(2, 0.5f, 0)[0], {2, 3}, {0, 0, 3, 0, 0, 0});
  expect_tensor<std::int64_t>(suppress(3, 0.5f, 0.4f)[0], {2, 3}, {0, 0, 3, 0, 0, 0});
  expect_tensor<std::int64_t>(suppress(0, 0.5f, 0)[0], {0, 3}, {});
  // Corners may come in any order.
  expect_tensor<std::int64_t>(
      suppress(3, 0.5f, 0, {1, 1,  0, 0,  0, 0.1f,  1, 1.1f,  0, 0.9f, 1, -0.1f,
                            0, 10, 1, 11, 1, 10.1f, 0, 11.1f, 1, 101,  0, 100})[0],
      {3, 3}, {0, 0, 3, 0, 0, 0, 0, 0, 5});
}

// More boxes than are compared at a time, some of them lines or points, against pairs one by one.
TEST(non_max_suppression, compares_with_all_that_are_kept) {
  constexpr std::int64_t count = 90;
  constexpr float threshold = 0.3F;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> place(0, 40), side(0, 12);
  std::vector<float> corners, scores;
  for (std::int64_t i = 0; i < count; ++i) {
    const int y = place(random), x = place(random);
    for (const int corner : {y, x, y + side(random), x + side(random)})
      corners.push_back(static_cast<float>(corner));
    scores.push_back(static_cast<float>(count - i));
  }
  const auto ratio = [&](std::int64_t a, std::int64_t b) {
    const float* p = corners.data() + 4 * a;
    const float* q = corners.data() + 4 * b;
    const float height = std::min(p[2], q[2]) - std::max(p[0], q[0]);
    const float width = std::min(p[3], q[3]) - std::max(p[1], q[1]);
    const float both = std::max(height, 0.0F) * std::max(width, 0.0F);
    const float all = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - both;
    return both > 0 ? both / all : 0;
  };
  std::vector<std::int64_t> wanted;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::ranges::none_of(wanted, [&](std::int64_t k) { return ratio(i, k) > threshold; }))
      wanted.push_back(i);
  }
  ASSERT_GT(wanted.size(), 20U);
  ASSERT_LT(wanted.size(), static_cast<std::size_t>(count));
  const Tensor kept =
      run(op::NonMaxSuppression{},
          {Tensor::of<float>({1, count, 4}, corners), Tensor::of<float>({1, 1, count}, scores),
           Tensor::scalar<std::int64_t>(count), Tensor::scalar(threshold)})[0];
  ASSERT_EQ(kept.dims()[0], std::ssize(wanted));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(kept.as<std::int64_t>()[3 * i + 2], wanted[i]);
}

TEST(non_max_suppression, reads_centres) {
  const Tensor boxes =
      Tensor::of<float>({1, 3, 4}, {0.5f, 0.5f, 1, 1, 0.5f, 0.6f, 1, 1, 0.5f, 10.5f, 1, 1});
  const Tensor scores = Tensor::of<float>({1, 1, 3}, {0.9f, 0.75f, 0.6f});
  const auto kept = run(op::NonMaxSuppression{true},
                        {boxes, scores, Tensor::scalar<std::int64_t>(3), Tensor::scalar(0.5f)});
  expect_tensor<std::int64_t>(kept[0], {2, 3}, {0, 0, 0, 0, 0, 2});
  EXPECT_EQ(refusal(op::NonMaxSuppression{}, {{f32, {1, 6, 3}}, {f32, {1, 1, 6}}}),
            "The op non_max_suppression wants boxes f32[b,n,4] and scores f32[b,c,n] and was given "
            "f32[1,6,3] and f32[1,1,6].");
}

}  // namespace
}  // namespace rlx
