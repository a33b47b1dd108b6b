// Random ops: the published test vectors of Philox4x32-10, moments of the distributions;
// determinants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/known_answers.hpp"
#include "ops/philox.hpp"

namespace rlx {
namespace {

using testing::expect_near;
using testing::refusal;
using testing::run;
using Words = std::array<std::uint32_t, 4>;

// From kat_vectors of the Random123 distribution.
TEST(philox, gives_the_published_words) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(random_bits, are_the_words_of_consecutive_counters) {
  const Tensor bits = run(op::RandomBits{{6}, 0, 0}, {})[0];
  const Words second = philox({1, 0, 0, 0}, {0, 0});
  testing::expect_tensor<std::uint32_t>(
      bits, {6}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, second[0], second[1]});
  testing::expect_tensor<std::uint32_t>(run(op::RandomBits{{2}, 0, 1}, {})[0], {2},
                                        {second[0], second[1]});
}

template <class T>
std::pair<double, double> mean_and_variance(const Tensor& tensor) {
  double sum = 0, squares = 0;
  for (const T value : tensor.as<T>()) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(tensor.elements());
  return {sum / count, squares / count - sum / count * (sum / count)};
}

TEST(random_uniform, fills_its_interval_evenly) {
  const Tensor sample = run(op::RandomUniform{f32, {100, 100}, -1, 3, 5}, {})[0];
  const auto [mean, variance] = mean_and_variance<float>(sample);
  EXPECT_NEAR(mean, 1, 0.05);
  EXPECT_NEAR(variance, 16.0 / 12, 0.05);
  EXPECT_GE(std::ranges::min(sample.as<float>()), -1);
  EXPECT_LT(std::ranges::max(sample.as<float>()), 3);
}

TEST(random_uniform, never_rounds_up_to_the_open_end) {
  const Tensor sample = run(op::Cast{f32}, run(op::RandomUniform{bf16, {20000}, 1, 2, 9}, {}))[0];
  EXPECT_EQ(std::ranges::max(sample.as<float>()), 2 - 0x1p-7f);
  EXPECT_EQ(refusal(op::RandomUniform{f32, {2}, 1, 0, 9}, {}),
            "The interval [1, 0) of random_uniform holds no numbers.");
  EXPECT_EQ(refusal(op::RandomUniform{i32, {2}, 0, 1, 9}, {}),
            "The op random_uniform makes f32, f64, f16 and bf16, not i32.");
}

TEST(random_normal, has_its_mean_and_deviation) {
  const auto [mean, variance] =
      mean_and_variance<double>(run(op::RandomNormal{f64, {20000}, 2, 0.5, 5}, {})[0]);
  EXPECT_NEAR(mean, 2, 0.02);
  EXPECT_NEAR(variance, 0.25, 0.01);
}

TEST(determinant, eliminates_with_pivots) {
  const Tensor x = Tensor::of<float>({3, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0, 2, 4, 1, 2});
  expect_near<float>(run(op::Determinant{}, {x})[0], {3}, {-2, -1, 0}, 1e-6);
  EXPECT_EQ(refusal(op::Determinant{}, {{f32, {2, 3}}}),
            "The op determinant wants square matrices, not f32[2,3].");
}

}  // namespace
}  // namespace rlx
