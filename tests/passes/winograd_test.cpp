// Convolutions by Winograd's points: the same values, only where they may and where it is faster.
#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

struct Case {
  Dims image, filter;  ///< [N, H, W, C], [3, 3, C, K]
  op::Conv conv;
};

Graph convolution(const Case& c) {
  Graph graph;
  std::mt19937 generator(3);
  const Type w{f32, Shape(c.filter.begin(), c.filter.end())};
  const Value x = graph.input("x", f32, Shape(c.image.begin(), c.image.end()));
  op::Conv conv = c.conv;
  conv.channels_last = true;
  graph.output("y", graph.add_one(conv, {x, graph.constant(testing::noise(w, -1, 1, generator))}));
  return graph;
}

bool always(const Node&, const Graph&, const Graph&) { return true; }

TEST(Winograd, GivesTheDirectSumsValues) {
  const Case cases[] = {
      {{1, 8, 8, 3}, {3, 3, 3, 5}, {.pad_low = {1, 1}, .pad_high = {1, 1}}},
      {{2, 7, 5, 4}, {3, 3, 4, 18}, {}},
      {{1, 3, 3, 2}, {3, 3, 2, 1}, {}},
      {{1, 6, 9, 2}, {3, 3, 2, 3}, {.pad_low = {0, 2}, .pad_high = {1, 0}}},
      {{1, 1, 1, 2}, {3, 3, 2, 3}, {.pad_low = {1, 1}, .pad_high = {1, 1}}},
  };
  for (const Case& c : cases) {
    const Graph direct = convolution(c);
    const Graph points = passes::winograd(direct, always).value();
    ASSERT_EQ(testing::count<op::Conv>(points), 0);
    ASSERT_EQ(points.type(points.outputs()[0].value), direct.type(direct.outputs()[0].value));
    SCOPED_TRACE(print(direct));
    testing::expect_same_values(direct, points, 2e-5);
  }
}

TEST(Winograd, LeavesWhatItDoesNotFit) {
  const Dims image{1, 8, 8, 4}, filter{3, 3, 4, 4};
  const Case cases[] = {
      {image, filter, {.strides = {2, 2}}},
      {image, filter, {.strides = {1, 2}}},
      {image, filter, {.dilations = {2, 2}}},
      {image, {3, 3, 2, 4}, {.groups = 2}},
      {image, {5, 5, 4, 4}, {}},
      {image, {3, 1, 4, 4}, {}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(testing::count<op::Conv>(passes::winograd(convolution(c), always).value()), 1);
}

TEST(Winograd, LeavesFiltersThatRunsMake) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 8, 8, 4}), w = graph.input("w", f32, {3, 3, 4, 4});
  graph.output("y", graph.add_one(op::Conv{.channels_last = true}, {x, w}));
  EXPECT_EQ(testing::count<op::Conv>(passes::winograd(graph, always).value()), 1);
}

TEST(Winograd, AsksWhichIsFaster) {
  const Graph direct = convolution({{1, 8, 8, 3}, {3, 3, 3, 5}, {}});
  int asked = 0;
  const auto never = [&](const Node& node, const Graph& first, const Graph& second) {
    ++asked;
    EXPECT_TRUE(node.op.is<op::Conv>());
    EXPECT_EQ(testing::count<op::Conv>(first), 1);
    EXPECT_EQ(testing::count<op::Conv>(second), 0);
    return false;
  };
  EXPECT_EQ(testing::count<op::Conv>(passes::winograd(direct, never).value()), 1);
  EXPECT_EQ(asked, 1);
}

/// A layer that every model of times finds faster by points, on the device.
TEST(Winograd, ProgramsWithAndWithoutAgree) {
  Graph graph;
  std::mt19937 generator(5);
  const Type type{f32, {96, 96, 3, 3}};
  const Value x = graph.input("x", f32, {1, 96, 31, 30});
  const Value w = graph.constant(testing::noise(type, -0.1, 0.1, generator));
  graph.output("y", relu(conv(x, w, {.pad_low = {1, 1}, .pad_high = {1, 1}})));
  Session session(Device::cpu);
  auto fast = session.compile(graph).value();
  auto exact = session.compile(graph, {.exact = true}).value();
  EXPECT_EQ(fast.stage_text("mir").value().find("conv("), std::string::npos);
  EXPECT_NE(exact.stage_text("mir").value().find("conv("), std::string::npos);
  const auto of_memory = [](const CompiledGraph& program) {
    std::string text;
    const Explanation explained = program.explain().value();
    for (const Explanation::Claim& claim : explained.claims)
      if (claim.op == "memory") text += claim.reason;
    return text;
  };
  // 96 * 96 * 4 bytes for each of 16 points, and of 9 taps.
  EXPECT_NE(of_memory(fast).find("are 0.6 MB, and would be 0.3 MB"), std::string::npos)
      << of_memory(fast);
  EXPECT_EQ(of_memory(exact), "");
  const Tensor image = testing::noise({f32, {1, 96, 31, 30}}, -1, 1, generator);
  const Outputs a = fast.run({{"x", image}}).value(), b = exact.run({{"x", image}}).value();
  for (std::size_t i = 0; i < a[0].as<float>().size(); ++i)
    ASSERT_NEAR(a[0].as<float>()[i], b[0].as<float>()[i], 2e-5) << i;
}

}  // namespace
}  // namespace rlx
