// Uses the installed rlx as its users do; exit code 0 when it answers rightly.
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <rlx/rlx.hpp>

namespace {

/// y = gelu(x w + b) with the first three rows of w the identity and its last row zero.
std::vector<float> answer() {
  rlx::Graph graph;
  auto x = graph.input("x", rlx::f32, {2, 4});
  auto w = graph.param("w", rlx::f32, {4, 3});
  auto b = graph.param("b", rlx::f32, {3});
  graph.output("y", rlx::gelu(rlx::matmul(x, w) + b));

  rlx::Session session(rlx::Device::automatic);
  auto program = session.compile(graph).value();
  program.set_param("w", std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}).value();
  program.set_param("b", std::vector<float>{0.5f, -0.5f, 0}).value();
  const std::vector<float> input = {1, 0, 0, 0, 0, 1, 0, 0};
  const auto outputs = program.run({{"x", input}}).value();
  const auto y = outputs["y"].as<float>();
  return {y.begin(), y.end()};
}

}  // namespace

int main() {
  try {
    const std::vector<float> expected = {1.399f, -0.154f, 0, 0.346f, 0.346f, 0};
    const auto y = answer();
    bool right = y.size() == expected.size();
    for (std::size_t i = 0; right && i < y.size(); ++i) {
      right = std::abs(y[i] - expected[i]) < 1e-3f;
    }
    std::puts(right ? "rlx answers rightly." : "rlx answers wrongly.");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
