// Rounding errors of long sums.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rlx/ops.hpp"
#include "rlx/runtime.hpp"

namespace rlx {
namespace {

/// The largest error of sums over those axes, as a part of them.
double largest_error(const Shape& shape, const Axes& axes) {
  Graph graph;
  const Value x = graph.input("x", f32, shape);
  graph.output("y", reduce(x, Reduction::sum, axes));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  Tensor values(f32, graph.type(x.id()).dims());
  auto* const data = reinterpret_cast<float*>(values.mutable_data());
  std::fill(data, data + values.elements(), 0.1F);
  const Outputs outputs = program.run({{"x", values}}).value();
  const auto sums = outputs[0].as<float>();
  const double exact =
      static_cast<double>(0.1F) *
      static_cast<double>(values.elements() / static_cast<std::int64_t>(sums.size()));
  double error = 0;
  for (const float sum : sums) error = std::max(error, std::abs(sum / exact - 1));
  return error;
}

// One number after the other 6400 of them are off by 2e-5, and 300,000 by 1e-2.
TEST(NestSums, long_ones_are_as_right_as_short_ones) {
  constexpr double most = 3e-6;
  EXPECT_LT(largest_error({6400, 32}, {0}), most);
  EXPECT_LT(largest_error({1, 80, 80, 24}, {1, 2}), most);
  EXPECT_LT(largest_error({300'007, 3}, {0}), most);
  EXPECT_LT(largest_error({300'007}, {0}), most);
  EXPECT_LT(largest_error({3, 300'007}, {1}), most);
  EXPECT_LT(largest_error({5, 3, 6400, 7}, {0, 2}), most);
  EXPECT_LT(largest_error({3000, 5, 40}, {0, 2}), most);
  EXPECT_LT(largest_error({70, 2, 70, 70}, {0, 2, 3}), most);
}

}  // namespace
}  // namespace rlx
