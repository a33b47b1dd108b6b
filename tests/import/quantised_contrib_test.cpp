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
