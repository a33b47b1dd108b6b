// Gathers and scatters: answers of NumPy and ONNX's examples, and the words of refusals.
#include <gtest/gtest.h>

#include "ops/known_answers.hpp"

namespace rlx {
namespace {

using testing::counting;
using testing::expect_tensor;
using testing::inferred;
using testing::refusal;
using testing::run;
using Texts = std::vector<std::string>;

Tensor indices(Dims dims, std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>(std::move(dims), values);
}

std::string failure(const Op& op, const std::vector<Tensor>& inputs) {
  const auto result = evaluate(op, inputs);
  return result.ok() ? "evaluated" : result.error().message;
}

TEST(gather, picks_lines) {
  const Tensor x = counting<float>({3, 2});
  expect_tensor<float>(run(op::Gather{0}, {x, indices({2, 1}, {2, -3})})[0], {2, 1, 2},
                       {4, 5, 0, 1});
  expect_tensor<float>(run(op::Gather{-1}, {x, indices({}, {1})})[0], {3}, {1, 3, 5});
  EXPECT_EQ(inferred(op::Gather{1}, {{f32, {"b", 9, 4}}, {i32, {"s", 2}}}), Texts{"f32[b,s,2,4]"});
}

TEST(gather, refuses_indices_outside) {
  const Tensor x = counting<float>({3, 4});
  EXPECT_EQ(failure(op::Gather{0}, {x, indices({1}, {7})}),
            "Index (7) is outside axis (0) of f32[3,4].");
  EXPECT_EQ(failure(op::Gather{1}, {x, indices({1}, {-5})}),
            "Index (-5) is outside axis (1) of f32[3,4].");
  EXPECT_EQ(failure(op::GatherElements{1}, {x, indices({1, 1}, {4})}),
            "Index (4) is outside axis (1) of f32[3,4].");
  EXPECT_EQ(failure(op::GatherNd{}, {x, indices({1, 2}, {0, 9})}),
            "Index (9) is outside axis (1) of f32[3,4].");
  EXPECT_EQ(failure(op::ScatterNd{}, {x, indices({1, 2}, {3, 0}), Tensor(f32, {1})}),
            "Index (3) is outside axis (0) of f32[3,4].");
  EXPECT_EQ(refusal(op::Gather{0}, {{f32, {2}}, {f32, {1}}}),
            "The op gather takes integer indices, not f32[1].");
  EXPECT_EQ(refusal(op::Gather{0}, {{f32, {}}, {i64, {1}}}),
            "Axis (0) is outside the rank (0) of f32[].");
}

TEST(gather_elements, picks_elements) {
  const Tensor x = Tensor::of<std::int32_t>({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  expect_tensor<std::int32_t>(
      run(op::GatherElements{0}, {x, indices({2, 3}, {1, 2, 0, 2, 0, 0})})[0], {2, 3},
      {4, 8, 3, 7, 2, 3});
  EXPECT_EQ(refusal(op::GatherElements{0}, {{f32, {3, 3}}, {i64, {2, 4}}}),
            "The indices i64[2,4] of gather_elements are larger than f32[3,3] along axis (1).");
  EXPECT_EQ(refusal(op::GatherElements{0}, {{f32, {3, 3}}, {i64, {2}}}),
            "The op gather_elements wants indices of the rank of f32[3,3] and was given i64[2].");
}

TEST(gather_nd, picks_blocks) {
  const Tensor x = Tensor::of<std::int32_t>({2, 2}, {0, 1, 2, 3});
  expect_tensor<std::int32_t>(run(op::GatherNd{}, {x, indices({2, 2}, {0, 0, 1, 1})})[0], {2},
                              {0, 3});
  expect_tensor<std::int32_t>(run(op::GatherNd{}, {x, indices({2, 1}, {1, 0})})[0], {2, 2},
                              {2, 3, 0, 1});
  const Tensor cube = counting<std::int32_t>({2, 2, 2});
  expect_tensor<std::int32_t>(run(op::GatherNd{1}, {cube, indices({2, 1}, {1, 0})})[0], {2, 2},
                              {2, 3, 4, 5});
  EXPECT_EQ(refusal(op::GatherNd{}, {{f32, {2}}, {i64, {1, 2}}}),
            "The indices i64[1,2] name more axes than f32[2] has after (0) batch dims.");
  EXPECT_EQ(refusal(op::GatherNd{}, {{f32, {2}}, {i64, {1, "k"}}}),
            "The op gather_nd wants indices whose last dim is known, not i64[1,k].");
  EXPECT_EQ(refusal(op::GatherNd{2}, {{f32, {2}}, {i64, {1, 2}}}),
            "The op gather_nd cannot read indices i64[1,2] into f32[2] after (2) batch dims.");
}

TEST(scatter_elements, replaces_and_combines) {
  const Tensor x = Tensor::of<float>({1, 5}, {1, 2, 3, 4, 5}), at = indices({1, 3}, {1, 3, 1}),
               updates = Tensor::of<float>({1, 3}, {2.5, -6, 10});
  const auto scattered = [&](ScatterMode mode) {
    return run(op::ScatterElements{1, mode}, {x, at, updates})[0];
  };
  expect_tensor<float>(scattered(ScatterMode::assign), {1, 5}, {1, 10, 3, -6, 5});
  expect_tensor<float>(scattered(ScatterMode::add), {1, 5}, {1, 14.5, 3, -2, 5});
  expect_tensor<float>(scattered(ScatterMode::mul), {1, 5}, {1, 50, 3, -24, 5});
  expect_tensor<float>(scattered(ScatterMode::min), {1, 5}, {1, 2, 3, -6, 5});
  expect_tensor<float>(scattered(ScatterMode::max), {1, 5}, {1, 10, 3, 4, 5});
  EXPECT_EQ(refusal(op::ScatterElements{0, ScatterMode::add},
                    {{boolean, {2}}, {i64, {1}}, {boolean, {1}}}),
            "The op scatter_elements takes numbers to add or multiply, not bool[2].");
  EXPECT_EQ(refusal(op::ScatterElements{0}, {{f32, {2}}, {i64, {1}}, {f32, {2}}}),
            "The op scatter_elements wants updates of f32[1] and was given f32[2].");
}

TEST(scatter_nd, replaces_blocks) {
  const Tensor x = counting<std::int64_t>({3, 2});
  const Tensor updates = Tensor::of<std::int64_t>({2, 2}, {10, 11, 20, 21});
  expect_tensor<std::int64_t>(run(op::ScatterNd{}, {x, indices({2, 1}, {2, 0}), updates})[0],
                              {3, 2}, {20, 21, 2, 3, 10, 11});
  expect_tensor<std::int64_t>(
      run(op::ScatterNd{ScatterMode::add}, {x, indices({2, 1}, {1, 1}), updates})[0], {3, 2},
      {0, 1, 32, 35, 4, 5});
  EXPECT_EQ(refusal(op::ScatterNd{}, {{f32, {2}}, {i64, {1, 1}}, {f64, {1}}}),
            "The op scatter_nd wants updates of the dtype of f32[2] and was given f64[1].");
}

TEST(one_hot, marks_positions) {
  const Tensor values = Tensor::of<float>({2}, {-1, 1});
  expect_tensor<float>(run(op::OneHot{-1, 3}, {indices({3}, {0, -1, 5}), values})[0], {3, 3},
                       {1, -1, -1, -1, -1, 1, -1, -1, -1});
  expect_tensor<float>(run(op::OneHot{0, 2}, {indices({2}, {1, 0}), values})[0], {2, 2},
                       {-1, 1, 1, -1});
  EXPECT_EQ(refusal(op::OneHot{-1, 3}, {{i64, {2}}, {f32, {3}}}),
            "The op one_hot wants an off and an on value, not f32[3].");
  EXPECT_EQ(refusal(op::OneHot{-1, -3}, {{i64, {2}}, {f32, {2}}}),
            "The depth (-3) of one_hot is negative.");
}

}  // namespace
}  // namespace rlx
