// Products by weights of few bits: read as they are stored, with the results of real ones.
#include <gtest/gtest.h>

#include <random>

#include "graph/op_info.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

Tensor noise(const Dims& dims, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < element_count(dims); ++i)
    values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
  return Tensor::of<float>(dims, std::span<const float>(values));
}

Tensor numbers(DType dtype, const Dims& dims, unsigned seed) {
  std::minstd_rand random(seed);
  Tensor tensor(dtype, dims);
  const unsigned count = 1U << static_cast<unsigned>(integer_bits(dtype));
  const unsigned least = is_unsigned_integer(dtype) ? 0 : count / 2;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.mutable_data()[i] = static_cast<std::byte>(random() / 64 % count - least);
  return tensor;
}

struct Layer {
  std::int64_t rows = 1;
  DType dtype = i8;
  op::Dequantize dequantize;
  Dims scale;
  bool turned = false;  ///< the weight is [columns, depth]
};

constexpr std::int64_t depth = 96, columns = 70;

/// y = tanh(x * W) + more
Graph graph_of(const Layer& layer) {
  Graph graph;
  const Dims dims = layer.turned ? Dims{columns, depth} : Dims{depth, columns};
  const auto param = [&](const char* name, DType dtype, const Dims& of, const Tensor& value) {
    return graph.param(name, dtype, of, value);
  };
  Value w =
      graph.add_one(layer.dequantize,
                    {param("w", layer.dtype, dims, numbers(layer.dtype, dims, 1)),
                     param("s", f32, layer.scale, noise(layer.scale, 2)),
                     param("z", layer.dtype, layer.scale, numbers(layer.dtype, layer.scale, 3))});
  if (layer.turned) w = transpose(w, {1, 0});
  const Value x = graph.input("x", f32, {layer.rows, depth});
  const Value product = matmul(x, w);
  graph.output("y", tanh(product * graph.constant(f32, 0.01)) +
                        graph.input("more", f32, {layer.rows, columns}));
  return graph;
}

/// Runs the layer on one thread and two; gives the bytes of its weights.
std::int64_t check(const Layer& layer) {
  const Graph graph = graph_of(layer);
  const Tensor x = noise({layer.rows, depth}, 4), more = noise({layer.rows, columns}, 5);
  const Tensor wanted = evaluate_graph(graph, std::vector<Tensor>{x, more}).value()[0];
  std::int64_t bytes = 0;
  for (const int threads : {1, 2}) {
    CompiledGraph program = Session(Device::cpu, {.threads = threads}).compile(graph).value();
    Outputs results = program.run({{"x", x.as<float>()}, {"more", more.as<float>()}}).value();
    const auto y = results["y"].as<float>();
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], wanted.as<float>()[i], 1e-5) << i << " of " << layer.rows << " rows";
    bytes = program.query_memory().weights_bytes;
  }
  return bytes;
}

TEST(ByteWeights, of_columns_and_of_all) {
  for (const std::int64_t rows : {1, 4, 20, 33}) {
    for (const DType dtype : {i8, u8}) {
      check({.rows = rows, .dtype = dtype, .dequantize = {.axis = 1}, .scale = {columns}});
      check({rows, dtype, {.axis = 0}, {columns}, true});
      EXPECT_LT(check({.rows = rows, .dtype = dtype}), depth * 80 * 2);
    }
  }
}

TEST(ByteWeights, of_blocks_two_in_a_byte) {
  for (const std::int64_t rows : {1, 5, 31}) {
    for (const DType dtype : {i4, u4, i8}) {
      const std::int64_t bytes =
          check({rows, dtype, {.axis = 1, .block = 32}, {columns, depth / 32}, true});
      EXPECT_LT(bytes, depth * 80 * (dtype == i8 ? 2 : 1));
      check({rows, dtype, {.axis = 0, .block = 16}, {depth / 16, columns}});
    }
  }
}

/// Blocks of other axes, and of a few k, are made real beforehand.
TEST(ByteWeights, other_scales) {
  check({.rows = 3, .dequantize = {.axis = 0}, .scale = {depth}});
  check({.rows = 3, .dequantize = {.axis = 1, .block = 10}, .scale = {depth, 7}});
  check({.rows = 3, .dequantize = {.axis = 0, .block = 4}, .scale = {24, columns}});
  check({.rows = 3, .dequantize = {.axis = 0, .block = 36}, .scale = {3, columns}});
}

}  // namespace
}  // namespace rlx
