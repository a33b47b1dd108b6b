// Ops that move elements: answers of NumPy, shapes with symbols, and the words of refusals.
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

TEST(reshape, infers_the_missing_dim) {
  EXPECT_EQ(inferred(op::Reshape{{Dim(-1), 6}}, {{f32, {2, 3, 4}}}), Texts{"f32[4,6]"});
  EXPECT_EQ(inferred(op::Reshape{{Dim(-1), 3}}, {{f32, {0, 3}}}), Texts{"f32[0,3]"});
}

TEST(reshape, follows_symbols) {
  EXPECT_EQ(inferred(op::Reshape{{Dim(-1), 768}}, {{f32, {"b", "s", 12, 64}}}),
            Texts{"f32[(b*s),768]"});
  EXPECT_EQ(inferred(op::Reshape{{"b", Dim(-1), 12, 64}}, {{f32, {"b", "s", 768}}}),
            Texts{"f32[b,s,12,64]"});
  EXPECT_EQ(inferred(op::Reshape{{"b", "s", Dim(-1)}}, {{f32, {"(b*s)", 768}}}),
            Texts{"f32[b,s,768]"});
  EXPECT_EQ(inferred(op::Reshape{{2, Dim(-1)}}, {{f32, {"n", 3}}}), Texts{"f32[2,((3*n)/2)]"});
  EXPECT_EQ(
      inferred(op::Reshape{{Dim::unknown(), 1, Dim::unknown()}}, {{f32, {"a", Dim::unknown()}}}),
      Texts{"f32[a,1,?]"});
  const Dim open = Dim::unknown();
  EXPECT_EQ(inferred(op::Reshape{{open, open, 1}}, {{f32, {open, open, open}}}),
            Texts{"f32[?,?,1]"});
  EXPECT_EQ(inferred(op::Reshape{{open, 4}}, {{f32, {"n", open}}}), Texts{"f32[?,4]"});
  EXPECT_EQ(inferred(op::Reshape{{open, 1, open, 4}}, {{f32, {"n", open, open}}}),
            Texts{"f32[?,1,?,4]"});
  EXPECT_EQ(inferred(op::Reshape{{open, open, 1}}, {{f32, {5, 1, 1}}}), Texts{"f32[5,1,1]"});
  EXPECT_EQ(inferred(op::Reshape{{open, 0, 1}}, {{f32, {4, 0, 1}}}), Texts{"f32[4,0,1]"});
}

TEST(reshape, refuses_other_counts) {
  EXPECT_EQ(refusal(op::Reshape{{5}}, {{f32, {2, 3}}}),
            "f32[2,3] cannot be reshaped to f32[5]: the numbers of elements differ.");
  EXPECT_EQ(refusal(op::Reshape{{"b", 5}}, {{f32, {"b", 6}}}),
            "f32[b,6] cannot be reshaped to f32[b,5]: the numbers of elements differ.");
  EXPECT_EQ(refusal(op::Reshape{{Dim(-1), 4}}, {{f32, {2, 3}}}),
            "f32[2,3] cannot be reshaped to f32[-1,4]: the numbers of elements differ.");
  EXPECT_EQ(refusal(op::Reshape{{Dim(-1), Dim(-1)}}, {{f32, {2, 3}}}),
            "The shape f32[-1,-1] of a reshape has more than one dim of -1.");
  EXPECT_EQ(refusal(op::Reshape{{Dim(-1), 0}}, {{f32, {0, 3}}}),
            "The dim -1 of f32[-1,0] cannot be told: the other dims hold no element.");
  EXPECT_EQ(refusal(op::Reshape{{Dim(-7)}}, {{f32, {7}}}),
            "A dim of a shape must not be negative (-7).");
}

TEST(transpose, permutes_axes) {
  expect_tensor<float>(run(op::Transpose{{1, 0}}, {counting<float>({2, 3})})[0], {3, 2},
                       {0, 3, 1, 4, 2, 5});
  const Tensor moved = run(op::Transpose{{2, 0, 1}}, {counting<std::int64_t>({2, 2, 3})})[0];
  expect_tensor<std::int64_t>(moved, {3, 2, 2}, {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
}

TEST(transpose, is_undone_by_the_inverse_for_every_size) {
  for (const Dims& dims : {Dims{67, 33, 5}, Dims{1, 100, 40}, Dims{8, 1, 129}, Dims{0, 4, 3}}) {
    const Tensor x = counting<std::int32_t>(dims);
    const Tensor back = run(op::Transpose{{1, 2, 0}}, run(op::Transpose{{2, 0, 1}}, {x}))[0];
    EXPECT_EQ(back.dims(), dims);
    EXPECT_TRUE(std::equal(x.data(), x.data() + x.bytes(), back.data()));
  }
}

TEST(transpose, refuses_what_is_no_permutation) {
  EXPECT_EQ(refusal(op::Transpose{{0, 0}}, {{f32, {2, 3}}}),
            "Axis (0) of f32[2,3] is named twice.");
  EXPECT_EQ(refusal(op::Transpose{{0, 5}}, {{f32, {2, 3}}}),
            "Axis (5) is outside the rank (2) of f32[2,3].");
  EXPECT_EQ(
      refusal(op::Transpose{{0}}, {{f32, {2, 3}}}),
      "The op transpose wants as many entries of perm as f32[2,3] has axes and was given (1).");
}

TEST(broadcast, repeats_axes_of_one) {
  expect_tensor<float>(run(op::Broadcast{{2, 2, 3}}, {Tensor::of<float>({2, 1}, {1, 2})})[0],
                       {2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2});
  EXPECT_EQ(inferred(op::Broadcast{{"b", 4}}, {{f32, {4}}}), Texts{"f32[b,4]"});
  EXPECT_EQ(refusal(op::Broadcast{{4, 2}}, {{f32, {4, 3}}}),
            "f32[4,3] cannot be broadcast to f32[4,2]: dim (3) against (2).");
  EXPECT_EQ(refusal(op::Broadcast{{2}}, {{f32, {4, 2}}}),
            "f32[4,2] has more axes than f32[2] and cannot be broadcast to it.");
  EXPECT_EQ(refusal(op::Broadcast{{Dim(-2)}}, {{f32, {}}}),
            "A dim of a shape must not be negative (-2).");
}

TEST(slice, walks_both_ways) {
  const Tensor x = counting<std::int32_t>({3, 4});
  expect_tensor<std::int32_t>(run(op::Slice{{1, 0}, {3, 4}, {1, 2}}, {x})[0], {2, 2},
                              {4, 6, 8, 10});
  expect_tensor<std::int32_t>(run(op::Slice{{2, 3}, {-1, 0}, {-2, -1}}, {x})[0], {2, 3},
                              {11, 10, 9, 3, 2, 1});
  expect_tensor<std::int32_t>(run(op::Slice{{1, 2}, {op::slice_end, op::slice_end}, {}}, {x})[0],
                              {2, 2}, {6, 7, 10, 11});
}

TEST(slice, follows_symbols) {
  EXPECT_EQ(inferred(op::Slice{{0, 1}, {op::slice_end, op::slice_end}, {}}, {{f32, {"n", "n"}}}),
            Texts{"f32[n,(n-1)]"});
  EXPECT_EQ(inferred(op::Slice{{0}, {4}, {}}, {{f32, {"n"}}}), Texts{"f32[4]"});
  EXPECT_EQ(inferred(op::Slice{{op::slice_end}, {-1}, {-1}}, {{f32, {"n"}}}), Texts{"f32[n]"});
}

TEST(slice, refuses_bounds_outside) {
  EXPECT_EQ(refusal(op::Slice{{0}, {5}, {1}}, {{f32, {4}}}),
            "The slice (0:5:1) lies outside axis (0) of f32[4].");
  EXPECT_EQ(refusal(op::Slice{{4}, {-1}, {-1}}, {{f32, {4}}}),
            "The slice (4:-1:-1) lies outside axis (0) of f32[4].");
  EXPECT_EQ(refusal(op::Slice{{0}, {4}, {0}}, {{f32, {4}}}),
            "The step of a slice of f32[4] along axis (0) is (0).");
  EXPECT_EQ(refusal(op::Slice{{0}, {4}, {}}, {{f32, {4, 4}}}),
            "The op slice wants a start, limit and step for each axis of f32[4,4] and was given "
            "(1), (1) and (0).");
}

TEST(dynamic_slice, clamps_its_starts) {
  const Tensor x = counting<float>({3, 4});
  const auto at = [](std::int64_t start) { return Tensor::scalar<std::int64_t>(start); };
  expect_tensor<float>(run(op::DynamicSlice{{2, 2}}, {x, at(9), at(-3)})[0], {2, 2}, {4, 5, 8, 9});
  EXPECT_EQ(refusal(op::DynamicSlice{{5}}, {{f32, {4}}, {i64, {}}}),
            "The size (5) of a dynamic_slice lies outside axis (0) of f32[4].");
  EXPECT_EQ(refusal(op::DynamicSlice{{2}}, {{f32, {4}}, {f32, {}}}),
            "The op dynamic_slice takes scalar i64 or i32 starts, not f32[].");
  EXPECT_EQ(refusal(op::DynamicSlice{{2}}, {{f32, {4}}}),
            "The op dynamic_slice wants a start for each axis of f32[4] and was given (0).");
}

TEST(dynamic_update_slice, writes_a_window) {
  const auto at = [](std::int32_t start) { return Tensor::scalar<std::int32_t>(start); };
  const Tensor update = Tensor::of<std::int32_t>({1, 2}, {70, 71});
  expect_tensor<std::int32_t>(
      run(op::DynamicUpdateSlice{}, {counting<std::int32_t>({2, 3}), update, at(1), at(5)})[0],
      {2, 3}, {0, 1, 2, 3, 70, 71});
  EXPECT_EQ(refusal(op::DynamicUpdateSlice{}, {{f32, {2}}, {f32, {3}}, {i64, {}}}),
            "The update f32[3] is larger than f32[2] along axis (0).");
}

TEST(pad, knows_four_modes) {
  const Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  const auto padded = [&](PadMode mode) { return run(op::Pad{{2}, {3}, mode}, {x})[0]; };
  expect_tensor<float>(padded(PadMode::constant), {9}, {0, 0, 1, 2, 3, 4, 0, 0, 0});
  expect_tensor<float>(padded(PadMode::reflect), {9}, {3, 2, 1, 2, 3, 4, 3, 2, 1});
  expect_tensor<float>(padded(PadMode::edge), {9}, {1, 1, 1, 2, 3, 4, 4, 4, 4});
  expect_tensor<float>(padded(PadMode::wrap), {9}, {3, 4, 1, 2, 3, 4, 1, 2, 3});
}

TEST(pad, fills_crops_and_reflects_again) {
  const Tensor x = counting<std::int64_t>({2, 3});
  expect_tensor<std::int64_t>(
      run(op::Pad{{1, -1}, {0, 1}}, {x, Tensor::scalar<std::int64_t>(9)})[0], {3, 3},
      {9, 9, 9, 1, 2, 9, 4, 5, 9});
  expect_tensor<std::int64_t>(
      run(op::Pad{{5}, {4}, PadMode::reflect}, {counting<std::int64_t>({3})})[0], {12},
      {1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2});
  expect_tensor<std::int64_t>(run(op::Pad{{-3}, {2}}, {counting<std::int64_t>({3})})[0], {2},
                              {0, 0});
  EXPECT_EQ(refusal(op::Pad{{-3}, {-1}}, {{f32, {3}}}),
            "The widths (-3, -1) crop more than axis (0) of f32[3] has.");
  EXPECT_EQ(refusal(op::Pad{{1}, {0}}, {{f32, {3}}, {i64, {}}}),
            "The op pad wants a scalar of f32 as fill value, not i64[].");
  EXPECT_EQ(refusal(op::Pad{{1}, {0}, PadMode::edge}, {{f32, {0}}}),
            "Axis (0) of f32[0] has no element to pad with.");
  EXPECT_EQ(inferred(op::Pad{{1}, {-3}}, {{f32, {"n"}}}), Texts{"f32[(n-2)]"});
}

TEST(concat, joins_along_an_axis) {
  const Tensor a = Tensor::of<float>({2, 1}, {1, 2}), b = Tensor::of<float>({2, 2}, {3, 4, 5, 6});
  expect_tensor<float>(run(op::Concat{1}, {a, b})[0], {2, 3}, {1, 3, 4, 2, 5, 6});
  EXPECT_EQ(inferred(op::Concat{0}, {{f32, {"n", 4}}, {f32, {1, 4}}}), Texts{"f32[(n+1),4]"});
  EXPECT_EQ(refusal(op::Concat{0}, {{f32, {2, 3}}, {f32, {2, 4}}}),
            "The parts f32[2,3] and f32[2,4] of a concat along axis (0) differ in axis (1).");
  EXPECT_EQ(refusal(op::Concat{0}, {{f32, {2}}, {i32, {2}}}),
            "The op concat wants parts of one dtype and rank and was given f32[2] and i32[2].");
}

TEST(reverse, turns_axes_round) {
  expect_tensor<std::int32_t>(run(op::Reverse{{1}}, {counting<std::int32_t>({2, 3})})[0], {2, 3},
                              {2, 1, 0, 5, 4, 3});
  expect_tensor<std::int32_t>(run(op::Reverse{}, {counting<std::int32_t>({2, 3})})[0], {2, 3},
                              {5, 4, 3, 2, 1, 0});
}

TEST(shape_of, gives_the_dims) {
  expect_tensor<std::int64_t>(run(op::ShapeOf{}, {Tensor(f16, {4, 0, 2})})[0], {3}, {4, 0, 2});
}

}  // namespace
}  // namespace rlx
