// Softmax and its kin. In every row of -inf alone softmax gives NaN, as NumPy's formula does.
#include <algorithm>
#include <cmath>

#include "ops/norm.hpp"

namespace rlx {
namespace {

double maximum(const std::vector<double>& row) {
  double result = row[0];
  for (const double value : row) {
    if (std::isnan(value)) return value;
    result = std::max(result, value);
  }
  return result;
}

/// One float operand and an axis; the result has its type.
template <class A>
struct AxisRules {
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("axis", &A::axis)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype), Rules<A>::name, "floats", args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const A& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const std::size_t axis = axis_at(a.axis, x.rank());
    std::vector<double> values = load_all<double>(x);
    if (!values.empty()) map_rows(row_shape(x.dims, axis, axis + 1), values, Rules<A>::row);
    store_all<double>(args.out(0), values);
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16})
      list.push_back({.op = A{}, .inputs = {Type{dtype, {3, 17}}}});
    list.push_back({.op = A{.axis = 1}, .inputs = {Type{f32, {2, 5, 3}}}});
    list.push_back({.op = A{.axis = 0}, .inputs = {Type{f32, {33}}}, .low = -90, .high = 90});
    return list;
  }
};

}  // namespace

// exp(x - max) / sum(exp(x - max))
template <>
struct Rules<op::Softmax> : AxisRules<op::Softmax> {
  static constexpr std::string_view name = "softmax";
  static void row(std::vector<double>& row) {
    const double max = maximum(row);
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value - max);
    for (double& value : row) value /= sum;
  }
  static Values body(const op::Softmax& a, Graph&, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const Value powers = exp(x - max_over(x, {a.axis}, true));
    // One division for a row: the sum is at least 1.
    return {cast(powers * reciprocal(sum(powers, {a.axis}, true)), inputs[0].dtype())};
  }
  static OpCost cost(const op::Softmax&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(5, inputs, results);
  }
};
RLX_OP(op::Softmax, "norm")

// x - max - log(sum(exp(x - max)))
template <>
struct Rules<op::LogSoftmax> : AxisRules<op::LogSoftmax> {
  static constexpr std::string_view name = "log_softmax";
  static void row(std::vector<double>& row) {
    const double max = maximum(row);
    double sum = 0;
    for (const double value : row) sum += std::exp(value - max);
    for (double& value : row) value = value - max - std::log(sum);
  }
  static Values body(const op::LogSoftmax& a, Graph&, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const Value shifted = x - max_over(x, {a.axis}, true);
    return {cast(shifted - log(sum(exp(shifted), {a.axis}, true)), inputs[0].dtype())};
  }
  static OpCost cost(const op::LogSoftmax&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(5, inputs, results);
  }
};
RLX_OP(op::LogSoftmax, "norm")

// 1 at the first maximum, 0 elsewhere
template <>
struct Rules<op::Hardmax> : AxisRules<op::Hardmax> {
  static constexpr std::string_view name = "hardmax";
  static void row(std::vector<double>& row) {
    const double max = maximum(row);
    const auto best = std::find_if(row.begin(), row.end(),
                                   [&](double value) { return value == max || std::isnan(value); });
    const auto position = best - row.begin();
    std::fill(row.begin(), row.end(), 0.0);
    row[position] = 1;
  }
  static Values body(const op::Hardmax& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = inputs[0];
    const std::int64_t axis = a.axis < 0 ? a.axis + x.rank() : a.axis;
    const Value best =
        graph.add_one(op::ArgReduce{.max = true, .axis = axis, .keep_dims = true}, {x});
    Shape line(x.rank(), Dim(1));
    line[axis] = x.shape()[axis];
    return {cast(equal(graph.add_one(op::Iota{i64, line, axis}, {}), best), x.dtype())};
  }
  static OpCost cost(const op::Hardmax&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(2, inputs, results);
  }
};
RLX_OP(op::Hardmax, "norm")

}  // namespace rlx
