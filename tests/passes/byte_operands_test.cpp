// Quantised products as those of bytes or of words: the same sums, in the operands that a machine
// multiplies fastest.
#include <gtest/gtest.h>

#include "graph/narrow_products.hpp"
#include "passes/quantised.hpp"
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

/// What the products of the graph multiply, pair by pair.
std::vector<std::pair<DType, DType>> operands(const Graph& graph) {
  std::vector<std::pair<DType, DType>> found;
  for (const Node& node : graph.nodes()) {
    if (!multiplies_narrow_integers(graph, node)) continue;
    const auto read = [&](std::size_t k) {
      return graph.type(graph.node(node.inputs[k]).inputs[0]).dtype;
    };
    found.emplace_back(read(0), read(1));
  }
  return found;
}

Tensor bytes(DType dtype, Shape shape, std::uint32_t seed) {
  std::mt19937 generator(seed);
  return testing::noise({dtype, std::move(shape)}, dtype == u8 ? 0 : -128, dtype == u8 ? 255 : 127,
                        generator);
}

Graph product(std::int64_t rows, DType a, DType b, bool zeros) {
  Graph graph;
  const Value x = graph.input("x", a, {Dim(rows), 20});
  const Value w = graph.constant(bytes(b, {20, 9}, 1));
  Values inputs{x, w, {}, {}};
  if (zeros) inputs[2] = graph.constant(a, 7), inputs[3] = graph.constant(bytes(b, {9}, 2));
  graph.output("y", cast(graph.add(op::IntegerMatmul{}, inputs)[0], f32));
  return graph;
}

Graph convolution(DType a, DType b, bool zeros) {
  Graph graph;
  const Value x = graph.input("x", a, {1, 6, 7, 8});
  const Value w = graph.constant(bytes(b, {5, 6, 3, 3}, 3));
  Values inputs{x, w, {}, {}};
  if (zeros) inputs[2] = graph.constant(a, 9), inputs[3] = graph.constant(bytes(b, {5}, 4));
  const op::IntegerConv same{.pad_low = {1, 1}, .pad_high = {1, 0}};
  graph.output("y", cast(graph.add(same, inputs)[0], f32));
  return graph;
}

using Pair = std::pair<DType, DType>;

TEST(ByteOperands, words_hold_operands_without_their_zeros) {
  for (const auto& [a, b] : {Pair{u8, i8}, Pair{i8, i8}, Pair{u8, u8}}) {
    for (const bool zeros : {false, true}) {
      for (const Graph& graph : {product(16, a, b, zeros), convolution(a, b, zeros)}) {
        const Graph made = passes::byte_operands(graph, false, nullptr).value();
        EXPECT_EQ(operands(made), (std::vector{Pair{i16, i16}}));
        testing::expect_same_values(graph, made, 0, 0, {.low = -128, .high = 255});
      }
    }
  }
}

TEST(ByteOperands, bytes_are_u8_and_i8_where_they_are_multiplied) {
  for (const auto& [a, b] : {Pair{u8, i8}, Pair{i8, i8}, Pair{u8, u8}}) {
    for (const bool zeros : {false, true}) {
      for (const Graph& graph : {product(16, a, b, zeros), convolution(a, b, zeros)}) {
        const Graph made = passes::byte_operands(graph, true, nullptr).value();
        for (const Pair& pair : operands(made)) EXPECT_EQ(pair, Pair(u8, i8));
        testing::expect_same_values(graph, made, 0, 0, {.low = -128, .high = 255});
      }
    }
  }
}

TEST(ByteOperands, a_few_rows_wait_for_weights_and_read_bytes) {
  const Graph graph = product(2, i8, i8, true);
  const Graph made = passes::byte_operands(graph, false, nullptr).value();
  for (const Pair& pair : operands(made)) EXPECT_EQ(pair, Pair(i8, i8));
  testing::expect_same_values(graph, made, 0, 0, {.low = -128, .high = 127});
}

}  // namespace
}  // namespace rlx
