// Weights that are nothing beside others.
#include "plan/negligible.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "plan/weight_pieces.hpp"
#include "rlx/ops.hpp"
#include "rlx/runtime.hpp"

namespace rlx::plan {
namespace {

TEST(Negligible, is_what_lies_far_below_the_largest) {
  constexpr float subnormal = 1e-40F, tiny = 1e-32F, ordinary = 0.5F;
  const auto has = [](std::vector<float> values) { return has_negligible(values); };
  EXPECT_TRUE(has({ordinary, subnormal}));
  EXPECT_TRUE(has({-tiny, 0, -ordinary}));
  EXPECT_TRUE(has({0x1p-36F, std::numeric_limits<float>::denorm_min()}));
  EXPECT_FALSE(has({}));
  EXPECT_FALSE(has({ordinary, 0, -0.0F, 0x1p-100F}));
  EXPECT_FALSE(has({subnormal, tiny, 0x1p-37F})) << "nothing is larger by enough";
  EXPECT_FALSE(has({subnormal, std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(has({subnormal, std::numeric_limits<float>::quiet_NaN()}));
}

TEST(Negligible, is_dropped_and_nothing_else) {
  std::array<float, 6> values{1e-40F, -1e-31F, 0x1p-100F, 3, -0x1p-99F, 0};
  drop_negligible(values);
  EXPECT_EQ(values, (std::array<float, 6>{0, 0, 0x1p-100F, 3, -0x1p-99F, 0}));
  std::array<float, 2> small{1e-40F, 1e-38F};
  drop_negligible(small);
  EXPECT_EQ(small, (std::array<float, 2>{1e-40F, 1e-38F}));
}

TEST(Negligible, values_that_have_none_are_not_copied) {
  const Tensor plain = Tensor::of<float>({3}, {1, 2, 0}),
               mixed = Tensor::of<float>({2}, {1, 1e-40F});
  EXPECT_EQ(without_negligible(plain).data(), plain.data());
  EXPECT_EQ(without_negligible(mixed).as<float>()[1], 0);
  EXPECT_EQ(mixed.as<float>()[1], 1e-40F);
}

/// x * w for a weight w and the identity x, whose result is w as the program keeps it.
std::vector<float> weights_of_product(std::span<const float> w, bool exact) {
  Graph graph;
  const auto k = static_cast<std::int64_t>(w.size());
  const Value x = graph.input("x", f32, {1, k});
  const Value columns = graph.constant(Tensor::of<float>({k, 1}, w));
  graph.output("y", matmul(x, columns));
  CompileOptions options;
  options.exact = exact;
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, options).value();
  std::vector<float> results;
  for (std::int64_t i = 0; i < k; ++i) {
    Tensor unit(f32, {1, k});
    reinterpret_cast<float*>(unit.mutable_data())[i] = 1;
    results.push_back(program.run({{"x", unit}}).value()[0].as<float>()[0]);
  }
  return results;
}

TEST(Negligible, weights_of_products_are_dropped_but_not_where_all_are_small_and_not_with_exact) {
  const std::vector<float> mixed{2, 1e-40F, -1, 1e-33F}, small{1e-40F, 0, 1e-38F};
  EXPECT_EQ(weights_of_product(mixed, false), (std::vector<float>{2, 0, -1, 0}));
  EXPECT_EQ(weights_of_product(mixed, true), mixed);
  EXPECT_EQ(weights_of_product(small, false), small);
}

TEST(Negligible, weights_are_looked_at_as_wholes_whatever_the_pieces_that_they_are_packed_in) {
  constexpr std::int64_t k = 10'000, n = 64;
  Tensor source(f32, {k, n});
  auto* const values = reinterpret_cast<float*>(source.mutable_data());
  std::fill(values, values + 9'000 * n, 1e-39F);
  std::fill(values + 9'000 * n, values + k * n, 1.0F);
  WeightPlan weight;
  weight.packed = weight.drops_negligible = true;
  weight.layout = {n, k, n, f32};
  weight.k_extents = {k}, weight.k_strides = {n}, weight.n_stride = 1;
  std::vector<float> packed(static_cast<std::size_t>(weight.layout.elements()));
  pack_panels(weight, source, 0, 0, 1, reinterpret_cast<std::byte*>(packed.data()));
  EXPECT_EQ(std::ranges::count(packed, 0.0F), 9'000 * n);
  EXPECT_EQ(std::ranges::count(packed, 1.0F), 1'000 * n);
}

TEST(Negligible, what_maps_or_outputs_read_is_kept) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 2}), w = graph.input("w", f32, {2, 2});
  const Value b = graph.constant(Tensor::of<float>({2}, {1, 1e-40F}));
  graph.output("map", x * b);
  graph.output("product", matmul(x, w) + b);
  graph.output("constant", b);
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  Tensor ones(f32, {64, 2});
  auto* const values = reinterpret_cast<float*>(ones.mutable_data());
  std::fill(values, values + ones.elements(), 1.0F);
  const Outputs results = program.run({{"x", ones}, {"w", Tensor(f32, {2, 2})}}).value();
  for (const char* name : {"map", "product", "constant"})
    EXPECT_EQ(results[name].as<float>()[1], 1e-40F) << name;
}

}  // namespace
}  // namespace rlx::plan
