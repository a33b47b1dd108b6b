// ONNX Runtime's fused ops give what their parts give.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/ops.hpp"

namespace rlx::test {
namespace {

const std::string contrib = "com.microsoft";

/// Numbers that do not repeat soon.
Tensor numbers(const Dims& dims, double phase) {
  std::vector<float> values(static_cast<std::size_t>(Tensor(f32, dims).elements()));
  double at = phase;
  for (float& value : values) value = static_cast<float>(std::sin(at += 1.7));
  return Tensor::of<float>(dims, std::span<const float>(values));
}

struct Named {
  std::string name;
  Tensor value;
};

/// The results of a model of these nodes.
std::vector<Tensor> results(const std::vector<Message>& nodes, const std::vector<Named>& inputs,
                            const std::vector<std::string>& outputs, int opset = 23) {
  GraphParts parts;
  parts.nodes = nodes;
  std::vector<Tensor> values;
  for (const Named& input : inputs) {
    std::vector<ModelDim> dims;
    for (const std::int64_t dim : input.value.dims()) dims.push_back({dim});
    const DType dtype = input.value.dtype();
    const int type = dtype == f32 ? onnx_float : dtype == i32 ? 6 : dtype == u8 ? 2 : onnx_int64;
    parts.inputs.push_back(value_info(input.name, type, dims));
    values.push_back(input.value);
  }
  for (const std::string& name : outputs) parts.outputs.push_back(value_info(name, onnx_float, {}));
  const Graph graph = import_onnx(model_message(parts, opset).span(), {}).value();
  return evaluate_graph(graph, values).value();
}

void expect_near(const std::vector<Tensor>& given, const std::vector<Tensor>& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(given[i].dims(), expected[i].dims());
    const auto a = given[i].as<float>(), b = expected[i].as<float>();
    for (std::size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-5) << i << " " << k;
  }
}

const std::vector<std::string> y{"y"};

TEST(FusedContrib, products_turn_and_scale_their_operands) {
  const std::vector<Named> inputs{{"a", numbers({4, 2, 3}, 0)},
                                  {"b", numbers({2, 5, 3}, 1)},
                                  {"quarter", Tensor::scalar(0.25F)}};
  expect_near(results({node("FusedMatMul", {"a", "b"}, y,
                            {integer_attribute("transBatchA", 1), integer_attribute("transB", 1),
                             float_attribute("alpha", 0.25F)},
                            contrib)},
                      inputs, y),
              results({node("Transpose", {"a"}, {"at"}, {ints_attribute("perm", {1, 0, 2})}),
                       node("Transpose", {"b"}, {"bt"}, {ints_attribute("perm", {0, 2, 1})}),
                       node("MatMul", {"at", "bt"}, {"p"}), node("Mul", {"p", "quarter"}, y)},
                      inputs, y));
}

TEST(FusedContrib, convolutions_add_before_they_activate) {
  const std::vector<Named> inputs{{"x", numbers({1, 2, 5, 5}, 0)},
                                  {"w", numbers({3, 2, 3, 3}, 1)},
                                  {"b", numbers({3}, 2)},
                                  {"z", numbers({1, 3, 3, 3}, 3)}};
  expect_near(results({node("FusedConv", {"x", "w", "b", "z"}, y,
                            {string_attribute("activation", "LeakyRelu"),
                             floats_attribute("activation_params", {0.2F})},
                            contrib)},
                      inputs, y),
              results({node("Conv", {"x", "w", "b"}, {"c"}), node("Add", {"c", "z"}, {"s"}),
                       node("LeakyRelu", {"s"}, y, {float_attribute("alpha", 0.2F)})},
                      inputs, y));
}

TEST(FusedContrib, gemm_activates_by_parameters) {
  const std::vector<Named> inputs{{"a", numbers({3, 4}, 0)}, {"b", numbers({4, 2}, 1)}};
  expect_near(results({node("FusedGemm", {"a", "b"}, y,
                            {string_attribute("activation", "HardSigmoid"),
                             float_attribute("activation_alpha", 0.3F),
                             float_attribute("activation_beta", 0.4F)},
                            contrib)},
                      inputs, y),
              results({node("MatMul", {"a", "b"}, {"p"}),
                       node("HardSigmoid", {"p"}, y,
                            {float_attribute("alpha", 0.3F), float_attribute("beta", 0.4F)})},
                      inputs, y));
}

/// What is said of a node of float operands that cannot be read.
std::string refusal(const Message& the_node,
                    const std::vector<std::pair<std::string, Dims>>& inputs) {
  GraphParts parts;
  for (const auto& [name, shape] : inputs) {
    std::vector<ModelDim> dims;
    for (const std::int64_t dim : shape) dims.push_back({dim});
    parts.inputs.push_back(value_info(name, name == "at" ? onnx_int64 : onnx_float, dims));
  }
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {the_node};
  const auto graph = import_onnx(model_message(parts).span(), {});
  return graph.ok() ? "" : graph.error().message;
}

TEST(FusedContrib, what_does_not_fit_is_told) {
  const Message heads = integer_attribute("num_heads", 2);
  const auto told = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  told(refusal(node("FusedConv", {"x", "w"}, y, {string_attribute("activation", "Sinus")}, contrib),
               {{"x", {1, 1, 3, 3}}, {"w", {1, 1, 3, 3}}}),
       "Sinus");
  told(refusal(node("FusedGemm", {"a", "a"}, y,
                    {string_attribute("activation", "HardSigmoid"),
                     float_attribute("activation_beta", 0.4F)},
                    contrib),
               {{"a", {2, 2}}}),
       "activation_beta");
  told(refusal(node("Attention", {"x", "w"}, y,
                    {heads, ints_attribute("qkv_hidden_sizes", {-8, 24, 8})}, contrib),
               {{"x", {1, 3, 4}}, {"w", {4, 24}}}),
       "do not fit");
  told(refusal(node("RotaryEmbedding", {"x", "at", "c", "s"}, y, {}, contrib),
               {{"x", {1, 3, 4}}, {"at", {1, 3}}, {"c", {5, 0}}, {"s", {5, 0}}}),
       "no angles");
  told(refusal(node("RotaryEmbedding", {"x", "at", "c", "s"}, y, {}, contrib),
               {{"x", {3, 4}}, {"at", {1, 3}}, {"c", {5, 2}}, {"s", {5, 2}}}),
       "[B,S,N*D]");
  told(refusal(node("MultiHeadAttention", {"q"}, y, {heads}, contrib), {{"q", {1, 3, 2, 3, 4}}}),
       "one operand");
  told(refusal(node("GroupQueryAttention", {"q", "q", "q", "", "", "q", "q"}, y,
                    {heads, integer_attribute("kv_num_heads", 2),
                     integer_attribute("local_window_size", 0)},
                    contrib),
               {{"q", {1, 3, 8}}}),
       "window");
}

TEST(FusedContrib, gelu_has_a_bias) {
  const std::vector<Named> inputs{{"x", numbers({2, 3}, 0)}, {"b", numbers({3}, 1)}};
  const Message sum = node("Add", {"x", "b"}, {"s"});
  expect_near(results({node("BiasGelu", {"x", "b"}, y, {}, contrib)}, inputs, y),
              results({sum, node("Gelu", {"s"}, y)}, inputs, y));
  expect_near(
      results({node("FastGelu", {"x", "b"}, y, {}, contrib)}, inputs, y),
      results({sum, node("Gelu", {"s"}, y, {string_attribute("approximate", "tanh")})}, inputs, y));
}

TEST(FusedContrib, quick_gelu_is_a_swish) {
  const std::vector<Named> inputs{{"x", numbers({2, 3}, 0)}};
  expect_near(
      results({node("QuickGelu", {"x"}, y, {}, contrib)}, inputs, y),
      results({node("Swish", {"x"}, y, {float_attribute("alpha", 1.702F)})}, inputs, y, 24));
}

TEST(FusedContrib, norms_have_their_names_in_older_opsets) {
  const std::vector<Named> inputs{{"x", numbers({2, 3, 4}, 0)}, {"scale", numbers({4}, 1)}};
  constexpr int old = 11;
  expect_near(results({node("SimplifiedLayerNormalization", {"x", "scale"}, y)}, inputs, y, old),
              results({node("RMSNormalization", {"x", "scale"}, y)}, inputs, y));
  expect_near(results({node("LayerNormalization", {"x", "scale"}, y)}, inputs, y, old),
              results({node("LayerNormalization", {"x", "scale"}, y)}, inputs, y));
}

TEST(FusedContrib, norms_of_sums_hand_the_sum_on) {
  const std::vector<Named> inputs{{"x", numbers({2, 3, 4}, 0)},
                                  {"skip", numbers({1, 3, 4}, 1)},
                                  {"scale", numbers({4}, 2)},
                                  {"beta", numbers({4}, 3)},
                                  {"bias", numbers({4}, 4)}};
  const std::vector<Message> sum{node("Add", {"x", "skip"}, {"s"}),
                                 node("Add", {"s", "bias"}, {"t"})};
  const std::vector<std::string> both{"y", "t"};
  const std::vector<Message> small{float_attribute("epsilon", 1e-3F)};
  std::vector<Message> parts = sum;
  parts.push_back(node("LayerNormalization", {"t", "scale", "beta"}, y, small));
  expect_near(results({node("SkipLayerNormalization", {"x", "skip", "scale", "beta", "bias"},
                            {"y", "", "", "t"}, small, contrib)},
                      inputs, both),
              results(parts, inputs, both));
  parts.back() = node("RMSNormalization", {"t", "scale"}, y, small);
  expect_near(results({node("SkipSimplifiedLayerNormalization", {"x", "skip", "scale", "bias"},
                            {"y", "", "", "t"}, small, contrib)},
                      inputs, both),
              results(parts, inputs, both));
}

TEST(FusedContrib, embeddings_count_the_words_of_the_mask) {
  const std::vector<Named> inputs{{"ids", Tensor::of<std::int32_t>({1, 3}, {2, 0, 1})},
                                  {"kinds", Tensor::of<std::int32_t>({1, 3}, {1, 0, 1})},
                                  {"mask", Tensor::of<std::int32_t>({1, 3}, {1, 1, 0})},
                                  {"words", numbers({4, 8}, 0)},
                                  {"places", numbers({5, 8}, 1)},
                                  {"segments", numbers({2, 8}, 2)},
                                  {"scale", numbers({8}, 3)},
                                  {"bias", numbers({8}, 4)},
                                  {"at", Tensor::of<std::int32_t>({1, 3}, {0, 1, 2})}};
  const std::vector<Tensor> given =
      results({node("EmbedLayerNormalization",
                    {"ids", "kinds", "words", "places", "segments", "scale", "bias", "mask"},
                    {"y", "count"}, {float_attribute("epsilon", 1e-5F)}, contrib)},
              inputs, {"y", "count"});
  EXPECT_EQ(given[1].as<std::int32_t>()[0], 2);
  expect_near(
      {given[0]},
      results({node("Gather", {"words", "ids"}, {"w"}), node("Gather", {"places", "at"}, {"p"}),
               node("Gather", {"segments", "kinds"}, {"k"}), node("Sum", {"w", "p", "k"}, {"s"}),
               node("LayerNormalization", {"s", "scale", "bias"}, y)},
              inputs, y));
}

TEST(FusedContrib, embeddings_of_bytes_have_scales_and_zero_points) {
  std::vector<Named> inputs{{"ids", Tensor::of<std::int32_t>({1, 3}, {2, 0, 1})},
                            {"kinds", Tensor::of<std::int32_t>({1, 3}, {1, 0, 1})}};
  const std::vector<std::pair<std::string, Dims>> tables{
      {"words", {4, 8}}, {"places", {5, 8}}, {"segments", {2, 8}}, {"scale", {8}}, {"bias", {8}}};
  std::vector<std::string> names, scales, zeros;
  std::vector<Message> parts;
  for (const auto& [name, dims] : tables) {
    const auto order = static_cast<int>(names.size());
    Tensor bytes(u8, dims), zero(u8, {});
    for (std::int64_t i = 0; i < bytes.elements(); ++i)
      bytes.mutable_data()[i] = static_cast<std::byte>((37 * i + 11 * order) % 256);
    zero.mutable_data()[0] = static_cast<std::byte>(120 + order);
    names.push_back(name);
    scales.push_back(name + "_scale");
    zeros.push_back(name + "_zero");
    inputs.push_back({name, bytes});
    inputs.push_back({scales.back(), Tensor::scalar(0.01F * static_cast<float>(order + 1))});
    inputs.push_back({zeros.back(), zero});
    parts.push_back(
        node("DequantizeLinear", {name, scales.back(), zeros.back()}, {name + "_real"}));
  }
  std::vector<std::string> operands{"ids", "kinds"};
  operands.insert(operands.end(), names.begin(), names.end());
  operands.emplace_back();
  operands.insert(operands.end(), scales.begin(), scales.end());
  operands.insert(operands.end(), zeros.begin(), zeros.end());
  parts.push_back(node(
      "EmbedLayerNormalization",
      {"ids", "kinds", "words_real", "places_real", "segments_real", "scale_real", "bias_real"}, y,
      {}, contrib));
  expect_near(results({node("QEmbedLayerNormalization", operands, y, {}, contrib)}, inputs, y),
              results(parts, inputs, y));
}

/// Two items of three queries, two heads of four columns, past keys of two rows.
const std::vector<Named> operands{{"q", numbers({2, 3, 8}, 0)},
                                  {"k", numbers({2, 3, 8}, 1)},
                                  {"v", numbers({2, 3, 8}, 2)},
                                  {"past_k", numbers({2, 2, 2, 4}, 3)},
                                  {"past_v", numbers({2, 2, 2, 4}, 4)},
                                  {"x", numbers({2, 3, 6}, 5)},
                                  {"w", numbers({6, 24}, 6)},
                                  {"b", numbers({24}, 7)},
                                  {"ends", Tensor::of<std::int32_t>({2}, {2, 3})},
                                  {"begins", Tensor::of<std::int32_t>({4}, {3, 3, 1, 0})},
                                  {"words", Tensor::of<std::int32_t>({2, 3}, {1, 1, 0, 1, 1, 1})},
                                  {"last", Tensor::of<std::int32_t>({2}, {4, 4})},
                                  {"total", Tensor::scalar<std::int32_t>(5)},
                                  {"cosine", numbers({9, 2}, 8)},
                                  {"sine", numbers({9, 2}, 9)},
                                  {"at", Tensor::of<std::int64_t>({2, 3}, {2, 3, 4, 2, 3, 4})}};
const Message two_heads = integer_attribute("num_heads", 2);
const std::vector<Message> standard_heads{integer_attribute("q_num_heads", 2),
                                          integer_attribute("kv_num_heads", 2)};

/// The standard's Attention of q, k, v under an additive mask of what `hidden` keys get.
std::vector<Tensor> masked(const Tensor& mask) {
  std::vector<Named> inputs = operands;
  inputs.push_back({"m", mask});
  return results({node("Attention", {"q", "k", "v", "m"}, y, standard_heads)}, inputs, y);
}

TEST(FusedContrib, attention_hides_padding) {
  const float no = -10000;
  const Tensor right = Tensor::of<float>({2, 1, 1, 3}, {0, 0, no, 0, 0, 0});
  const auto of_mask = [&](const std::string& mask) {
    return results({node("MultiHeadAttention", {"q", "k", "v", "", mask}, y, {two_heads}, contrib)},
                   operands, y);
  };
  expect_near(of_mask("words"), masked(right));
  expect_near(of_mask("ends"), masked(right));
  expect_near(of_mask("begins"), masked(Tensor::of<float>({2, 1, 1, 3}, {no, 0, 0, 0, 0, 0})));
}

TEST(FusedContrib, attention_computes_its_operands) {
  const std::vector<Message> product{
      node("MatMul", {"x", "w"}, {"p"}), node("Add", {"p", "b"}, {"s"}),
      node("Split", {"s"}, {"sq", "sk", "sv"},
           {integer_attribute("axis", 2), integer_attribute("num_outputs", 3)})};
  std::vector<Message> causal = standard_heads;
  causal.push_back(integer_attribute("is_causal", 1));
  std::vector<Message> parts = product;
  parts.push_back(node("Attention", {"sq", "sk", "sv"}, y, causal));
  expect_near(results({node("Attention", {"x", "w", "b"}, y,
                            {two_heads, integer_attribute("unidirectional", 1)}, contrib)},
                      operands, y),
              results(parts, operands, y));
}

TEST(FusedContrib, attention_of_bytes_scales_its_product) {
  std::vector<Named> inputs = operands;
  Tensor x(u8, {2, 3, 6}), w(u8, {6, 24}), x_zero(u8, {}), w_zero(u8, {});
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.mutable_data()[i] = static_cast<std::byte>((53 * i) % 256);
  for (std::int64_t i = 0; i < w.elements(); ++i)
    w.mutable_data()[i] = static_cast<std::byte>((29 * i) % 256);
  x_zero.mutable_data()[0] = static_cast<std::byte>(100);
  w_zero.mutable_data()[0] = static_cast<std::byte>(130);
  inputs.insert(inputs.end(), {{"x8", x},
                               {"w8", w},
                               {"x_zero", x_zero},
                               {"w_zero", w_zero},
                               {"x_scale", Tensor::scalar(0.02F)},
                               {"w_scale", Tensor::scalar(0.01F)}});
  expect_near(results({node("QAttention",
                            {"x8", "w8", "b", "x_scale", "w_scale", "ends", "x_zero", "w_zero"}, y,
                            {two_heads}, contrib)},
                      inputs, y),
              results({node("DequantizeLinear", {"x8", "x_scale", "x_zero"}, {"xr"}),
                       node("DequantizeLinear", {"w8", "w_scale", "w_zero"}, {"wr"}),
                       node("Attention", {"xr", "wr", "b", "ends"}, y, {two_heads}, contrib)},
                      inputs, y));
}

const std::vector<std::string> with_cache{"y", "now_k", "now_v"};

TEST(FusedContrib, attention_extends_its_cache) {
  std::vector<Message> causal = standard_heads;
  causal.push_back(integer_attribute("is_causal", 1));
  expect_near(
      results({node("MultiHeadAttention", {"q", "k", "v", "", "", "", "past_k", "past_v"},
                    with_cache, {two_heads, integer_attribute("unidirectional", 1)}, contrib)},
              operands, with_cache),
      results({node("Attention", {"q", "k", "v", "", "past_k", "past_v"}, with_cache, causal)},
              operands, with_cache));
}

TEST(FusedContrib, groups_turn_and_extend_their_cache) {
  std::vector<Message> causal = standard_heads;
  causal.push_back(integer_attribute("is_causal", 1));
  const std::vector<Message> heads{integer_attribute("num_heads", 2)};
  expect_near(
      results(
          {node(
              "GroupQueryAttention",
              {"q", "k", "v", "past_k", "past_v", "last", "total", "cosine", "sine"}, with_cache,
              {two_heads, integer_attribute("kv_num_heads", 2), integer_attribute("do_rotary", 1)},
              contrib)},
          operands, with_cache),
      results({node("RotaryEmbedding", {"q", "cosine", "sine", "at"}, {"qr"}, heads),
               node("RotaryEmbedding", {"k", "cosine", "sine", "at"}, {"kr"}, heads),
               node("Attention", {"qr", "kr", "v", "", "past_k", "past_v"}, with_cache, causal)},
              operands, with_cache));
}

TEST(FusedContrib, groups_put_new_rows_where_the_past_of_an_item_ends) {
  // The first item's past ends after one row: its new rows replace the second one.
  std::vector<Named> inputs = operands;
  for (Named& input : inputs)
    if (input.name == "last") input.value = Tensor::of<std::int32_t>({2}, {3, 4});
  const std::vector<Message> attributes{two_heads, integer_attribute("kv_num_heads", 2)};
  const std::vector<Tensor> given =
      results({node("GroupQueryAttention", {"q", "k", "v", "past_k", "past_v", "last", "total"},
                    with_cache, attributes, contrib)},
              inputs, with_cache);
  // [2, 2, 5, 4]: row 1 of the first item is the first row of its keys.
  const auto now = given[1].as<float>(), k = operands[1].value.as<float>();
  EXPECT_EQ(now[4], k[0]);
  EXPECT_EQ(now[12], k[16]);
  // A short window of two keys, then: no query sees the past.
  std::vector<Message> narrow = attributes;
  narrow.push_back(integer_attribute("local_window_size", 1));
  const std::vector<Tensor> own =
      results({node("GroupQueryAttention", {"q", "k", "v", "past_k", "past_v", "last", "total"}, y,
                    narrow, contrib)},
              inputs, y);
  expect_near(own, {operands[2].value});
}

TEST(FusedContrib, rotary_positions_may_be_where_they_begin) {
  std::vector<Named> inputs = operands;
  inputs.push_back({"two", Tensor::of<std::int64_t>({1}, {2})});
  expect_near(
      results({node("RotaryEmbedding", {"q", "two", "cosine", "sine"}, y, {}, contrib)}, inputs, y),
      results({node("RotaryEmbedding", {"q", "cosine", "sine", "at"}, y,
                    {integer_attribute("num_heads", 2)})},
              inputs, y));
}

}  // namespace
}  // namespace rlx::test
