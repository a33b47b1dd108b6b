// Concatenations that begin alike are made of each other.
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

/// How many parts each concatenation has, in the order of the nodes.
std::vector<std::size_t> parts_of(const Graph& graph) {
  std::vector<std::size_t> parts;
  for (const Node& node : graph.nodes())
    if (node.op.is<op::Concat>()) parts.push_back(node.inputs.size());
  return parts;
}

std::vector<std::size_t> nested(const Graph& graph) {
  const Graph made = passes::nest_concats(graph).value();
  testing::expect_same_values(graph, made, 0);
  return parts_of(made);
}

TEST(NestConcats, joins_what_another_one_joins_already) {
  Graph graph;
  Values layers{graph.input("x", f32, {2, 3, 4})};
  for (int i = 0; i < 4; ++i) {
    const Value all = layers.size() == 1 ? layers[0] : concat(layers, i % 2 == 0 ? 1 : -2);
    layers.push_back(reduce(sin(all), Reduction::sum, {1}, true));
  }
  graph.output("y", concat(layers, 1));
  EXPECT_EQ(parts_of(graph), (std::vector<std::size_t>{2, 3, 4, 5}));
  EXPECT_EQ(nested(graph), (std::vector<std::size_t>{2, 2, 2, 2}));
}

TEST(NestConcats, needs_the_same_beginning_along_the_same_axis) {
  Graph graph;
  const Value a = graph.input("a", f32, {2, 2}), b = graph.input("b", f32, {2, 2}),
              c = graph.input("c", f32, {2, 2});
  graph.output("other_axis", concat({a, b}, 0));
  graph.output("other_order", concat({b, a}, 1));
  graph.output("other_end", concat({c, a, b}, 1));
  graph.output("whole", concat({a, b, c}, 1));
  EXPECT_EQ(nested(graph), (std::vector<std::size_t>{2, 2, 3, 3}));
  graph.output("more", concat({a, b, c, a, a}, 1));
  EXPECT_EQ(nested(graph), (std::vector<std::size_t>{2, 2, 3, 3, 3}));
}

}  // namespace
}  // namespace rlx
