// ONNX Runtime's quantised ops: what small ones give.
#include <gtest/gtest.h>

#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/ops.hpp"

namespace rlx::test {
namespace {

constexpr int onnx_uint8 = 2, onnx_int8 = 3, onnx_int32 = 6;

std::string raw_bytes(const std::vector<int>& values) { return {values.begin(), values.end()}; }

/// Of a model with the one input x, u8 [2, 2], and the output y.
std::vector<std::int64_t> outputs(const Message& the_node, std::vector<Message> initializers,
                                  const std::vector<int>& x) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_uint8, {{2}, {2}})};
  parts.outputs = {value_info("y", onnx_uint8, {})};
  parts.nodes = {the_node};
  initializers.push_back(tensor("half", onnx_float, {}, raw_floats({0.5F})));
  initializers.push_back(tensor("one", onnx_float, {}, raw_floats({1})));
  initializers.push_back(tensor("ten", onnx_uint8, {}, raw_bytes({10})));
  initializers.push_back(tensor("none", onnx_uint8, {}, raw_bytes({0})));
  parts.initializers = std::move(initializers);
  const Graph graph = import_onnx(model_message(parts).span(), {}).value();
  Tensor input(u8, {2, 2});
  for (std::size_t i = 0; i < 4; ++i) input.mutable_data()[i] = static_cast<std::byte>(x[i]);
  const Tensor y = evaluate_graph(graph, std::vector<Tensor>{input}).value()[0];
  EXPECT_EQ(y.dtype(), u8);
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < y.elements(); ++i)
    values.push_back(load_datum(u8, y.data(), i).integer);
  return values;
}

using Integers = std::vector<std::int64_t>;
const std::string contrib = "com.microsoft";

TEST(QuantisedContrib, add_rounds_halves_to_even_and_saturates) {
  // (x - 10) / 2 + x
  const Message sum = node("QLinearAdd", {"x", "half", "ten", "x", "one", "none", "one", "none"},
                           {"y"}, {}, contrib);
  EXPECT_EQ(outputs(sum, {}, {10, 11, 13, 250}), (Integers{10, 12, 14, 255}));
}

TEST(QuantisedContrib, concat_brings_its_parts_to_one_scale) {
  const Message joined =
      node("QLinearConcat", {"one", "none", "x", "half", "ten", "x", "one", "none"}, {"y"},
           {integer_attribute("axis", 1)}, contrib);
  EXPECT_EQ(outputs(joined, {}, {10, 12, 14, 0}), (Integers{0, 1, 10, 12, 2, 0, 14, 0}));
}

TEST(QuantisedContrib, gemm_adds_its_bias_in_steps_of_the_product) {
  // ((x - 10) / 2) [[1, -1], [2, 0]]^T + bias / 2
  const std::vector<Message> weights{
      tensor("w", onnx_int8, {2, 2}, raw_bytes({1, -1, 2, 0})),
      tensor("w_zero", onnx_int8, {}, raw_bytes({0})),
      tensor("bias", onnx_int32, {2}, std::string("\x02\0\0\0\x04\0\0\0", 8))};
  const Message product =
      node("QGemm", {"x", "half", "ten", "w", "one", "w_zero", "bias", "one", "ten"}, {"y"},
           {integer_attribute("transB", 1)}, contrib);
  EXPECT_EQ(outputs(product, weights, {14, 10, 10, 14}), (Integers{13, 16, 9, 12}));
}

/// The results of a model with the one input x and the output y.
std::vector<float> reals(const Message& the_node, std::vector<Message> initializers,
                         const Message& input, const Tensor& x) {
  GraphParts parts;
  parts.inputs = {input};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {the_node};
  parts.initializers = std::move(initializers);
  const Graph graph = import_onnx(model_message(parts).span(), {}).value();
  const Tensor y = evaluate_graph(graph, std::vector<Tensor>{x}).value()[0];
  return {y.as<float>().begin(), y.as<float>().end()};
}

/// Columns of six numbers of four bits, 1 to 6 and 15, 0, 15, 0, 15, 0, in blocks of four (the last
/// one ends early), scaled by 1 and 2, and by 0.5 and 4.
const std::vector<Message> columns_of_nibbles{
    tensor("w", onnx_uint8, {2, 2, 2}, raw_bytes({0x21, 0x43, 0x65, 0, 0x0f, 0x0f, 0x0f, 0})),
    tensor("s", onnx_float, {4}, raw_floats({1, 2, 0.5F, 4})),
    tensor("z", onnx_uint8, {2}, raw_bytes({0x21, 0xf0})),
    tensor("bias", onnx_float, {2}, raw_floats({100, 1000}))};
const std::vector<Message> of_six_in_blocks_of_four{
    integer_attribute("K", 6), integer_attribute("N", 2), integer_attribute("block_size", 4)};
const Tensor one_to_six = Tensor::of<float>({1, 6}, {1, 2, 3, 4, 5, 6});

TEST(BlockQuantisedContrib, products_count_from_the_middle_of_the_range) {
  const Message product = node("MatMulNBits", {"x", "w", "s", "", "", "bias"}, {"y"},
                               of_six_in_blocks_of_four, contrib);
  const Message x = value_info("x", onnx_float, {{1}, {6}});
  // -7 - 12 - 15 - 16 + 2 (-15 - 12) + 100, and (7 - 16 + 21 - 32) / 2 + 4 (35 - 48) + 1000
  EXPECT_EQ(reals(product, columns_of_nibbles, x, one_to_six), (std::vector<float>{-4, 938}));
}

TEST(BlockQuantisedContrib, products_count_from_zero_points) {
  const Message product =
      node("MatMulNBits", {"x", "w", "s", "z"}, {"y"}, of_six_in_blocks_of_four, contrib);
  const Message x = value_info("x", onnx_float, {{1}, {6}});
  // zeros 1 and 2, 0 and 15: 0 + 2 + 6 + 12 + 2 (15 + 24), and (15 + 45) / 2 + 4 (0 - 90)
  EXPECT_EQ(reals(product, columns_of_nibbles, x, one_to_six), (std::vector<float>{98, -330}));
}

TEST(BlockQuantisedContrib, rows_of_tables) {
  const std::vector<Message> table{
      tensor("w", onnx_uint8, {2, 2}, raw_bytes({0x21, 0x43, 0x0f, 0x9f})),
      tensor("s", onnx_float, {2, 2}, raw_floats({1, 2, 0.5F, 4}))};
  const Message lookup =
      node("GatherBlockQuantized", {"w", "x", "s"}, {"y"},
           {integer_attribute("quantize_axis", 1), integer_attribute("block_size", 2)}, contrib);
  constexpr int onnx_int64 = 7;
  EXPECT_EQ(
      reals(lookup, table, value_info("x", onnx_int64, {{1}}), Tensor::of<std::int64_t>({1}, {1})),
      (std::vector<float>{3.5F, -4, 28, 4}));
}

/// The results of an LSTM of one unit and two inputs over three steps.
std::vector<float> lstm_results(const Message& the_node, const std::vector<Message>& weights) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{3}, {1}, {2}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {the_node};
  parts.initializers = weights;
  const Graph graph = import_onnx(model_message(parts).span(), {}).value();
  const Tensor x = Tensor::of<float>({3, 1, 2}, {0.5F, -1, 2, 0.25F, -0.75F, 1});
  const Tensor y = evaluate_graph(graph, std::vector<Tensor>{x}).value()[0];
  const auto values = y.as<float>();
  return {values.begin(), values.end()};
}

TEST(QuantisedContrib, an_lstm_of_bytes_has_the_weights_that_they_stand_for) {
  // (bytes - 2) / 2 by column, of which there are four gates; as LSTM wants them: gates first.
  const std::vector<Message> bytes{
      tensor("w", onnx_int8, {1, 2, 4}, raw_bytes({4, 3, 2, 1, 0, -1, 5, 6})),
      tensor("r", onnx_int8, {1, 1, 4}, raw_bytes({1, 3, 4, 2})),
      tensor("scale", onnx_float, {1}, raw_floats({0.5F})),
      tensor("scales", onnx_float, {1, 4}, raw_floats({0.5F, 0.5F, 0.25F, 1})),
      tensor("zero", onnx_int8, {1}, raw_bytes({2})),
      tensor("zeros", onnx_int8, {1, 4}, raw_bytes({2, 2, 0, 2}))};
  const std::vector<Message> real{
      tensor("w", onnx_float, {1, 4, 2}, raw_floats({1, -1, 0.5F, -1.5F, 0, 1.5F, -0.5F, 2})),
      tensor("r", onnx_float, {1, 4, 1}, raw_floats({-0.5F, 0.5F, 1, 0}))};
  const std::vector<Message> attributes{integer_attribute("hidden_size", 1)};
  const std::vector<float> quantised =
      lstm_results(node("DynamicQuantizeLSTM",
                        {"x", "w", "r", "", "", "", "", "", "scale", "zero", "scales", "zeros"},
                        {"y"}, attributes, contrib),
                   bytes);
  EXPECT_EQ(quantised, lstm_results(node("LSTM", {"x", "w", "r"}, {"y"}, attributes), real));
  EXPECT_EQ(quantised.size(), 3U);
}

}  // namespace
}  // namespace rlx::test
