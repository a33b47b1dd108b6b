// Pads and scatters as concatenations: the same values as the ops give.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/op_info.hpp"
#include "passes/passes.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

Tensor counted(const Dims& dims, float first) {
  Tensor tensor(f32, dims);
  auto* data = reinterpret_cast<float*>(tensor.mutable_data());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) data[i] = first + static_cast<float>(i);
  return tensor;
}

template <class Op>
bool holds(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return node.op.is<Op>(); });
}

void expect_same_values(const Graph& graph, const Graph& canonical,
                        const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  const std::vector<Tensor> made = evaluate_graph(canonical, inputs).value();
  ASSERT_EQ(made[0].dims(), wanted[0].dims());
  const std::span<const float> a = made[0].as<float>(), b = wanted[0].as<float>();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
}

/// pad(x [3,4]) in canonical form, checked; true where no pad is left.
bool replaces_pad(const op::Pad& pad) {
  Graph graph;
  graph.output("y", graph.add_one(pad, {graph.input("x", f32, {3, 4})}));
  const Graph canonical = passes::canonicalise(graph).value();
  expect_same_values(graph, canonical, {counted({3, 4}, 1)});
  return !holds<op::Pad>(canonical);
}

TEST(CanonicalPad, borders_are_views) {
  for (const PadMode mode : {PadMode::reflect, PadMode::edge, PadMode::wrap}) {
    EXPECT_TRUE(replaces_pad({{2, 3}, {1, 2}, mode}));
    EXPECT_TRUE(replaces_pad({{0, 0}, {0, 3}, mode}));
    EXPECT_TRUE(replaces_pad({{0, 1}, {0, 0}, mode}));
  }
}

TEST(CanonicalPad, leaves_constants_crops_and_wide_borders) {
  EXPECT_FALSE(replaces_pad({{2, 3}, {1, 2}, PadMode::constant}));
  EXPECT_FALSE(replaces_pad({{-1, 0}, {0, 1}, PadMode::edge}));
  EXPECT_FALSE(replaces_pad({{3, 0}, {0, 0}, PadMode::reflect}));
}

/// scatter_nd(x [3,4,5], indices, updates) in canonical form, checked; true where none is left.
bool replaces_scatter(const Dims& dims, const std::vector<std::int64_t>& numbers,
                      const Dims& updates, ScatterMode mode = ScatterMode::assign) {
  Graph graph;
  const Value indices = graph.constant(Tensor::of<std::int64_t>(dims, numbers));
  const Value x = graph.input("x", f32, {3, 4, 5});
  const Value y = graph.input("u", f32, {updates.begin(), updates.end()});
  graph.output("y", graph.add_one(op::ScatterNd{mode}, {x, indices, y}));
  const Graph canonical = passes::canonicalise(graph).value();
  expect_same_values(graph, canonical, {counted({3, 4, 5}, 1), counted(updates, 100)});
  return !holds<op::ScatterNd>(canonical);
}

TEST(CanonicalScatter, boxes_are_concatenations) {
  EXPECT_TRUE(replaces_scatter({1, 1}, {1}, {1, 4, 5}));
  EXPECT_TRUE(replaces_scatter({1, 1}, {-1}, {1, 4, 5}));
  EXPECT_TRUE(replaces_scatter({3, 1}, {0, 1, 2}, {3, 4, 5}));
  EXPECT_TRUE(replaces_scatter({2, 2, 2}, {1, 1, 1, 2, 2, 1, 2, 2}, {2, 2, 5}));
  EXPECT_TRUE(replaces_scatter({1, 2, 1, 3}, {0, 2, 4, 0, 3, 4}, {1, 2, 1}));
}

TEST(CanonicalScatter, leaves_other_places_and_sums) {
  EXPECT_FALSE(replaces_scatter({2, 1}, {0, 2}, {2, 4, 5}));
  EXPECT_FALSE(replaces_scatter({2, 1}, {1, 0}, {2, 4, 5}));
  EXPECT_FALSE(replaces_scatter({1, 2}, {1, 2}, {1, 5}));
  EXPECT_FALSE(replaces_scatter({1, 1}, {1}, {1, 4, 5}, ScatterMode::add));
}

/// scatter_elements(x [6,3], index, updates [4,columns]) in canonical form, checked; true where it
/// became a scatter of rows.
bool scatters_rows(const Shape& index, std::int64_t columns, std::int64_t axis, ScatterMode mode) {
  Graph graph;
  const Value x = graph.input("x", f32, {6, 3});
  const Value rows = graph.input("i", i64, index);
  const Value updates = graph.input("u", f32, {4, columns});
  const Value places = broadcast(rows, {4, columns});
  graph.output("y", graph.add_one(op::ScatterElements{axis, mode}, {x, places, updates}));
  const Graph canonical = passes::canonicalise(graph).value();
  const bool by_row = index[0] == Dim(4);
  const Tensor numbers = by_row ? Tensor::of<std::int64_t>({4, 1}, {2, -1, 2, 0})
                                : Tensor::of<std::int64_t>({1, 3}, {2, 0, 1});
  expect_same_values(graph, canonical, {counted({6, 3}, 1), numbers, counted({4, columns}, 100)});
  return holds<op::ScatterNd>(canonical);
}

TEST(CanonicalScatter, indices_of_whole_rows_move_rows) {
  for (const ScatterMode mode : {ScatterMode::assign, ScatterMode::add, ScatterMode::max}) {
    EXPECT_TRUE(scatters_rows({4, 1}, 3, 0, mode));
    EXPECT_TRUE(scatters_rows({4, 1}, 3, -2, mode));
  }
}

TEST(CanonicalScatter, other_indices_move_elements) {
  EXPECT_FALSE(scatters_rows({4, 1}, 2, 0, ScatterMode::add));  // parts of rows
  EXPECT_FALSE(scatters_rows({1, 3}, 3, 0, ScatterMode::add));  // an index for each column
  EXPECT_FALSE(scatters_rows({1, 3}, 3, 1, ScatterMode::add));
}

}  // namespace
}  // namespace rlx
