// Subnormal numbers are kept, unless they are to be flushed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/subnormal_scope.hpp"
#include "rlx/ops.hpp"
#include "rlx/runtime.hpp"

namespace rlx {
namespace {

constexpr float subnormal = 1e-39F;

TEST(SubnormalScope, ends_with_what_was_before) {
  volatile float half = 0.5F, small = subnormal;
  EXPECT_NE(half * small, 0);
  {
    const SubnormalScope kept(false);
    EXPECT_NE(half * small, 0);
    const SubnormalScope flushed(true);
    EXPECT_EQ(half * small, 0);
  }
  EXPECT_NE(half * small, 0);
}

/// A map, a product and a sum of subnormal numbers, large enough for every worker.
Graph small_numbers(std::int64_t rows) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, 256}), w = graph.input("w", f32, {256, 64});
  graph.output("map", x * x + x);
  graph.output("product", matmul(x, w));
  graph.output("sum", reduce(x, Reduction::sum, {1}));
  return graph;
}

/// The largest magnitude of each output.
std::vector<float> largest(CompiledGraph& program, std::int64_t rows) {
  Tensor x(f32, {rows, 256}), w(f32, {256, 64});
  for (Tensor* tensor : {&x, &w}) {
    auto* values = reinterpret_cast<float*>(tensor->mutable_data());
    for (std::int64_t i = 0; i < tensor->elements(); ++i) values[i] = tensor == &x ? 1e-41F : 0.5F;
  }
  const Outputs outputs = program.run({{"x", x}, {"w", w}}).value();
  std::vector<float> found;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    found.push_back(0);
    for (const float value : outputs[i].as<float>())
      found.back() = std::max(found.back(), std::abs(value));
  }
  return found;
}

TEST(Subnormals, are_kept_or_flushed_by_all_workers) {
  constexpr std::int64_t rows = 2000;
  const Graph graph = small_numbers(rows);
  for (const int threads : {1, 2}) {
    Session session(Device::cpu, {.threads = threads});
    for (const bool flush : {false, true}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads, flush " << flush);
      CompileOptions options;
      options.flush_subnormals = flush;
      CompiledGraph program = session.compile(graph, options).value();
      for (const float value : largest(program, rows)) EXPECT_EQ(value == 0, flush);
    }
  }
}

/// What a softmax makes of that below the largest of a row.
float share_of(float below, std::int64_t length) {
  Graph graph;
  graph.output("y", softmax(graph.input("x", f32, {1, length}), {.axis = 1}));
  CompiledGraph program = Session(Device::cpu).compile(graph, {}).value();
  Tensor x(f32, {1, length});
  auto* values = reinterpret_cast<float*>(x.mutable_data());
  std::fill(values, values + length, below);
  values[0] = 0;
  const Outputs outputs = program.run({{"x", x}}).value();
  return outputs[0].as<float>()[static_cast<std::size_t>(length) - 1];
}

TEST(Subnormals, powers_of_a_softmax_are_normal_numbers_or_zero) {
  for (const std::int64_t length : {2, 5, 16, 50}) {
    SCOPED_TRACE(length);
    EXPECT_NEAR(share_of(-87.3F, length) / std::exp(-87.3F), 1, 1e-4);
    for (const float below : {-87.4F, -90.0F, -103.0F, -1000.0F, -INFINITY})
      EXPECT_EQ(share_of(below, length), 0) << below;
    EXPECT_TRUE(std::isnan(share_of(NAN, length)));
  }
}

}  // namespace
}  // namespace rlx
