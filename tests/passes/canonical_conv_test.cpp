// Convolutions in the form that regions want.
#include "same_values.hpp"

namespace rlx::testing {
namespace {

struct Scaled {
  Graph graph;
  Graph made;
};

Scaled scaled(std::int64_t channels, const Dims& weights, const op::Conv& conv, bool biased) {
  Scaled result;
  const Value x = result.graph.input("x", f32, {Dim(2), Dim(channels), Dim(5), Dim(6)});
  const Value w = weight(result.graph, to_shape(weights), 3);
  const Value bias = biased ? weight(result.graph, {Dim(weights[0])}, 4) : Value();
  result.graph.output("y", rlx::conv(x, w, conv, bias));
  result.made = passes::canonicalise(result.graph).value();
  expect_same_values(result.graph, result.made, 1e-6);
  return result;
}

TEST(CanonicalConv, one_weight_for_each_channel_scales_it) {
  for (const bool biased : {false, true}) {
    const Scaled s = scaled(7, {7, 1, 1, 1}, {.groups = 7}, biased);
    EXPECT_EQ(count<op::Conv>(s.made), 0);
    EXPECT_EQ(count<op::Mul>(s.made), 1);
  }
}

TEST(CanonicalConv, others_stay_convolutions) {
  for (const auto& [weights, conv] :
       std::vector<std::pair<Dims, op::Conv>>{{{7, 7, 1, 1}, {}},
                                              {{14, 1, 1, 1}, {.groups = 7}},
                                              {{7, 1, 1, 2}, {.groups = 7}},
                                              {{7, 1, 1, 1}, {.strides = {2, 1}, .groups = 7}},
                                              {{7, 1, 1, 1}, {.pad_low = {0, 1}, .groups = 7}},
                                              {{7, 1, 1, 1}, {.pad_high = {1, 0}, .groups = 7}}})
    EXPECT_EQ(count<op::Conv>(scaled(7, weights, conv, false).made), 1);
}

}  // namespace
}  // namespace rlx::testing
