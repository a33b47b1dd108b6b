// What every test of a rewrite asks: the graph that a pass made gives the values of the one before.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "../ops/sample_inputs.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"

namespace rlx::testing {

struct NoiseRange {
  double low = -1, high = 1;
  std::uint32_t seed = 9;
};

/// A constant of such noise.
inline Value weight(Graph& graph, Shape shape, std::uint32_t seed) {
  return graph.constant(noise(std::move(shape), seed));
}

/// How many nodes of an op the outputs are made of.
template <class T>
int count(const Graph& graph) {
  const Graph live = passes::drop_dead(graph).value();
  return static_cast<int>(
      std::ranges::count_if(live.nodes(), [](const Node& node) { return node.op.is<T>(); }));
}

/// The axes of each reduction, in the order of the nodes.
inline std::vector<Axes> reductions_of(const Graph& graph) {
  std::vector<Axes> all;
  for (const Node& node : graph.nodes()) {
    if (const auto* const reduce = node.op.as<op::Reduce>()) all.push_back(reduce->axes);
  }
  return all;
}

/// A tensor of noise for each input of the graph, in order.
inline std::vector<Tensor> noise_inputs(const Graph& graph, const NoiseRange& range = {}) {
  std::mt19937 generator(range.seed);
  std::vector<Tensor> inputs;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Input>())
      inputs.push_back(noise(node.results[0], range.low, range.high, generator));
  }
  return inputs;
}

/// All f32 outputs of `made` on noise are those of `graph`, but for `absolute` + `relative` *
/// |wanted|.
inline void expect_same_values(const Graph& graph, const Graph& made, double absolute,
                               double relative = 0, const NoiseRange& range = {}) {
  const std::vector<Tensor> inputs = noise_inputs(graph, range);
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  const std::vector<Tensor> found = evaluate_graph(made, inputs).value();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    ASSERT_EQ(found[k].dims(), wanted[k].dims()) << "output " << k;
    const auto a = found[k].as<float>(), b = wanted[k].as<float>();
    for (std::size_t i = 0; i < b.size(); ++i)
      EXPECT_NEAR(a[i], b[i], absolute + relative * std::abs(b[i]))
          << "output " << k << " at " << i;
  }
}

}  // namespace rlx::testing
