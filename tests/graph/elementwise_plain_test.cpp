// The short loops of the evaluator beside the scalar evaluation of the same expressions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

std::vector<float> awkward() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0F,   -0.0F,  0.5F,     1.5F,      -2.5F,
                            126.5F, 127.4F, 128.0F,   -127.5F,   -128.9F,
                            1e-42F, 3e38F,  infinity, -infinity, std::nanf("")};
  for (int i = 0; i < 33; ++i) values.push_back(std::sin(static_cast<float>(i)) * 150);
  return values;
}

Tensor tensor(const std::vector<float>& values, Dims dims) {
  Tensor result(f32, std::move(dims));
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(result.mutable_data()));
  return result;
}

bool same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

/// One op of a, and of b where there is one, as the scalar evaluation gives it at (i, j).
double wanted(ScalarOp op, DType from, DType to, double a, double b) {
  ScalarDatum x, y;
  x.number = a, y.number = b, x.integer = from == i8 ? static_cast<std::int64_t>(a) : 0;
  const ScalarNode node{.op = op, .dtype = to, .a = 0, .b = op == ScalarOp::mul ? 1 : -1};
  const ScalarDatum value = apply_scalar(node, from, x, y, {});
  return to == i8 ? static_cast<double>(value.integer) : value.number.real();
}

double at(const Tensor& tensor, std::int64_t i) {
  const ScalarDatum value = load_datum(tensor.dtype(), tensor.data(), i);
  return tensor.dtype() == i8 ? static_cast<double>(value.integer) : value.number.real();
}

TEST(ElementwisePlain, unary_ops_and_casts) {
  const std::vector<float> values = awkward();
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor x = tensor(values, {n});
  const Tensor bytes = evaluate(Op(op::Cast{i8}), std::vector<Tensor>{x}).value()[0];
  const Tensor back = evaluate(Op(op::Cast{f32}), std::vector<Tensor>{bytes}).value()[0];
  const Tensor magnitude = evaluate(Op(op::Abs{}), std::vector<Tensor>{x}).value()[0];
  const Tensor rounded = evaluate(Op(op::Round{}), std::vector<Tensor>{x}).value()[0];
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    EXPECT_TRUE(same(at(bytes, i), wanted(ScalarOp::cast, f32, i8, value, 0))) << value;
    EXPECT_TRUE(same(at(back, i), at(bytes, i))) << value;
    EXPECT_TRUE(same(at(magnitude, i), wanted(ScalarOp::abs, f32, f32, value, 0))) << value;
    EXPECT_TRUE(same(at(rounded, i), wanted(ScalarOp::round, f32, f32, value, 0))) << value;
  }
}

TEST(ElementwisePlain, products_with_rows_columns_and_scalars) {
  const std::vector<float> values = awkward();
  const Tensor x = tensor(values, {3, 4, 4});
  for (const Dims& dims : {Dims{3, 4, 4}, Dims{1, 1, 4}, Dims{4}, Dims{3, 1, 1}, Dims{1, 4, 1},
                           Dims{}, Dims{3, 1, 4}}) {
    const std::int64_t count = element_count(dims);
    const Tensor y = tensor({values.rbegin(), values.rbegin() + count}, dims);
    const Tensor product = evaluate(Op(op::Mul{}), std::vector<Tensor>{x, y}).value()[0];
    Dims all(3 - dims.size(), 1);
    all.insert(all.end(), dims.begin(), dims.end());
    for (std::int64_t i = 0; i < 48; ++i) {
      const std::int64_t index[] = {i / 16 % all[0], i / 4 % 4 % all[1], i % 4 % all[2]};
      const std::int64_t j = (index[0] * all[1] + index[1]) * all[2] + index[2];
      const double a = values[static_cast<std::size_t>(i)], b = at(y, j);
      EXPECT_TRUE(same(at(product, i), wanted(ScalarOp::mul, f32, f32, a, b))) << a << " * " << b;
    }
  }
}

}  // namespace
}  // namespace rlx
