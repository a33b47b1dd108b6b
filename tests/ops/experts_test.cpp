// Routers and grouped matmuls: values by hand, a layer against its dense equivalent, refusals, and
// the policy that keeps experts in memory.
#include "rlx/experts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ops/known_answers.hpp"

namespace rlx {
namespace {

using testing::expect_near;
using testing::expect_tensor;
using ::testing::HasSubstr;
using testing::inferred;
using testing::refusal;
using testing::run;
using Texts = std::vector<std::string>;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

template <class T>
Tensor tensor(Dims dims, std::vector<T> values) {
  return Tensor::of<T>(std::move(dims), std::span<const T>(values));
}

TEST(moe_router, weighs_by_the_softmax_over_all_or_over_the_chosen) {
  const Tensor logits =
      tensor<float>({1, 4}, {0.0F, std::log(2.0F), std::log(5.0F), std::log(2.0F)});
  const auto all = run(op::MoeRouter{.k = 2}, {logits});
  expect_tensor<std::int32_t>(all[0], {1, 2}, {2, 1});
  expect_near<float>(all[1], {1, 2}, {0.5F, 0.2F}, 1e-6);
  const auto first = run(op::MoeRouter{.k = 2, .choose_first = true}, {logits});
  expect_near<float>(first[1], {1, 2}, {5.0F / 7, 2.0F / 7}, 1e-6);
  const auto renormalized = run(op::MoeRouter{.k = 2, .renormalize = true}, {logits});
  expect_near<float>(renormalized[1], {1, 2}, {5.0F / 7, 2.0F / 7}, 1e-6);
}

TEST(moe_router, prefers_the_lower_expert_on_ties_and_nan_to_numbers) {
  const auto ties = run(op::MoeRouter{.k = 3}, {tensor<float>({2, 4}, {1, 3, 3, 1,  //
                                                                       0.0F, -0.0F, 0, 0})});
  expect_tensor<std::int32_t>(ties[0], {2, 3}, {1, 2, 0, 0, 1, 2});
  const auto odd = run(op::MoeRouter{.k = 2}, {tensor<float>({1, 3}, {5, nan, 7})});
  expect_tensor<std::int32_t>(odd[0], {1, 2}, {1, 2});
  EXPECT_TRUE(std::isnan(odd[1].as<float>()[0]) && std::isnan(odd[1].as<float>()[1]));
}

TEST(moe_router, infers_and_refuses) {
  EXPECT_EQ(inferred(op::MoeRouter{.k = 2}, {{f16, {"t", 8}}}), (Texts{"i32[t,2]", "f16[t,2]"}));
  EXPECT_EQ(refusal(op::MoeRouter{.k = 9}, {{f32, {3, 8}}}),
            "The k (9) of moe_router lies outside 1..8, the experts of f32[3,8].");
  EXPECT_THAT(refusal(op::MoeRouter{.k = 0}, {{f32, {3, 8}}}), HasSubstr("The k (0)"));
  EXPECT_EQ(refusal(op::MoeRouter{}, {{i32, {3, 8}}}),
            "The op moe_router takes floats [..., E], not i32[3,8].");
}

TEST(grouped_matmul, takes_each_row_times_the_matrix_of_its_expert) {
  const Tensor x = tensor<float>({2, 2}, {1, 2, 3, 4});
  const Tensor w = tensor<float>({2, 2, 1}, {1, 10, 100, 1000});
  const auto own = run(op::GroupedMatmul{}, {x, w, tensor<std::int32_t>({2}, {1, 0})});
  expect_tensor<float>(own[0], {2, 1}, {2100, 43});
  const auto shared = run(op::GroupedMatmul{}, {x, w, tensor<std::int64_t>({2, 2}, {0, 1, 1, 1})});
  expect_tensor<float>(shared[0], {2, 2, 1}, {21, 2100, 4300, 4300});
}

TEST(grouped_matmul, infers_and_refuses) {
  EXPECT_EQ(inferred(op::GroupedMatmul{}, {{f32, {"t", 4}}, {f32, {8, 4, 6}}, {i32, {"t", 2}}}),
            Texts{"f32[t,2,6]"});
  EXPECT_EQ(refusal(op::GroupedMatmul{}, {{f32, {5, 4}}, {f32, {8, 3, 6}}, {i32, {5}}}),
            "The operands of grouped_matmul do not fit: x f32[5,4], weights f32[8,3,6], experts "
            "i32[5].");
  EXPECT_EQ(refusal(op::GroupedMatmul{}, {{f32, {5, 4}}, {f32, {8, 4, 6}}, {f32, {5}}}),
            "The op grouped_matmul takes i32 or i64 as experts, not f32[5].");
  const auto outside = evaluate(
      op::GroupedMatmul{}, std::vector{tensor<float>({1, 1}, {1}), tensor<float>({2, 1, 1}, {1, 1}),
                                       tensor<std::int32_t>({1}, {2})});
  ASSERT_FALSE(outside.ok());
  EXPECT_THAT(outside.error().message,
              HasSubstr("The expert (2) of a grouped matmul lies outside the 2 that there are."));
}

// With k = E a layer is the weighted sum over all experts.
TEST(moe_feed_forward, is_the_weighted_sum_over_its_experts) {
  const std::int64_t tokens = 3, experts = 2, width = 4, inner = 5;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto noise = [&](Dims dims) {
    std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
    for (float& value : values) value = normal(random);
    return Tensor::of<float>(std::move(dims), std::span<const float>(values));
  };
  const Tensor x = noise({tokens, width}), logits = noise({tokens, experts});
  const std::vector<Tensor> weights{noise({experts, width, inner}), noise({experts, width, inner}),
                                    noise({experts, inner, width})};
  Graph layer;
  const Value lx = layer.input("x", f32, {tokens, width});
  const Value ll = layer.input("logits", f32, {tokens, experts});
  layer.output("y", moe_feed_forward(lx, ll, layer.constant(weights[0]), layer.constant(weights[1]),
                                     layer.constant(weights[2]), {.k = experts}));
  Graph dense;
  const Value dx = dense.input("x", f32, {tokens, width});
  const Value dl = dense.input("logits", f32, {tokens, experts});
  Value total = dense.constant(f32, 0);
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto matrix = [&](const Tensor& all) {
      return squeeze(slice(dense.constant(all), {e, 0, 0}, {e + 1, all.dims()[1], all.dims()[2]}),
                     {0});
    };
    const Value hidden = silu(matmul(dx, matrix(weights[0]))) * matmul(dx, matrix(weights[1]));
    total =
        total + matmul(hidden, matrix(weights[2])) * slice(softmax(dl), {0, e}, {tokens, e + 1});
  }
  dense.output("y", total);
  const std::vector<Tensor> inputs{x, logits};
  const Tensor actual = evaluate_graph(layer, inputs).value()[0];
  const Tensor expected = evaluate_graph(dense, inputs).value()[0];
  expect_near<float>(actual, {tokens, width},
                     {expected.as<float>().begin(), expected.as<float>().end()}, 2e-5);
}

/// Draws experts by Zipf's law; `shift` turns which are the popular ones.
std::vector<std::uint32_t> zipf(std::mt19937& random, std::size_t experts, double exponent,
                                std::size_t shift, std::size_t count) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < experts; ++i)
    weights.push_back(std::pow(static_cast<double>(i + 1), -exponent));
  std::discrete_distribution<std::size_t> rank(weights.begin(), weights.end());
  std::vector<std::uint32_t> chosen;
  for (std::size_t i = 0; i < count; ++i)
    chosen.push_back(static_cast<std::uint32_t>((rank(random) * 37 + shift) % experts));
  return chosen;
}

TEST(residency_policy, serves_a_skewed_stream_from_thirty_percent_of_the_experts) {
  constexpr std::size_t experts = 64, warm_up = 50, runs = 1000, rows = 32;
  std::mt19937 random(1);
  ExpertResidencyPolicy policy({.experts = experts, .resident = 19, .decay = 0.98});
  std::size_t resident = 0, served = 0;
  for (std::size_t r = 0; r < runs; ++r) {
    // Half way other experts become the popular ones.
    const std::size_t shift = r < runs / 2 ? 0 : 29;
    const std::vector<std::uint32_t> chosen = zipf(random, experts, 2.0, shift, rows);
    const bool counts = r % (runs / 2) >= warm_up;
    for (const std::uint32_t expert : chosen) {
      served += counts ? 1 : 0;
      resident += counts && policy.mask()[expert] ? 1 : 0;
    }
    const ExpertMask& mask = policy.observe(chosen);
    ASSERT_EQ(std::count(mask.begin(), mask.end(), true), 19);
  }
  EXPECT_GE(static_cast<double>(resident) / static_cast<double>(served), 0.95);
}

TEST(residency_policy, forgets_and_is_reluctant_to_swap) {
  ExpertResidencyPolicy policy({.experts = 3, .resident = 1, .decay = 0.5, .reluctance = 1.5});
  EXPECT_EQ(policy.mask(), (ExpertMask{true, false, false}));
  EXPECT_EQ(policy.observe(std::vector<std::uint32_t>{1, 1, 0}), (ExpertMask{false, true, false}));
  // Expert 2 is ahead, 2 against 1 + 0.5 * 2 = 2 times 1.5, and later it is not.
  EXPECT_EQ(policy.observe(std::vector<std::uint32_t>{2, 2, 1}), (ExpertMask{false, true, false}));
  EXPECT_EQ(policy.observe(std::vector<std::uint32_t>{2, 2, 9}), (ExpertMask{false, false, true}));
}

TEST(residency_policy, refuses_options_outside_their_ranges) {
  const auto message = [](ExpertResidencyPolicy::Options options) -> std::string {
    try {
      ExpertResidencyPolicy policy(options);
      return "accepted";
    } catch (const Exception& exception) {
      return exception.error().message;
    }
  };
  EXPECT_EQ(message({.experts = 4, .resident = 5}), "The resident experts (5) lie outside 0..4.");
  EXPECT_EQ(message({.experts = 0}), "A policy wants at least one expert, not (0).");
  EXPECT_EQ(message({.decay = 1.5}), "The decay (1.5) lies outside 0..1.");
  EXPECT_EQ(message({.reluctance = 0.5}), "The reluctance (0.5) lies below 1.");
}

}  // namespace
}  // namespace rlx
