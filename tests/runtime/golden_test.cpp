// Golden values 5 and 6 of the specification: a small program end to end.
#include <gtest/gtest.h>

#include "rlx/rlx.hpp"

namespace rlx {
namespace {

TEST(Golden, gelu_of_matmul_and_bias) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 4});
  const Value w = graph.param("w", f32, {4, 3});
  const Value b = graph.param("b", f32, {3});
  graph.output("y", gelu(matmul(x, w) + b));

  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  program.set_param("w", std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}).value();
  program.set_param("b", std::vector<float>{0.5f, -0.5f, 0}).value();

  const Outputs outputs = program.run({{"x", std::vector<float>{1, 0, 0, 0, 0, 1, 0, 0}}}).value();
  const std::vector<float> expected = {1.399f, -0.154f, 0, 0.346f, 0.346f, 0};
  const std::span<const float> y = outputs["y"].as<float>();
  ASSERT_EQ(y.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y[i], expected[i], 0.01) << i;

  const Outputs zeros = program.run({{"x", std::vector<float>(8, 0.0f)}}).value();
  EXPECT_NEAR(zeros["y"].as<float>()[0], 0.346f, 0.01);
}

TEST(Golden, a_small_matmul_runs_on_an_available_device) {
  Graph graph;
  graph.output("y", matmul(graph.input("a", f32, {4, 4}), graph.input("b", f32, {4, 4})));
  Session session(Device::automatic);
  const CompiledGraph program = session.compile(graph).value();
  EXPECT_TRUE(is_available(program.device()));
  EXPECT_EQ(program.device(), session.device());
}

}  // namespace
}  // namespace rlx
