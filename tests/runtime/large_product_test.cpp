// Products whose first operand comes from memory: workers share out its rows in parts that stay in
// the cache. The parts must meet without gap or overlap.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/rlx.hpp"

namespace rlx {
namespace {

constexpr std::int64_t depth = 1024, columns = 256;

std::vector<float> product(const std::vector<float>& x, int threads) {
  Tensor weights(f32, {depth, columns});
  auto* numbers = reinterpret_cast<float*>(weights.mutable_data());
  for (std::int64_t i = 0; i < depth * columns; ++i)
    numbers[i] = static_cast<float>((i * 7 + i / columns) % 23) * 0.01f - 0.1f;
  Graph graph;
  const auto rows = static_cast<std::int64_t>(x.size()) / depth;
  const Value w = graph.param("w", f32, {depth, columns}, weights);
  graph.output("y", matmul(graph.input("x", f32, {rows, depth}), w));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, {.threads = threads}).value();
  const Outputs outputs = program.run({{"x", x}}).value();
  const auto y = outputs["y"].as<float>();
  return {y.begin(), y.end()};
}

TEST(LargeProduct, parts_of_rows_meet) {
  constexpr std::int64_t rows = 2051, half = 1025;
  std::vector<float> x(rows * depth);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((i * 5 + i / depth) % 19) * 0.1f - 0.9f;
  const std::vector<float> above(x.begin(), x.begin() + half * depth);
  const std::vector<float> below(x.begin() + half * depth, x.end());
  std::vector<float> expected = product(above, 1);
  const std::vector<float> rest = product(below, 1);
  expected.insert(expected.end(), rest.begin(), rest.end());
  for (const int threads : {1, 2}) {
    const std::vector<float> made = product(x, threads);
    ASSERT_EQ(made.size(), expected.size());
    for (std::size_t i = 0; i < made.size(); ++i)
      ASSERT_LE(std::abs(made[i] - expected[i]), 1e-3f) << i << " with " << threads;
  }
}

}  // namespace
}  // namespace rlx
