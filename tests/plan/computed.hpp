// Programs of a device beside the reference evaluation.
#pragma once

#include <gtest/gtest.h>

#include "../passes/same_values.hpp"
#include "rlx/rlx.hpp"

namespace rlx::testing {

/// As programs of the device, with fusion and without, and evaluated node by node.
inline void expect_computed(const Graph& graph, double tolerance = 1e-4) {
  const std::vector<Tensor> inputs = noise_inputs(graph);
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  for (const bool apart : {false, true}) {
    Session session(Device::cpu, {.threads = 2});
    CompiledGraph program = session.compile(graph, {.disable_fusion = apart}).value();
    std::vector<NamedInput> named;
    for (const IoInfo& input : program.inputs())
      named.push_back({input.name, inputs[named.size()]});
    const Outputs found = program.run(named).value();
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const auto a = found[k].as<float>(), b = wanted[k].as<float>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < b.size(); ++i)
        ASSERT_NEAR(a[i], b[i], tolerance) << k << " " << i;
    }
  }
}

}  // namespace rlx::testing
