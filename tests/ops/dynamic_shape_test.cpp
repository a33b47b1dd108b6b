// Ops whose operands tell dims: what they infer, what they become, and what they give.
#include <gtest/gtest.h>

#include <functional>

#include "ops/known_answers.hpp"

namespace rlx {
namespace {

using testing::counting;
using testing::expect_tensor;
using testing::inferred;
using testing::refusal;
using testing::run;
using Texts = std::vector<std::string>;

Tensor list(std::initializer_list<std::int64_t> values) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

std::string failure(const Op& op, const std::vector<Tensor>& inputs) {
  const auto result = evaluate(op, inputs);
  return result.ok() ? "evaluated" : result.error().message;
}

TEST(dynamic_reshape, copies_and_infers_dims) {
  EXPECT_EQ(run(op::DynamicReshape{}, {counting<float>({2, 3, 4}), list({0, -1})})[0].dims(),
            (Dims{2, 12}));
  EXPECT_EQ(run(op::DynamicReshape{true}, {Tensor(f32, {0, 4}), list({3, 0})})[0].dims(),
            (Dims{3, 0}));
  EXPECT_EQ(inferred(op::DynamicReshape{}, {{f32, {"a", "b"}}, {i64, {3}}}), Texts{"f32[?,?,?]"});
  EXPECT_EQ(refusal(op::DynamicReshape{}, {{f32, {2}}, {i64, {"r"}}}),
            "The op dynamic_reshape wants a shape of a known length, not i64[r].");
  EXPECT_EQ(refusal(op::DynamicReshape{}, {{f32, {2}}, {f32, {1}}}),
            "The op dynamic_reshape wants a shape as a list of integers, not f32[1].");
  EXPECT_EQ(failure(op::DynamicReshape{}, {Tensor(f32, {4}), list({4, 0})}),
            "Dim (1) of a reshape copies an axis that f32[4] does not have.");
}

TEST(dynamic_reshape, resolves_with_symbols) {
  Graph graph;
  const Value x = graph.input("x", f32, {"b", "s", 12, 64}),
              shape = graph.constant(list({0, -1, 768}));
  const Op op = op::DynamicReshape{};
  const std::vector<Value> inputs{x, shape};
  const std::vector<std::optional<Tensor>> known{std::nullopt, list({0, -1, 768})},
      unknown{std::nullopt, std::nullopt};
  EXPECT_EQ(op.info().resolve(op.attributes(), graph, inputs, known)->front().type().text(),
            "f32[b,s,768]");
  EXPECT_FALSE(op.info().resolve(op.attributes(), graph, inputs, unknown));
}

TEST(dynamic_broadcast, goes_both_ways) {
  expect_tensor<std::int32_t>(
      run(op::DynamicBroadcast{}, {counting<std::int32_t>({2, 1}), list({2, 1, 2})})[0], {2, 2, 2},
      {0, 0, 1, 1, 0, 0, 1, 1});
  expect_tensor<std::int32_t>(
      run(op::DynamicBroadcast{}, {counting<std::int32_t>({2, 2}), list({1})})[0], {2, 2},
      {0, 1, 2, 3});
  EXPECT_EQ(failure(op::DynamicBroadcast{}, {Tensor(f32, {3}), list({4})}),
            "Shapes [3] and [4] do not broadcast: dim (3) against (4). - while resolving "
            "dynamic_broadcast.");
  EXPECT_EQ(failure(op::DynamicBroadcast{}, {Tensor(f32, {3}), list({-3})}),
            "A dim (-3) of the shape given to dynamic_broadcast is negative.");
}

TEST(dynamic_slice_range, clamps_as_onnx_does) {
  const Tensor x = counting<std::int32_t>({5});
  const auto sliced = [&](std::int64_t start, std::int64_t end, std::int64_t step) {
    return run(op::DynamicSliceRange{},
               {x, list({start}), list({end}), list({0}), list({step})})[0];
  };
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max(),
                         low = std::numeric_limits<std::int64_t>::min();
  expect_tensor<std::int32_t>(sliced(1, far, 1), {4}, {1, 2, 3, 4});
  expect_tensor<std::int32_t>(sliced(-2, far, 1), {2}, {3, 4});
  expect_tensor<std::int32_t>(sliced(-1, low, -1), {5}, {4, 3, 2, 1, 0});
  expect_tensor<std::int32_t>(sliced(far, -4, -2), {2}, {4, 2});
  expect_tensor<std::int32_t>(sliced(3, 1, 1), {0}, {});
  expect_tensor<std::int32_t>(sliced(0, 5, low), {0}, {});
  EXPECT_EQ(failure(op::DynamicSliceRange{}, {x, list({0}), list({1}), list({0}), list({0})}),
            "The step of a slice of i32[5] along axis (0) is (0).");
  EXPECT_EQ(failure(op::DynamicSliceRange{}, {x, list({0}), list({1}), list({3})}),
            "Axis (3) is outside the rank (1) of i32[5]. - while resolving dynamic_slice_range.");
  EXPECT_EQ(refusal(op::DynamicSliceRange{}, {{f32, {2}}, {i64, {2}}, {i64, {2}}}),
            "The op dynamic_slice_range was given bounds for (2) axes of f32[2].");
  EXPECT_EQ(inferred(op::DynamicSliceRange{}, {{f32, {2, "n"}}, {i64, {1}}, {i64, {1}}}),
            Texts{"f32[?,?]"});
}

TEST(dynamic_pad, pads_named_axes) {
  const Tensor x = counting<std::int32_t>({1, 2});
  expect_tensor<std::int32_t>(
      run(op::DynamicPad{}, {x, list({0, 1, 1, 0}), Tensor::scalar<std::int32_t>(7)})[0], {2, 3},
      {7, 0, 1, 7, 7, 7});
  expect_tensor<std::int32_t>(
      run(op::DynamicPad{PadMode::edge}, {x, list({1, 1}), {}, list({-1})})[0], {1, 4},
      {0, 0, 1, 1});
  EXPECT_EQ(failure(op::DynamicPad{}, {x, list({1, 1})}),
            "A pad of (2) axes wants twice as many widths and was given (2).");
}

TEST(dynamic_fill, repeats_a_scalar) {
  expect_tensor<float>(run(op::DynamicFill{}, {Tensor::of<float>({1}, {2.5f}), list({2, 2})})[0],
                       {2, 2}, {2.5f, 2.5f, 2.5f, 2.5f});
  EXPECT_EQ(failure(op::DynamicFill{}, {Tensor::scalar(1.0f), list({2, -2})}),
            "A dim (-2) of the shape given to dynamic_fill is negative.");
}

TEST(dynamic_range, counts_up_and_down) {
  const auto range = [](std::int64_t start, std::int64_t limit, std::int64_t step) {
    return run(op::DynamicRange{},
               {Tensor::scalar(start), Tensor::scalar(limit), Tensor::scalar(step)})[0];
  };
  expect_tensor<std::int64_t>(range(1, 8, 3), {3}, {1, 4, 7});
  expect_tensor<std::int64_t>(range(10, 4, -2), {3}, {10, 8, 6});
  expect_tensor<std::int64_t>(range(4, 4, 1), {0}, {});
  expect_tensor<std::int64_t>(range(4, 9, -1), {0}, {});
  expect_tensor<float>(run(op::DynamicRange{},
                           {Tensor::scalar(1.0f), Tensor::scalar(2.1f), Tensor::scalar(0.5f)})[0],
                       {3}, {1, 1.5f, 2});
  const auto refused = [](std::int64_t limit, std::int64_t step) {
    return failure(op::DynamicRange{},
                   {Tensor::scalar<std::int64_t>(0), Tensor::scalar(limit), Tensor::scalar(step)});
  };
  EXPECT_EQ(refused(5, 0), "The step of a range is (0).");
  EXPECT_EQ(refused(std::int64_t{1} << 40, 1), "A range of (1099511627776) elements is too long.");
}

TEST(dynamic_tile, repeats_every_axis) {
  expect_tensor<std::int32_t>(
      run(op::DynamicTile{}, {counting<std::int32_t>({1, 2}), list({2, 2})})[0], {2, 4},
      {0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_EQ(failure(op::DynamicTile{}, {Tensor(f32, {2}), list({-1})}),
            "A dim (-1) of the shape given to dynamic_tile is negative.");
}

TEST(dynamic_top_k, takes_k_from_an_operand) {
  expect_tensor<float>(run(op::DynamicTopK{}, {Tensor::of<float>({4}, {3, 1, 4, 1}), list({2})})[0],
                       {2}, {4, 3});
  EXPECT_EQ(inferred(op::DynamicTopK{.axis = 0}, {{f32, {4, "n"}}, {i64, {1}}}),
            (Texts{"f32[?,n]", "i64[?,n]"}));
}

TEST(dynamic_one_hot, takes_the_depth_from_an_operand) {
  expect_tensor<std::int32_t>(
      run(op::DynamicOneHot{}, {list({1, 0}), Tensor::scalar<std::int64_t>(2),
                                Tensor::of<std::int32_t>({2}, {0, 9})})[0],
      {2, 2}, {0, 9, 9, 0});
}

}  // namespace
}  // namespace rlx
