// Programs in bf16, f16 and int8 beside the same programs in f32.
#include <gtest/gtest.h>

#include <cmath>

#include "../ops/sample_inputs.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

class Builder {
 public:
  Graph graph;
  Value weight(Dims dims, double size) {
    const Type type{f32, Shape(dims.begin(), dims.end())};
    return graph.constant(testing::noise(type, -size, size, generator_));
  }
  Value layer(Value x, std::int64_t from, std::int64_t to) {
    return matmul(x, weight({from, to}, std::sqrt(3.0 / static_cast<double>(from)))) +
           weight({to}, 0.1);
  }

 private:
  std::mt19937 generator_{3};
};

/// A transformer's block: projections, attention, a norm, two layers.
Graph block(std::int64_t rows, std::int64_t width) {
  Builder b;
  const Value x = b.graph.input("x", f32, {2, rows, width});
  const std::int64_t heads = 4, each = width / heads;
  const auto split = [&](Value v) {
    return transpose(reshape(v, {2, rows, heads, each}), {0, 2, 1, 3});
  };
  const Value attended = attention(split(b.layer(x, width, width)), split(b.layer(x, width, width)),
                                   split(b.layer(x, width, width)), Value(), {});
  const Value joined = reshape(transpose(attended, {0, 2, 1, 3}), {2, rows, width});
  const Value sum = x + b.layer(joined, width, width);
  const Value centred = sum - mean(sum, {2}, true);
  const Value normed =
      centred * rsqrt(mean(centred * centred, {2}, true) + b.graph.constant(f32, 1e-5));
  const Value y = normed + b.layer(gelu(b.layer(normed, width, 4 * width)), 4 * width, width);
  b.graph.output("y", y - mean(y, {2}, true));
  return b.graph;
}

/// Two padded convolutions, one of them with a stride.
Graph images(std::int64_t channels) {
  Builder b;
  const Value x = b.graph.input("x", f32, {1, channels, 17, 19});
  const op::Conv same{.pad_low = {1, 1}, .pad_high = {1, 1}};
  const op::Conv half{.strides = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}};
  const Value first =
      relu(b.graph.add(Op(same), Values{x, b.weight({48, channels, 3, 3}, 0.1)})[0]);
  b.graph.output("y", b.graph.add(Op(half), Values{first, b.weight({40, 48, 3, 3}, 0.1)})[0]);
  return b.graph;
}

std::vector<float> floats(const TensorView& view) {
  const auto* data = reinterpret_cast<const float*>(view.data);
  return {data, data + view.elements()};
}

std::vector<float> values_of(const Graph& graph, const CompileOptions& options) {
  static Session session(Device::cpu);
  std::mt19937 generator(9);
  const Node* input = nullptr;
  for (const Node& node : graph.nodes())
    if (node.op.is<op::Input>()) input = &node;
  const Tensor value = testing::noise(input->results[0], -1, 1, generator);
  CompiledGraph program = session.compile(graph, options).value();
  return floats(program.run({{"x", value}}).value()["y"]);
}

double cosine(const std::vector<float>& x, const std::vector<float>& y) {
  double dot = 0, a = 0, b = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    dot += double{x[i]} * y[i], a += double{x[i]} * x[i], b += double{y[i]} * y[i];
  return dot / std::sqrt(a * b);
}

/// With and without fusion, on one thread and two.
void expect_near_f32(const Graph& graph, Precision precision, double least) {
  const std::vector<float> wanted = values_of(graph, {});
  for (const int threads : {1, 2}) {
    for (const bool fusion : {true, false}) {
      const std::vector<float> made =
          values_of(graph, {.precision = precision, .disable_fusion = !fusion, .threads = threads});
      EXPECT_GT(cosine(made, wanted), least) << threads << " threads, fusion " << fusion;
    }
  }
}

TEST(PrecisionPrograms, bf16_is_near_f32) {
  expect_near_f32(block(37, 96), Precision::bf16, 0.9999);
  expect_near_f32(block(1, 256), Precision::bf16, 0.9999);
  expect_near_f32(images(32), Precision::bf16, 0.9999);
  expect_near_f32(images(33), Precision::bf16, 0.9999);
}

TEST(PrecisionPrograms, f16_weights_are_nearer) {
  expect_near_f32(block(3, 96), Precision::f16, 0.999999);
}

TEST(PrecisionPrograms, int8_is_near_f32) {
  expect_near_f32(block(37, 96), Precision::int8, 0.998);
  expect_near_f32(block(1, 256), Precision::int8, 0.998);
}

TEST(PrecisionPrograms, exact_contradicts_a_precision) {
  Session session(Device::cpu);
  const auto program = session.compile(block(4, 32), {.precision = Precision::bf16, .exact = true});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().kind, ErrorKind::bad_input);
}

/// Attention whose weights the graph itself rounds.
Graph rounded_attention(DType dtype) {
  Builder b;
  const Value x = b.graph.input("x", f32, {2, 48, 32});
  const auto rounded = [&](Value v) { return cast(cast(v, dtype), f32); };
  const Value scores = matmul(rounded(x), transpose(rounded(x), {0, 2, 1}));
  b.graph.output("y", matmul(rounded(softmax(scores)), rounded(x)));
  return b.graph;
}

TEST(PrecisionPrograms, exact_rounds_attention_where_the_graph_does) {
  for (const DType dtype : {bf16, f16, f8e4m3fn}) {
    SCOPED_TRACE(name_of(dtype));
    const Graph graph = rounded_attention(dtype);
    const std::vector<float> fused = values_of(graph, {.exact = true});
    const std::vector<float> wanted = values_of(graph, {.exact = true, .disable_fusion = true});
    double apart = 0;
    for (std::size_t i = 0; i < fused.size(); ++i)
      apart += std::abs(double{fused[i]} - wanted[i]) / static_cast<double>(fused.size());
    EXPECT_LT(apart, 1e-5);
  }
}

TEST(PrecisionPrograms, an_explanation_names_every_choice) {
  Session session(Device::cpu);
  const CompiledGraph program =
      session.compile(block(64, 256), {.precision = Precision::bf16}).value();
  const Explanation explanation = program.explain().value();
  // What is narrowed is the machine's to say.
  const auto named =
      std::count_if(explanation.claims.begin(), explanation.claims.end(), [](const auto& claim) {
        const char* const form = claim.taken ? "bf16" : "f32: ";
        return claim.op == "dot_general" && claim.reason.starts_with(form);
      });
  EXPECT_GE(named, 4);
}

TEST(PrecisionPrograms, params_may_be_set_anew) {
  Graph graph;
  const Value x = graph.input("x", f32, {8, 512});
  const Value w = graph.param("w", f32, {512, 512});
  graph.output("y", relu(matmul(x, w)));
  Session session(Device::cpu);
  std::mt19937 generator(5);
  const Type type{f32, {512, 512}};
  const Tensor input = testing::noise({f32, {8, 512}}, -1, 1, generator);
  for (const Precision precision : {Precision::bf16, Precision::int8, Precision::f16}) {
    CompiledGraph program = session.compile(graph, {.precision = precision}).value();
    CompiledGraph plain = session.compile(graph, {}).value();
    for (int round = 0; round < 2; ++round) {
      const Tensor value = testing::noise(type, -1, 1, generator);
      ASSERT_TRUE(program.set_param("w", value.as<float>()));
      ASSERT_TRUE(plain.set_param("w", value.as<float>()));
      const std::vector<float> made = floats(program.run({{"x", input}}).value()["y"]);
      const std::vector<float> wanted = floats(plain.run({{"x", input}}).value()["y"]);
      EXPECT_GT(cosine(made, wanted), 0.999) << name_of(precision);
    }
  }
}

}  // namespace
}  // namespace rlx
