// Expressions evaluated in blocks give, bit by bit, what the rule for one point gives.
#include "graph/elementwise_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace rlx {
namespace {

using Nodes = std::vector<ScalarNode>;

constexpr DType dtypes[] = {f32, i8, u8, i16, i32};

/// Edges of all the types, then numbers of many sizes.
Tensor values(DType dtype, const Dims& dims, unsigned seed) {
  const double edges[] = {0.0,   -0.0,  0.5,   -0.5,      1.5,      2.5,          -2.5,
                          126.5, 127.5, 128.0, -128.5,    -129,     254.5,        255.5,
                          256.0, 1e-40, 3e38,  8388607.5, -3e9,     2147483520.0, 2147483648.0,
                          NAN,   -NAN,  1e-45, INFINITY,  -INFINITY};
  Tensor tensor(dtype, dims);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-20, 20), sign(-1, 1);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const bool edge = i % 3 == 0;
    const double number = edge ? edges[random() % std::size(edges)]
                               : std::copysign(std::exp2(exponent(random)), sign(random));
    store_datum(dtype, tensor.mutable_data(), i, {number, static_cast<std::int64_t>(random())});
  }
  return tensor;
}

std::int64_t offset_of(const Tensor& operand, const Dims& result, std::int64_t point) {
  std::int64_t offset = 0, stride = 1;
  for (std::size_t i = result.size(), k = operand.dims().size(); i-- > 0;) {
    const std::int64_t index = point % result[i];
    point /= result[i];
    if (k == 0) continue;
    const std::int64_t extent = operand.dims()[--k];
    if (extent != 1) offset += index * stride;
    stride *= extent;
  }
  return offset;
}

bool same(DType dtype, const std::byte* got, const std::byte* want) {
  if (dtype == f32 && std::isnan(load_datum(f32, want, 0).number.real()))
    return std::isnan(load_datum(f32, got, 0).number.real());
  return std::memcmp(got, want, size_of(dtype)) == 0;
}

/// Evaluates an op on one or two loaded operands both ways.
void expect_same(const ScalarNode& op, std::span<const Tensor> operands, const Dims& dims) {
  Nodes nodes;
  std::vector<TensorView> views;
  for (const Tensor& operand : operands) {
    nodes.push_back({.op = ScalarOp::load,
                     .dtype = operand.dtype(),
                     .index = static_cast<std::int32_t>(views.size())});
    views.emplace_back(operand);
  }
  nodes.push_back(op);
  Tensor got(op.dtype, dims), want(op.dtype, dims);
  std::vector<MutableTensorView> outputs{{op.dtype, got.dims(), got.mutable_data()}};
  ASSERT_TRUE(
      evaluate_in_blocks(nodes, static_cast<ScalarId>(nodes.size()) - 1, EvalArgs{views, outputs}))
      << name_of(op.op);
  const auto datum = [&](std::size_t k, std::int64_t point) {
    if (k >= operands.size()) return ScalarDatum{};
    return load_datum(operands[k].dtype(), operands[k].data(), offset_of(operands[k], dims, point));
  };
  for (std::int64_t i = 0; i < want.elements(); ++i) {
    store_datum(op.dtype, want.mutable_data(), 0,
                apply_scalar(op, operands[0].dtype(), datum(0, i), datum(1, i), {}));
    const auto* bytes = got.data() + i * static_cast<std::int64_t>(size_of(op.dtype));
    ASSERT_TRUE(same(op.dtype, bytes, want.data()))
        << name_of(op.op) << " to " << name_of(op.dtype) << " at " << i << ": "
        << datum(0, i).number.real() << ", " << datum(1, i).number.real();
  }
}

TEST(elementwise_blocks, casts_are_those_of_one_point) {
  for (const DType from : dtypes) {
    const Tensor x = values(from, {1500}, 1);
    for (const DType to : dtypes)
      expect_same({.op = ScalarOp::cast, .dtype = to, .a = 0}, {&x, 1}, {1500});
  }
}

TEST(elementwise_blocks, halves_are_read_as_floats) {
  for (const DType from : {f16, DType::bf16}) {
    const Tensor x = values(from, {1500}, 1);
    for (const DType to : {f32, i8, i32})
      expect_same({.op = ScalarOp::cast, .dtype = to, .a = 0}, {&x, 1}, {1500});
  }
}

TEST(elementwise_blocks, ops_are_those_of_one_point) {
  const Tensor operands[] = {values(f32, {3000}, 1), values(f32, {3000}, 2)};
  for (const ScalarOp op : {ScalarOp::neg, ScalarOp::abs, ScalarOp::round})
    expect_same({.op = op, .a = 0}, std::span(operands, 1), {3000});
  for (const ScalarOp op :
       {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div, ScalarOp::min, ScalarOp::max})
    expect_same({.op = op, .a = 0, .b = 1}, operands, {3000});
}

TEST(elementwise_blocks, integers_wrap_as_those_of_one_point) {
  for (const DType dtype : {i8, u8, i16, i32}) {
    const Tensor operands[] = {values(dtype, {1500}, 1), values(dtype, {1500}, 2)};
    for (const ScalarOp op : {ScalarOp::add, ScalarOp::sub, ScalarOp::mul})
      expect_same({.op = op, .dtype = dtype, .a = 0, .b = 1}, operands, {1500});
  }
}

TEST(elementwise_blocks, operands_are_broadcast) {
  const Dims shapes[][3] = {{{3, 700}, {1, 700}, {3, 700}}, {{3, 700}, {3, 1}, {3, 700}},
                            {{2, 1, 4}, {3, 1}, {2, 3, 4}}, {{4}, {2, 3, 1}, {2, 3, 4}},
                            {{}, {5, 1, 2}, {5, 1, 2}},     {{}, {}, {}},
                            {{1, 1}, {1}, {1, 1}},          {{2, 3, 1, 5}, {4, 1}, {2, 3, 4, 5}},
                            {{2, 0}, {1, 1}, {2, 0}}};
  for (const auto& [a, b, result] : shapes) {
    const Tensor operands[] = {values(f32, a, 1), values(f32, b, 2)};
    expect_same({.op = ScalarOp::sub, .a = 0, .b = 1}, operands, result);
  }
}

TEST(elementwise_blocks, other_types_and_ops_are_left_alone) {
  const Tensor x = values(f32, {4}, 1);
  Tensor out(f64, {4});
  const std::vector<TensorView> views{TensorView(x)};
  const std::vector<MutableTensorView> outputs{{f64, out.dims(), out.mutable_data()}};
  const ScalarNode load{.op = ScalarOp::load, .index = 0};
  const Nodes to_f64{load, {.op = ScalarOp::cast, .dtype = f64, .a = 0}};
  const Nodes erf{load, {.op = ScalarOp::erf, .a = 0}};
  EXPECT_FALSE(evaluate_in_blocks(to_f64, 1, EvalArgs{views, outputs}));
  const Tensor halves = values(f16, {4}, 1);
  Tensor copy(f16, {4});
  const std::vector<TensorView> half_views{TensorView(halves)};
  const std::vector<MutableTensorView> half_outputs{{f16, copy.dims(), copy.mutable_data()}};
  const Nodes only_load{{.op = ScalarOp::load, .dtype = f16, .index = 0}};
  EXPECT_FALSE(evaluate_in_blocks(only_load, 0, EvalArgs{half_views, half_outputs}));
  EXPECT_FALSE(evaluate_in_blocks(erf, 1, EvalArgs{views, outputs}));
}

}  // namespace
}  // namespace rlx
