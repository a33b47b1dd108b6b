// Convolutions and pools against ONNX Runtime, and what they refuse.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

TEST(Conv, takes_groups_strides_paddings_and_dilations) {
  const op::Conv conv{
      .strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {2, 1}, .dilations = {1, 2}, .groups = 2};
  const auto result =
      results_of(conv, {pattern({2, 4, 6, 5}, 1), pattern({6, 2, 3, 2}, 2), pattern({6}, 3)});
  expect_answer(result[0], numpy::conv_grouped);
}

TEST(Conv, channels_last_is_the_same_map) {
  op::Conv conv{
      .strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {2, 1}, .dilations = {1, 2}, .groups = 2};
  const auto first =
      results_of(conv, {pattern({2, 4, 6, 5}, 1), pattern({6, 2, 3, 2}, 2), pattern({6}, 3)})[0];
  const auto moved = [](const Tensor& x, const Axes& perm) {
    Dims dims;
    for (const std::int64_t axis : perm) dims.push_back(x.dims()[axis]);
    Tensor result(f32, dims);
    store_all<double>({f32, result.dims(), result.mutable_data()},
                      permuted<double>(load_all<double>(x), x.dims(), perm));
    return result;
  };
  conv.channels_last = true;
  const Tensor x = moved(pattern({2, 4, 6, 5}, 1), {0, 2, 3, 1}),
               w = moved(pattern({6, 2, 3, 2}, 2), {2, 3, 1, 0});
  const Tensor last = results_of(conv, {x, w, pattern({6}, 3)})[0];
  expect_answer(moved(last, {0, 3, 1, 2}), {first.dims(), load_all<double>(first)}, 0);
}

TEST(Conv, takes_one_and_three_spatial_axes) {
  const op::Conv line{.strides = {2}, .pad_low = {1}, .pad_high = {1}};
  expect_answer(results_of(line, {pattern({1, 2, 9}, 1), pattern({3, 2, 3}, 2)})[0],
                numpy::conv_line);
  const op::Conv volume{.pad_low = {0, 1, 1}, .pad_high = {1, 0, 0}};
  expect_answer(results_of(volume, {pattern({1, 2, 3, 4, 4}, 1), pattern({2, 2, 2, 2, 3}, 2)})[0],
                numpy::conv_volume);
}

TEST(Conv, transposed_spreads_each_element) {
  const op::Conv conv{.strides = {2, 3},
                      .pad_low = {1, 0},
                      .pad_high = {0, 1},
                      .dilations = {1, 2},
                      .groups = 2,
                      .transposed = true,
                      .output_padding = {1, 0}};
  expect_answer(results_of(conv, {pattern({1, 4, 3, 4}, 1), pattern({4, 3, 3, 2}, 2)})[0],
                numpy::conv_transposed);
}

TEST(Conv, keeps_symbolic_dims) {
  Graph graph;
  const Value x = graph.input("x", f32, {"n", 3, "h", 8}), w = graph.input("w", f32, {6, 3, 3, 3});
  const op::Conv conv{.strides = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}};
  EXPECT_EQ(graph.add_one(conv, {x, w}).type().text(), "f32[n,6,(((h-1)/2)+1),4]");
}

TEST(Conv, costs_two_flops_for_each_product) {
  const Type x{f32, {1, 4, 5, 5}}, w{f32, {8, 2, 3, 3}}, y{f32, {1, 8, 3, 3}};
  const std::vector<const Type*> inputs{&x, &w};
  const std::vector<Type> results{y};
  const Op conv = op::Conv{.groups = 2};
  EXPECT_EQ(conv.info().cost(conv.attributes(), inputs, results).flops, 2.0 * 8 * 9 * 2 * 9);
}

TEST(Conv, refuses_with_sentences) {
  const Tensor x(f32, {1, 4, 5, 5});
  EXPECT_EQ(
      refusal_of(op::Conv{}, {x, Tensor(f32, {8, 3, 3, 3})}),
      "The channels of conv do not fit: f32[1,4,5,5] with weights f32[8,3,3,3] in (1) groups.");
  EXPECT_EQ(refusal_of(op::Conv{.groups = 2}, {x, Tensor(f32, {7, 2, 3, 3})}),
            "The output channels (7) of conv are no multiple of its groups (2).");
  EXPECT_EQ(refusal_of(op::Conv{}, {x, Tensor(f32, {8, 4, 7, 3})}),
            "The window of conv is (7) elements wide and spatial axis (0) has only (5) with its "
            "padding.");
  for (const auto& [image, filter] : {std::pair{Dims{1, 4, 0, 6}, Dims{4, 8, 3, 3}},
                                      std::pair{Dims{1, 4, 6, 6}, Dims{4, 8, 0, 3}}}) {
    EXPECT_EQ(refusal_of(op::Conv{.transposed = true}, {Tensor(f32, image), Tensor(f32, filter)}),
              "Spatial axis (0) of a transposed conv or of its window has no elements.");
  }
  EXPECT_EQ(refusal_of(op::Conv{.strides = {1}}, {x, Tensor(f32, {8, 4, 3, 3})}),
            "The op conv has (1) strides for (2) spatial axes.");
  EXPECT_EQ(refusal_of(op::Conv{.strides = {0, 1}}, {x, Tensor(f32, {8, 4, 3, 3})}),
            "The op conv has a value (0) among its strides, which must be at least 1.");
  EXPECT_EQ(refusal_of(op::Conv{}, {x, Tensor(f32, {8, 4, 3, 3}), Tensor(f32, {4})}),
            "The bias f32[4] of conv is not one value for each of (8) channels.");
  EXPECT_EQ(
      refusal_of(op::Conv{}, {Tensor(f32, {4, 5}), Tensor(f32, {4, 5})}),
      "The op conv takes x and weights of one rank of at least 3, not f32[4,5] and f32[4,5].");
}

TEST(IntegerConv, pads_with_the_zero_point) {
  const op::IntegerConv conv{.pad_low = {1, 0}, .pad_high = {0, 1}};
  const auto result =
      results_of(conv, {pattern({1, 2, 4, 4}, 1, u8, 100), pattern({3, 2, 2, 2}, 2, u8, 20),
                        Tensor::scalar<std::uint8_t>(97), Tensor::scalar<std::uint8_t>(19)});
  expect_answer(result[0], numpy::conv_integer);
}

op::WindowReduce pool_of_kind(Reduction kind) {
  return {.kind = kind, .window = {3, 2}, .strides = {2, 2}, .pad_low = {1, 0}, .pad_high = {1, 1}};
}

TEST(WindowReduce, takes_maxima_that_padding_never_wins) {
  expect_answer(results_of(pool_of_kind(Reduction::max), {pattern({1, 2, 6, 5}, 1)})[0],
                numpy::max_pool_0);
  const op::WindowReduce line{.window = {2}, .pad_low = {1}, .pad_high = {1}};
  expect_values(results_of(line, {Tensor::of<std::int8_t>({1, 1, 2}, {-5, -7})})[0], {1, 1, 3},
                {-5, -5, -7});
}

TEST(WindowReduce, means_count_padding_on_request) {
  op::WindowReduce pool = pool_of_kind(Reduction::mean);
  expect_answer(results_of(pool, {pattern({1, 2, 6, 5}, 1)})[0], numpy::mean_pool);
  pool.count_include_pad = true;
  expect_answer(results_of(pool, {pattern({1, 2, 6, 5}, 1)})[0], numpy::mean_pool_padded);
}

TEST(WindowReduce, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::WindowReduce{.window = {2, 2}}, {Tensor(f32, {1, 2, 5})}),
            "The op window_reduce has windows of (2) axes for an operand of rank (3), which is two "
            "more than its spatial axes.");
  EXPECT_EQ(refusal_of(op::WindowReduce{.window = {6}}, {Tensor(f32, {1, 2, 5})}),
            "The window of window_reduce is (6) elements wide and spatial axis (0) has only (5) "
            "with its padding.");
  EXPECT_EQ(
      refusal_of(op::WindowReduce{.kind = Reduction::any, .window = {2}}, {Tensor(f32, {1, 2, 5})}),
      "The op window_reduce takes bools for any and all, not f32[1,2,5].");
}

TEST(WindowArgMax, gives_positions_in_both_orders) {
  op::WindowArgMax pool{.window = {3, 2}, .strides = {2, 2}, .pad_low = {1, 0}, .pad_high = {1, 1}};
  expect_answer(results_of(pool, {pattern({1, 2, 6, 5}, 1)})[0], numpy::max_pool_1);
  pool.column_major = true;
  expect_answer(results_of(pool, {pattern({1, 2, 6, 5}, 1)})[0], numpy::max_pool_columns_1);
}

}  // namespace
}  // namespace rlx
