// Quantised models on the CPU beside the reference evaluation of the same graphs: integers exactly,
// quantised results within one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "../ops/sample_inputs.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

Tensor bytes(DType dtype, Dims dims, std::mt19937& random) {
  const Type type{dtype, Shape(dims.begin(), dims.end())};
  return dtype == u8 ? testing::noise(type, 0, 255, random)
                     : testing::noise(type, -128, 127, random);
}

std::int64_t element(const Tensor& tensor, std::int64_t index) {
  return load_datum(tensor.dtype(), tensor.data(), index).integer;
}

/// The largest difference of any integer of the outputs from the reference evaluation's.
std::int64_t largest_difference(const Graph& graph, std::uint32_t seed) {
  static Session session(Device::cpu);
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  std::vector<NamedInput> named;
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    const Type& type = node.results[0];
    inputs.push_back(type.dtype == f32 ? testing::noise(type, -4, 4, random)
                                       : bytes(type.dtype, type.dims(), random));
    names.push_back(input->name);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) named.emplace_back(names[i], inputs[i]);
  const auto wanted = evaluate_graph(graph, inputs).value();
  auto program = session.compile(graph);
  if (!program.ok()) throw Exception(program.error());
  auto made = program->run(named);
  if (!made.ok()) throw Exception(made.error());
  std::int64_t largest = 0;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Tensor& result = (*made)[k];
    EXPECT_EQ(result.dtype(), wanted[k].dtype());
    for (std::int64_t i = 0; i < wanted[k].elements(); ++i)
      largest = std::max(largest, std::abs(element(result, i) - element(wanted[k], i)));
  }
  return largest;
}

DType either(std::mt19937& random) { return random() % 2 == 0 ? u8 : i8; }

/// A zero point for each of `count` places (0: a scalar), or none.
Value zero(Graph& graph, DType dtype, std::int64_t count, std::mt19937& random) {
  if (random() % 3 == 0) return {};
  return graph.constant(bytes(dtype, count == 0 ? Dims{} : Dims{count}, random));
}

TEST(Quantised, integer_matmuls_are_exact) {
  std::mt19937 random(11);
  for (std::uint32_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    Graph graph;
    const std::int64_t m = between(random, 1, 40), k = between(random, 1, 150),
                       n = between(random, 1, 70), batch = between(random, 1, 3);
    const DType a_type = either(random), b_type = either(random);
    const bool weights = random() % 4 != 0, batches = random() % 3 == 0;
    const Value a = graph.input("a", a_type, batches ? Shape{batch, m, k} : Shape{m, k});
    const Dims b_dims = batches && !weights ? Dims{batch, k, n} : Dims{k, n};
    const Value b = weights ? graph.constant(bytes(b_type, b_dims, random))
                            : graph.input("b", b_type, Shape(b_dims.begin(), b_dims.end()));
    const Value a_zero = zero(graph, a_type, random() % 4 == 0 ? m : 0, random);
    const Value b_zero = zero(graph, b_type, random() % 2 == 0 ? n : 0, random);
    graph.output("y", graph.add(op::IntegerMatmul{}, Values{a, b, a_zero, b_zero})[0]);
    EXPECT_EQ(largest_difference(graph, round), 0);
  }
}

// Negative steps turn the order of bytes around.
TEST(Quantised, steps_of_either_sign_are_right) {
  for (const double step : {0.25, -0.25}) {
    SCOPED_TRACE(step);
    Graph graph;
    const Value scale = graph.constant(f32, step), zero = graph.constant(u8, 100);
    const Value x = graph.input("x", u8, {3, 40});
    const Value real = graph.add_one(op::Dequantize{}, {x, scale, zero});
    graph.output("y", graph.add_one(op::Quantize{.dtype = u8}, {relu(real), scale, zero}));
    EXPECT_EQ(largest_difference(graph, 5), 0);
  }
}

op::IntegerConv some_convolution(std::int64_t groups, std::mt19937& random) {
  op::IntegerConv conv{.groups = groups};
  for (int i = 0; i < 2; ++i) {
    conv.strides.push_back(between(random, 1, 2));
    conv.dilations.push_back(between(random, 1, 2));
    conv.pad_low.push_back(between(random, 0, 2));
    conv.pad_high.push_back(between(random, 0, 2));
  }
  return conv;
}

TEST(Quantised, integer_convolutions_are_exact) {
  std::mt19937 random(12);
  for (std::uint32_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    Graph graph;
    const std::int64_t groups = random() % 4 == 0 ? 2 : 1, kernel = between(random, 1, 4);
    const std::int64_t channels = groups * between(random, 1, 20),
                       columns = groups * between(random, 1, 40);
    const DType x_type = either(random), w_type = either(random);
    const op::IntegerConv conv = some_convolution(groups, random);
    const Value x = graph.input(
        "x", x_type,
        {between(random, 1, 2), channels, between(random, 8, 20), between(random, 8, 20)});
    const Value w =
        graph.constant(bytes(w_type, {columns, channels / groups, kernel, kernel}, random));
    const Value x_zero = zero(graph, x_type, 0, random);
    const Value w_zero = zero(graph, w_type, random() % 2 == 0 ? columns : 0, random);
    graph.output("y", graph.add(conv, Values{x, w, x_zero, w_zero})[0]);
    EXPECT_EQ(largest_difference(graph, round), 0);
  }
}

/// One channel a group.
TEST(Quantised, integer_depthwise_convolutions_are_exact) {
  std::mt19937 random(21);
  for (std::uint32_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    Graph graph;
    const std::int64_t channels = between(random, 2, 70), kernel = between(random, 1, 5);
    const DType x_type = either(random), w_type = either(random);
    const op::IntegerConv conv = some_convolution(channels, random);
    const Value x = graph.input(
        "x", x_type,
        {between(random, 1, 2), channels, between(random, 9, 20), between(random, 9, 20)});
    const Dims filter{channels, 1, kernel, kernel};
    const Value w = random() % 4 == 0
                        ? graph.input("w", w_type, Shape(filter.begin(), filter.end()))
                        : graph.constant(bytes(w_type, filter, random));
    const Value x_zero = zero(graph, x_type, 0, random);
    const Value w_zero = zero(graph, w_type, random() % 2 == 0 ? channels : 0, random);
    graph.output("y", graph.add(conv, Values{x, w, x_zero, w_zero})[0]);
    EXPECT_EQ(largest_difference(graph, round), 0);
  }
}

TEST(Quantised, a_zero_point_from_a_run_pads_images) {
  Graph graph;
  std::mt19937 random(13);
  const Value x = graph.input("x", f32, {1, 8, 9, 9});
  const Values quantised = graph.add(op::DynamicQuantize{}, Values{x});
  const Value w = graph.constant(bytes(i8, {16, 8, 3, 3}, random));
  const op::IntegerConv same{.pad_low = {1, 1}, .pad_high = {1, 1}};
  graph.output("y", graph.add(same, Values{quantised[0], w, quantised[2]})[0]);
  EXPECT_EQ(largest_difference(graph, 3), 0);
}

/// Quantised layers of images as exporters write them: real numbers between integers.
class Layers {
 public:
  Graph graph;
  explicit Layers(DType dtype, std::uint32_t seed) : dtype_(dtype), random_(seed) {}

  Value number(double x) { return graph.constant(f32, x); }
  Value zero() { return graph.constant(dtype_, dtype_ == u8 ? 117 : -9); }
  Value quantised(Value x, double scale) {
    return graph.add(op::Quantize{.dtype = dtype_}, Values{x, number(scale), zero()})[0];
  }
  Value real(Value q, double scale) {
    return graph.add(op::Dequantize{}, Values{q, number(scale), zero()})[0];
  }
  Value around(Value x, double scale) { return real(quantised(x, scale), scale); }
  Value weight(Dims dims, std::int64_t axis = 0) {
    const auto channels = dims[static_cast<std::size_t>(axis)];
    const Tensor scales = testing::noise({f32, {Dim(channels)}}, 0.004, 0.01, random_);
    return graph.add(op::Dequantize{.axis = axis},
                     Values{graph.constant(bytes(i8, dims, random_)), graph.constant(scales)})[0];
  }
  Value conv(Value x, Dims dims, op::Conv attributes) {
    const Tensor bias = testing::noise({f32, {Dim(dims[0])}}, -1, 1, random_);
    return rlx::conv(x, weight(dims), attributes, graph.constant(bias));
  }

 private:
  DType dtype_;
  std::mt19937 random_;
};

/// Convolutions that explain lists as products of bytes.
std::ptrdiff_t kernels_of_bytes(const Graph& graph) {
  Session session(Device::cpu);
  const CompiledGraph program = session.compile(graph).value();
  const Explanation explanation = program.explain().value();
  return std::ranges::count_if(explanation.claims, [](const Explanation::Claim& claim) {
    return claim.op == "integer_conv" && claim.taken && claim.reason.starts_with("int8: ");
  });
}

TEST(Quantised, layers_between_quantised_values_differ_by_a_step_at_most) {
  for (const DType dtype : {u8, i8}) {
    Layers b(dtype, 5);
    const Value x = b.real(b.graph.input("x", dtype, {1, 12, 11, 13}), 0.02);
    const op::Conv same{.pad_low = {1, 1}, .pad_high = {1, 1}};
    const Value hidden = relu(b.conv(x, {24, 12, 3, 3}, same));
    b.graph.output("conv", b.quantised(hidden, 0.06));
    const op::WindowReduce pool{.kind = Reduction::max, .window = {3, 3}, .strides = {2, 2}};
    b.graph.output("pool", b.quantised(b.graph.add(pool, Values{x})[0], 0.02));
    const Value joined = b.graph.add(op::Concat{1}, Values{x, x})[0];
    b.graph.output("joined", b.quantised(joined, 0.02));
    b.graph.output("sum", b.quantised(x + x * b.number(0.3), 0.03));
    b.graph.output(
        "depthwise",
        b.quantised(b.conv(x, {12, 1, 3, 3}, {.pad_low = {1, 1}, .pad_high = {1, 1}, .groups = 12}),
                    0.05));
    EXPECT_LE(largest_difference(b.graph, 4), 1) << name_of(dtype);
  }
}

// The numbers behind a product are clamped and rounded as bytes would be, whichever operand of the
// sum is made last and whoever else reads them.
TEST(Quantised, sums_and_gates_of_products_differ_by_a_step_at_most) {
  for (const DType dtype : {u8, i8}) {
    Layers b(dtype, 7);
    const Value x = b.real(b.graph.input("x", dtype, {1, 16, 9, 7}), 0.02);
    const Value first = b.around(b.conv(x, {32, 16, 1, 1}, {}), 0.03);
    const Value second =
        b.around(b.conv(x, {32, 16, 3, 3}, {.pad_low = {1, 1}, .pad_high = {1, 1}}), 0.04);
    b.graph.output("sum", b.quantised(relu(first + second), 0.05));
    const Value early = b.conv(x, {32, 16, 1, 1}, {}), late = b.conv(x, {32, 16, 1, 1}, {});
    b.graph.output("turned", b.quantised(b.around(late, 0.03) + b.around(early, 0.03), 0.05));
    const Value gated = b.around(b.conv(x, {32, 16, 1, 1}, {}), 0.03);
    const Value gate = b.around(sigmoid(gated), 0.01);
    b.graph.output("gated", b.quantised(gated * gate, 0.03));
    const Value part = b.around(b.conv(x, {32, 16, 1, 1}, {}), 0.03);
    b.graph.output("joined",
                   b.quantised(b.graph.add(op::Concat{1}, Values{part, second})[0], 0.04));
    EXPECT_LE(largest_difference(b.graph, 4), 2) << name_of(dtype);
  }
}

/// Sub-pixel layers: kernels larger and smaller than the stride, crops, groups, scales of channels
/// or of all, zero points of weights; alone, behind a relu, and in a concatenation.
TEST(Quantised, transposed_convolutions_differ_by_a_step_at_most) {
  std::mt19937 random(17);
  for (std::uint32_t round = 0; round < 16; ++round) {
    SCOPED_TRACE(round);
    const DType dtype = either(random);
    Layers b(dtype, round);
    const std::int64_t groups = random() % 4 == 0 ? 2 : 1, in = groups * between(random, 4, 12),
                       out = groups * between(random, 1, 9);
    const Value x = b.real(b.graph.input("x", dtype, {between(random, 1, 2), in, 7, 6}), 0.02);
    op::Conv conv{.groups = groups, .transposed = true};
    Dims filter{in, out / groups};
    for (int axis = 0; axis < 2; ++axis) {
      filter.push_back(between(random, 2, 5));
      conv.strides.push_back(between(random, 1, 3));
      conv.pad_low.push_back(between(random, 0, 1));
      conv.pad_high.push_back(between(random, 0, 1));
    }
    const bool of_channels = groups == 1 && random() % 2 == 0;
    const Tensor scales =
        testing::noise(of_channels ? Type{f32, {Dim(out)}} : Type{f32, {}}, 0.004, 0.01, random);
    const Value w =
        b.graph.add(op::Dequantize{.axis = 1},
                    Values{b.graph.constant(bytes(i8, filter, random)), b.graph.constant(scales),
                           of_channels ? Value{} : zero(b.graph, i8, 0, random)})[0];
    const Value bias = b.graph.constant(testing::noise({f32, {Dim(out)}}, -1, 1, random));
    const Value y = rlx::conv(x, w, conv, bias);
    b.graph.output("alone", b.quantised(y, 0.05));
    const Value upper = b.around(relu(rlx::conv(x, w, conv)), 0.05);
    b.graph.output(
        "joined",
        b.quantised(b.graph.add(op::Concat{1}, Values{upper, b.around(y, 0.04)})[0], 0.06));
    EXPECT_LE(largest_difference(b.graph, round), 1);
  }
}

TEST(Quantised, transposed_convolutions_multiply_bytes) {
  Layers b(u8, 9);
  const Value x = b.real(b.graph.input("x", u8, {1, 16, 8, 8}), 0.02);
  const op::Conv twice{.strides = {2, 2}, .transposed = true};
  b.graph.output("y", b.quantised(rlx::conv(x, b.weight({16, 8, 2, 2}, 1), twice), 0.05));
  EXPECT_EQ(kernels_of_bytes(b.graph), 1);
}

TEST(Quantised, a_matmul_with_its_bias_differs_by_a_step_at_most) {
  Layers b(u8, 6);
  std::mt19937 random(7);
  const Value x = b.real(b.graph.input("x", u8, {17, 70}), 0.02);
  const Value w = transpose(b.weight({33, 70}), {1, 0});
  const Value bias = b.graph.constant(testing::noise({f32, {33}}, -1, 1, random));
  b.graph.output("y", b.quantised(relu(matmul(x, w) + bias), 0.04));
  EXPECT_LE(largest_difference(b.graph, 8), 1);
}

TEST(Quantised, kernels_of_bytes_are_listed) {
  Layers b(u8, 9);
  const Value x = b.real(b.graph.input("x", u8, {1, 16, 8, 8}), 0.02);
  b.graph.output("y", b.quantised(b.conv(x, {32, 16, 1, 1}, {}), 0.05));
  EXPECT_EQ(kernels_of_bytes(b.graph), 1);
}

}  // namespace
}  // namespace rlx
