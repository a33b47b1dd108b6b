// Builder functions of elementwise ops, shapes, gathers and reductions: an op and its operands in
// one call.
#include <algorithm>

#include "base/error.hpp"
#include "ops/apply.hpp"
#include "ops/families.hpp"
#include "rlx/ops.hpp"

namespace rlx {
Value operator+(Value a, Value b) { return apply(op::Add{}, {a, b}); }
Value operator-(Value a, Value b) { return apply(op::Sub{}, {a, b}); }
Value operator*(Value a, Value b) { return apply(op::Mul{}, {a, b}); }
Value operator/(Value a, Value b) { return apply(op::Div{}, {a, b}); }
Value operator-(Value x) { return apply(op::Neg{}, {x}); }
Value neg(Value x) { return apply(op::Neg{}, {x}); }
Value abs(Value x) { return apply(op::Abs{}, {x}); }
Value sign(Value x) { return apply(op::Sign{}, {x}); }
Value exp(Value x) { return apply(op::Exp{}, {x}); }
Value log(Value x) { return apply(op::Log{}, {x}); }
Value sqrt(Value x) { return apply(op::Sqrt{}, {x}); }
Value rsqrt(Value x) { return apply(op::Rsqrt{}, {x}); }
Value reciprocal(Value x) { return apply(op::Reciprocal{}, {x}); }
Value sin(Value x) { return apply(op::Sin{}, {x}); }
Value cos(Value x) { return apply(op::Cos{}, {x}); }
Value tanh(Value x) { return apply(op::Tanh{}, {x}); }
Value erf(Value x) { return apply(op::Erf{}, {x}); }
Value floor(Value x) { return apply(op::Floor{}, {x}); }
Value ceil(Value x) { return apply(op::Ceil{}, {x}); }
Value round(Value x) { return apply(op::Round{}, {x}); }
Value logical_not(Value x) { return apply(op::Not{}, {x}); }
Value cast(Value x, DType dtype) {
  if (x && x.dtype() == dtype) return x;
  return apply(op::Cast{.dtype = dtype}, {x});
}
Value clamp(Value x, Value low, Value high) { return apply_optional(op::Clamp{}, {x, low, high}); }
Value relu(Value x) { return apply(op::Relu{}, {x}); }
Value sigmoid(Value x) { return apply(op::Sigmoid{}, {x}); }
Value gelu(Value x, op::Gelu attributes) { return apply(attributes, {x}); }
Value silu(Value x) { return apply(op::Swish{}, {x}); }
Value leaky_relu(Value x, op::LeakyRelu attributes) { return apply(attributes, {x}); }
Value pow(Value x, Value y) { return apply(op::Pow{}, {x, y}); }
Value min(Value a, Value b) { return apply(op::Min{}, {a, b}); }
Value max(Value a, Value b) { return apply(op::Max{}, {a, b}); }
Value equal(Value a, Value b) { return apply(op::Equal{}, {a, b}); }
Value less(Value a, Value b) { return apply(op::Less{}, {a, b}); }
Value less_equal(Value a, Value b) { return apply(op::LessEqual{}, {a, b}); }
Value greater(Value a, Value b) { return apply(op::Greater{}, {a, b}); }
Value logical_and(Value a, Value b) { return apply(op::And{}, {a, b}); }
Value logical_or(Value a, Value b) { return apply(op::Or{}, {a, b}); }
Value select(Value condition, Value a, Value b) { return apply(op::Select{}, {condition, a, b}); }

Value reshape(Value x, Shape shape) { return apply(op::Reshape{std::move(shape)}, {x}); }
Value transpose(Value x, Axes perm) { return apply(op::Transpose{std::move(perm)}, {x}); }
Value broadcast(Value x, Shape shape) { return apply(op::Broadcast{std::move(shape)}, {x}); }

Value unsqueeze(Value x, Axes axes) {
  common_graph({x});
  const int rank = x.rank() + static_cast<int>(axes.size());
  if (axes.empty()) return x;
  auto normal = normalize_axes(axes, rank, x.type());
  if (!normal.ok())
    throw Exception(std::move(normal.error()).while_("adding unsqueeze(" + x.type().text() + ")"));
  Shape shape = x.shape();
  for (const std::int64_t axis : *normal) shape.insert(shape.begin() + axis, Dim(1));
  return reshape(x, std::move(shape));
}

Value squeeze(Value x, Axes axes) {
  common_graph({x});
  if (axes.empty()) return x;
  auto normal = normalize_axes(axes, x.rank(), x.type());
  if (!normal.ok())
    throw Exception(std::move(normal.error()).while_("adding squeeze(" + x.type().text() + ")"));
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    const Dim& dim = x.shape()[static_cast<std::size_t>(i)];
    if (!std::binary_search(normal->begin(), normal->end(), i)) {
      shape.push_back(dim);
    } else if (!compatible(dim, Dim(1))) {
      throw Exception(
          bad_input("Axis ({}) of {} cannot be squeezed: its dim is not 1.", i, x.type().text()));
    }
  }
  return reshape(x, std::move(shape));
}

Value slice(Value x, Axes starts, Axes limits, Axes steps) {
  return apply(op::Slice{std::move(starts), std::move(limits), std::move(steps)}, {x});
}

Value concat(const Values& parts, std::int64_t axis) {
  if (parts.empty()) throw Exception(bad_input("A concat needs at least one part."));
  for (const Value& part : parts) common_graph({parts.front(), part});
  return parts.front().graph().add(op::Concat{axis}, parts).front();
}

Value pad(Value x, Axes low, Axes high, double value) {
  Graph& graph = common_graph({x});
  op::Pad attributes{std::move(low), std::move(high), PadMode::constant};
  if (value == 0) return apply(std::move(attributes), {x});
  return apply(std::move(attributes), {x, graph.constant(x.dtype(), value)});
}

Value gather(Value x, Value indices, std::int64_t axis) {
  return apply(op::Gather{axis}, {x, indices});
}
Value embedding(Value table, Value ids) { return apply(op::Gather{0}, {table, ids}); }

Value reduce(Value x, Reduction kind, Axes axes, bool keep_dims) {
  return apply(op::Reduce{kind, std::move(axes), keep_dims}, {x});
}
Value sum(Value x, Axes axes, bool keep_dims) {
  return reduce(x, Reduction::sum, std::move(axes), keep_dims);
}
Value mean(Value x, Axes axes, bool keep_dims) {
  return reduce(x, Reduction::mean, std::move(axes), keep_dims);
}
Value max_over(Value x, Axes axes, bool keep_dims) {
  return reduce(x, Reduction::max, std::move(axes), keep_dims);
}

}  // namespace rlx
