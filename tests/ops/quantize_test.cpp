// Quantisation against ONNX Runtime, its rounding and saturation, and what it refuses.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

const Tensor x = pattern({3, 9}, 1);
const Tensor scales = Tensor::of<float>({3}, {0.01f, 0.05f, 0.25f}),
             zeros = Tensor::of<std::uint8_t>({3}, {0, 128, 7});

TEST(Quantize, works_per_tensor_axis_and_block) {
  const Tensor scale = Tensor::scalar(0.05f), zero = Tensor::scalar<std::int8_t>(3);
  expect_answer(results_of(op::Quantize{.dtype = i8}, {x, scale, zero})[0], numpy::quantize_tensor);
  expect_answer(results_of(op::Quantize{.axis = 0}, {x, scales, zeros})[0], numpy::quantize_axis);
  std::vector<double> blocks = load_all<double>(pattern({3, 3}, 2));
  for (double& block : blocks) block = static_cast<float>(std::abs(block) / 8) + 0.01f;
  Tensor blocked(f32, {3, 3});
  store_all<double>({f32, blocked.dims(), blocked.mutable_data()}, blocks);
  expect_answer(results_of(op::Quantize{.dtype = i16, .axis = 1, .block = 4}, {x, blocked})[0],
                numpy::quantize_blocked);
}

TEST(Quantize, rounds_half_to_even_and_saturates) {
  const Tensor values =
      Tensor::of<float>({8}, {0.5f, 1.5f, -0.5f, -2.5f, 300, -300, INFINITY, NAN});
  const Tensor one = Tensor::scalar(1.0f);
  expect_values(results_of(op::Quantize{.dtype = i8}, {values, one})[0], {8},
                {0, 2, 0, -2, 127, -128, 127, 0});
  expect_values(results_of(op::Quantize{.dtype = u4}, {values, one})[0], {8},
                {0, 2, 0, 0, 15, 0, 15, 0});
  expect_values(results_of(op::Quantize{.dtype = i4}, {values, one})[0], {8},
                {0, 2, 0, -2, 7, -8, 7, 0});
}

TEST(Quantize, makes_eight_bit_floats_with_and_without_saturation) {
  const Tensor values = Tensor::of<float>({5}, {0.3f, 17, 460, 1000, -INFINITY}),
               one = Tensor::scalar(1.0f);
  expect_values(results_of(op::Quantize{.dtype = f8e4m3fn}, {values, one})[0], {5},
                {0.3125, 16, 448, 448, -448});
  expect_values(results_of(op::Quantize{.dtype = f8e4m3fn, .saturate = false}, {values, one})[0],
                {5}, {0.3125, 16, 448, NAN, NAN});
  const Tensor huge = Tensor::of<float>({2}, {1e6f, -1e6f});
  expect_values(results_of(op::Quantize{.dtype = f8e5m2}, {huge, one})[0], {2}, {57344, -57344});
  expect_values(results_of(op::Quantize{.dtype = f8e5m2, .saturate = false}, {huge, one})[0], {2},
                {INFINITY, -INFINITY});
}

TEST(Quantize, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::Quantize{.axis = 1}, {x, scales}),
            "The scale f32[3] of quantize is neither a scalar nor one for each place along axis "
            "(1) of f32[3,9].");
  EXPECT_EQ(refusal_of(op::Quantize{.axis = 0}, {x, scales, Tensor(i8, {3})}),
            "The zero point i8[3] of quantize is not u8 of the shape of its scale f32[3].");
  EXPECT_EQ(refusal_of(op::Quantize{.axis = 1, .block = 4}, {x, Tensor(f32, {3, 2})}),
            "The scale f32[3,2] of quantize is not one for each block of (4) along axis (1) of "
            "f32[3,9].");
  EXPECT_EQ(refusal_of(op::Quantize{.dtype = i64}, {x, scales}), "The op quantize makes no i64.");
}

TEST(Dequantize, agrees_with_onnx_runtime) {
  expect_answer(
      results_of(op::Dequantize{.axis = 0}, {pattern({3, 9}, 1, u8, 100), scales, zeros})[0],
      numpy::dequantize_axis);
}

TEST(DynamicQuantize, agrees_with_onnx_runtime) {
  const auto results = results_of(op::DynamicQuantize{}, {x});
  expect_answer(results[0], numpy::dynamic_quantize_0);
  expect_answer(results[1], numpy::dynamic_quantize_1);
  expect_answer(results[2], numpy::dynamic_quantize_2);
}

TEST(DynamicQuantize, zeros_have_a_scale_of_one) {
  EXPECT_EQ(results_of(op::DynamicQuantize{}, {Tensor(f32, {3})})[1].as<float>()[0], 1);
}

TEST(UnpackBits, begins_with_the_lowest) {
  const Tensor bytes = Tensor::of<std::uint8_t>({2, 2}, {0x21, 0xf8, 0x07, 0xe4});
  const auto unpacked = [&](DType dtype) { return results_of(op::UnpackBits{dtype}, {bytes})[0]; };
  expect_values(unpacked(u4), {2, 4}, {1, 2, 8, 15, 7, 0, 4, 14});
  expect_values(unpacked(i4), {2, 4}, {1, 2, -8, -1, 7, 0, 4, -2});
  expect_values(unpacked(u2), {2, 8}, {1, 0, 2, 0, 0, 2, 3, 3, 3, 1, 0, 0, 0, 1, 2, 3});
  expect_values(unpacked(i2), {2, 8}, {1, 0, -2, 0, 0, -2, -1, -1, -1, 1, 0, 0, 0, 1, -2, -1});
}

TEST(UnpackBits, refuses_what_holds_no_numbers) {
  EXPECT_EQ(refusal_of(op::UnpackBits{i8}, {Tensor(u8, {2})}), "The op unpack_bits makes no i8.");
}

TEST(FakeQuantize, stays_on_the_grid) {
  const Tensor values = Tensor::of<float>({4}, {0.24f, 0.26f, 5, -5}), scale = Tensor::scalar(0.5f);
  const Tensor zero = Tensor::scalar<std::int32_t>(1);
  expect_values(results_of(op::FakeQuantize{.low = 0, .high = 7}, {values, scale, zero})[0], {4},
                {0, 0.5, 3, -0.5});
}

}  // namespace
}  // namespace rlx
