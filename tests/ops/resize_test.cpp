// Resizing against ONNX's reference evaluator, and what it refuses.
#include <gmock/gmock.h>

#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;
using Coordinates = op::ResizeCoordinates;
using Mode = op::ResizeMode;
using Nearest = op::ResizeNearest;

Tensor resized(op::Resize attributes) {
  return results_of(std::move(attributes), {pattern({1, 1, 4, 5}, 1)})[0];
}

TEST(Resize, picks_the_nearest_place) {
  expect_answer(resized({.sizes = {1, 1, 7, 8}}), numpy::resize_nearest);
  expect_answer(resized({.sizes = {1, 1, 7, 3},
                         .coordinates = Coordinates::asymmetric,
                         .nearest = Nearest::ceil}),
                numpy::resize_nearest_ceil);
  expect_answer(resized({.sizes = {1, 1, 6, 3},
                         .coordinates = Coordinates::align_corners,
                         .nearest = Nearest::round_prefer_ceil}),
                numpy::resize_nearest_up);
}

/// As TensorFlow's nearest neighbours with half pixel centers: i is floor((i + 0.5) / scale).
TEST(Resize, picks_the_pixel_that_a_center_lies_in) {
  const auto picked = [](std::int64_t size) {
    const Tensor result = results_of(op::Resize{.sizes = {size},
                                                .coordinates = Coordinates::tf_half_pixel_for_nn,
                                                .nearest = Nearest::floor},
                                     {Tensor::of<float>({4}, {0, 1, 2, 3})})[0];
    const auto values = result.as<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(picked(8), (std::vector<float>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(picked(2), (std::vector<float>{1, 3}));
  EXPECT_EQ(picked(3), (std::vector<float>{0, 2, 3}));
}

TEST(Resize, interpolates_linearly) {
  expect_answer(resized({.sizes = {1, 1, 3, 8}, .mode = Mode::linear}), numpy::resize_linear);
  expect_answer(
      resized(
          {.sizes = {1, 1, 3, 8}, .mode = Mode::linear, .coordinates = Coordinates::align_corners}),
      numpy::resize_linear_corners);
  expect_answer(resized({.sizes = {1, 1, 2, 8},
                         .scales = {1, 1, 0.6, 1.7},
                         .mode = Mode::linear,
                         .coordinates = Coordinates::half_pixel_symmetric}),
                numpy::resize_linear_scales);
  expect_answer(resized({.sizes = {1, 1, 2, 3}, .mode = Mode::linear, .antialias = true}),
                numpy::resize_linear_antialias);
}

TEST(Resize, interpolates_cubically) {
  expect_answer(resized({.sizes = {-1, -1, 7, 3}, .mode = Mode::cubic}), numpy::resize_cubic);
  expect_answer(resized({.sizes = {1, 1, 7, 3},
                         .mode = Mode::cubic,
                         .cubic_coefficient = -0.5,
                         .exclude_outside = true}),
                numpy::resize_cubic_outside);
  expect_answer(resized({.sizes = {1, 1, 2, 3}, .mode = Mode::cubic, .antialias = true}),
                numpy::resize_cubic_antialias);
}

TEST(Resize, crops_and_extrapolates) {
  expect_answer(resized({.sizes = {1, 1, 3, 3},
                         .mode = Mode::linear,
                         .coordinates = Coordinates::tf_crop_and_resize,
                         .extrapolation = 10,
                         .roi = {0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7}}),
                numpy::resize_crop);
}

TEST(Resize, takes_scales_and_sizes_for_some_axes) {
  const Shape x{"n", 1, 4, 6};
  const auto by = op::resize_by({}, x, {2, 3}, {2, 0.5}).value();
  EXPECT_EQ(by.sizes, (Axes{-1, 1, 8, 3}));
  EXPECT_EQ(by.scales, (std::vector<double>{1, 1, 2, 0.5}));
  const auto sizes_by = [&](op::ResizePolicy policy) {
    return op::resize_to({}, x, {2, 3}, {8, 6}, policy).value().sizes;
  };
  EXPECT_EQ(sizes_by(op::ResizePolicy::stretch), (Axes{-1, 1, 8, 6}));
  EXPECT_EQ(sizes_by(op::ResizePolicy::not_larger), (Axes{-1, 1, 4, 6}));
  EXPECT_EQ(sizes_by(op::ResizePolicy::not_smaller), (Axes{-1, 1, 8, 12}));
  EXPECT_EQ(op::resize_by({}, x, {2}, {1, 2}).error().message,
            "There are (2) scales for (1) axes.");
  EXPECT_EQ(op::resize_by({}, x, {-1}, {2}).value().sizes, (Axes{-1, 1, 4, 12}));
  EXPECT_EQ(op::resize_by({}, x, {4}, {2}).error().kind, ErrorKind::bad_input);
  EXPECT_EQ(op::resize_to({}, x, {0}, {2}, op::ResizePolicy::stretch).error().message,
            "Resizing an unbound dim (n) has no size.");
  EXPECT_EQ(op::resize_by({}, x, {2}, {-1}).error().message, "The scale (-1) is wrong.");
  EXPECT_EQ(op::resize_to({}, x, {2}, {-3}, op::ResizePolicy::stretch).error().message,
            "A size (-3) is negative.");
}

TEST(Resize, waits_for_sizes) {
  op::DynamicResize later;
  later.axes = {1};
  const Tensor x = Tensor::of<float>({1, 2}, {3, 5});
  const Tensor sizes = Tensor::of<std::int64_t>({1}, {4}), scales = Tensor::of<float>({1}, {2});
  for (const Tensor& lengths : {sizes, scales}) {
    const auto y = evaluate(later, std::vector<Tensor>{x, lengths}).value()[0];
    EXPECT_THAT(y.as<float>(), ::testing::ElementsAre(3, 3, 5, 5));
  }
  later.axes = {-1};
  EXPECT_EQ(evaluate(later, std::vector<Tensor>{x, sizes}).value()[0].dims(), (Dims{1, 4}));
  later.axes = {1, -1};
  EXPECT_EQ(refusal_of(later, {x, Tensor(f32, {2})}), "Axis (1) of f32[1,2] is named twice.");
  later.axes = {1};
  EXPECT_EQ(refusal_of(later, {x, Tensor(f32, {2})}),
            "The op dynamic_resize wants (1) sizes or scales as a list, not f32[2].");
}

TEST(Resize, refuses_with_sentences) {
  const Tensor x(f32, {1, 1, 4, 5});
  EXPECT_EQ(refusal_of(op::Resize{.sizes = {2, 2}}, {x}),
            "The op resize has (2) sizes and (0) scales for f32[1,1,4,5].");
  EXPECT_EQ(refusal_of(op::Resize{.sizes = {1, 1, 2, 2}, .scales = {1, 1, 0, 1}}, {x}),
            "The size (2) or scale of resize along axis (2) is not positive.");
  EXPECT_EQ(refusal_of(op::Resize{.sizes = {1, 1, 2, 2}, .roi = {0, 1}}, {x}),
            "The region of resize has (2) numbers, not a start and an end for each axis of "
            "f32[1,1,4,5].");
  EXPECT_EQ(refusal_of(op::Resize{.sizes = {1, 1, 2, 2}}, {Tensor(f32, {1, 1, 0, 5})}),
            "The op resize cannot fill (4) places from an empty operand.");
}

}  // namespace
}  // namespace rlx
