// Softmax and norms against NumPy and ONNX Runtime, and what they refuse.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

const Tensor x = pattern({2, 4, 5}, 1);

TEST(Softmax, agrees_with_onnx_runtime) {
  expect_answer(results_of(op::Softmax{.axis = 1}, {x})[0], numpy::softmax);
  expect_answer(results_of(op::LogSoftmax{}, {x})[0], numpy::log_softmax);
  expect_answer(results_of(op::Hardmax{.axis = 1}, {x})[0], numpy::hardmax);
}

TEST(Softmax, rows_of_minus_infinity_are_nan_and_large_numbers_are_fine) {
  const float infinity = INFINITY;
  const Tensor rows = Tensor::of<float>({3, 2}, {-infinity, -infinity, 1000, 1000, -infinity, 3});
  expect_values(results_of(op::Softmax{}, {rows})[0], {3, 2}, {NAN, NAN, 0.5, 0.5, 0, 1});
}

TEST(Softmax, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::Softmax{.axis = 5}, {Tensor(f32, {2, 3})}),
            "Axis (5) is outside the rank (2) of f32[2,3].");
  EXPECT_EQ(refusal_of(op::Softmax{}, {Tensor(i32, {2, 3})}),
            "The op softmax takes floats, not i32[2,3].");
}

TEST(Norms, agree_with_onnx_runtime) {
  const Tensor c = pattern({4}, 2), d = pattern({4}, 3);
  expect_answer(results_of(op::LayerNorm{.axis = 1, .epsilon = 1e-3},
                           {x, pattern({4, 5}, 2), pattern({4, 5}, 3)})[0],
                numpy::layer_norm);
  expect_answer(results_of(op::RmsNorm{.epsilon = 1e-3}, {x, pattern({5}, 2)})[0], numpy::rms_norm);
  expect_answer(results_of(op::GroupNorm{.groups = 2, .epsilon = 1e-3}, {x, c, d})[0],
                numpy::group_norm);
  expect_answer(results_of(op::InstanceNorm{.epsilon = 1e-3}, {x, c, d})[0], numpy::instance_norm,
                1e-4);
  const Tensor variance = Tensor::of<float>({4}, {0.25f, 1.25f, 0.75f, 1.0f});
  expect_answer(results_of(op::BatchNorm{.epsilon = 1e-3}, {x, c, d, pattern({4}, 4), variance})[0],
                numpy::batch_norm, 1e-4);
  expect_answer(results_of(op::LpNorm{.axis = 1, .p = 1}, {x})[0], numpy::lp_norm);
  const op::LocalResponseNorm lrn{.size = 3, .alpha = 0.5, .beta = 0.6, .bias = 1.5};
  expect_answer(results_of(lrn, {x.reshaped({2, 4, 5, 1})})[0], numpy::lrn);
}

TEST(Norms, survive_a_large_mean) {
  // The mean of squares minus the squared mean would lose every digit here.
  const Tensor far = Tensor::of<float>({4}, {10000.0f, 10001.0f, 10002.0f, 10003.0f});
  expect_values(results_of(op::LayerNorm{.epsilon = 0}, {far})[0], {4},
                {-1.34164079, -0.447213595, 0.447213595, 1.34164079});
}

TEST(Norms, a_row_of_zeros_stays_zero_under_lp_norm) {
  expect_values(results_of(op::LpNorm{}, {Tensor(f32, {1, 3})})[0], {1, 3}, {0, 0, 0});
}

TEST(Norms, refuse_with_sentences) {
  const Tensor c(f32, {4});
  EXPECT_EQ(refusal_of(op::LayerNorm{}, {x, c}),
            "Shapes [2,4,5] and [4] do not broadcast: dim (5) against (4).");
  EXPECT_EQ(refusal_of(op::LayerNorm{}, {Tensor(f32, {1, 5}), Tensor(f32, {2, 5})}),
            "The operand f32[2,5] of layer_norm does not broadcast to f32[1,5].");
  EXPECT_EQ(refusal_of(op::GroupNorm{.groups = 3}, {x, c, c}),
            "The channels (4) of group_norm are no multiple of its groups (3).");
  EXPECT_EQ(refusal_of(op::InstanceNorm{}, {x, Tensor(f32, {5}), c}),
            "The operand f32[5] of instance_norm is not one value for each channel of f32[2,4,5].");
  EXPECT_EQ(refusal_of(op::LpNorm{.p = 3}, {x}), "The op lp_norm takes p of 1 or 2, not (3).");
}

}  // namespace
}  // namespace rlx
