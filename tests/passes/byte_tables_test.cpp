// Lookups in tables that dequantize makes.
#include <gtest/gtest.h>

#include <cstring>

#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

constexpr std::int64_t rows = 20, columns = 12;

Value table(Graph& graph, DType dtype) {
  Tensor numbers(dtype, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i)
    numbers.mutable_data()[i] = static_cast<std::byte>(i * 7 % 16);
  return graph.param("w", dtype, {rows, columns}, numbers);
}

Value scales(Graph& graph, const std::string& name, Dims dims, DType dtype = f32) {
  std::vector<float> numbers;
  std::vector<std::uint8_t> zeros;
  for (std::int64_t i = 0; i < element_count(dims); ++i) {
    numbers.push_back(0.25F * static_cast<float>(i + 1));
    zeros.push_back(static_cast<std::uint8_t>(i % 8));
  }
  Tensor values(dtype, dims);
  const void* from = dtype == f32 ? static_cast<const void*>(numbers.data()) : zeros.data();
  std::memcpy(values.mutable_data(), from, static_cast<std::size_t>(values.bytes()));
  return graph.param(name, dtype, std::move(dims), values);
}

/// Is the table looked up before it is made real, with the same values to the bit?
void expect_looked_up_as_numbers(const op::Dequantize& dequantize, const Dims& scale, DType dtype,
                                 const Shape& places) {
  Graph graph;
  const Value numbers = table(graph, dtype), s = scales(graph, "s", scale),
              zero = scales(graph, "z", scale, dtype);
  const Value made = graph.add_one(dequantize, {numbers, s, zero});
  graph.output("y", graph.add_one(op::Gather{0}, {made, graph.input("i", i64, places)}));
  const Graph after = passes::drop_dead(passes::byte_tables(graph).value()).value();
  testing::expect_same_values(graph, after, 0, 0, {.low = -rows, .high = rows - 1});
  for (const Node& node : after.nodes()) {
    if (!node.op.is<op::Dequantize>()) continue;
    EXPECT_TRUE(after.node(node.inputs[0]).op.is<op::Gather>());
  }
}

TEST(ByteTables, ScalesOfAllOfTheTable) { expect_looked_up_as_numbers({}, {}, i8, {Dim(3)}); }

TEST(ByteTables, ScalesOfRows) {
  expect_looked_up_as_numbers({.axis = 0}, {rows}, u8, {Dim(2), Dim(3)});
  expect_looked_up_as_numbers({.axis = -2}, {rows}, u8, {});
}

TEST(ByteTables, ScalesOfColumns) {
  expect_looked_up_as_numbers({.axis = 1}, {columns}, i8, {Dim(2), Dim(3)});
}

TEST(ByteTables, ScalesOfBlocks) {
  expect_looked_up_as_numbers({.axis = -1, .block = 4}, {rows, 3}, u4, {Dim(5)});
}

/// What a run computes, other axes, and blocks that rows end inside of stay.
TEST(ByteTables, NothingElse) {
  const auto stays = [](const Value& made, const Value& places, std::int64_t axis) {
    Graph& graph = made.graph();
    graph.output("y", graph.add_one(op::Gather{axis}, {made, places}));
    const Graph after = passes::byte_tables(graph).value();
    const Node& last = after.node(after.outputs()[0].value);
    EXPECT_TRUE(last.op.is<op::Gather>());
  };
  {
    Graph graph;
    const Value made = graph.add_one(
        op::Dequantize{}, {graph.input("w", i8, {rows, columns}), scales(graph, "s", {})});
    stays(made, graph.input("i", i64, {3}), 0);
  }
  {
    Graph graph;
    const Value made = graph.add_one(op::Dequantize{}, {table(graph, i8), scales(graph, "s", {})});
    stays(made, graph.input("i", i64, {3}), 1);
  }
  {
    Graph graph;
    const Value made = graph.add_one(op::Dequantize{.axis = 1, .block = 5},
                                     {table(graph, i8), scales(graph, "s", {rows, 3})});
    stays(made, graph.input("i", i64, {3}), 0);
  }
}

}  // namespace
}  // namespace rlx
