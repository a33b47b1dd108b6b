// The expression builder behind ScalarValue.
#include "graph/scalar_value.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rlx {

DType ScalarValue::dtype() const {
  RLX_CHECK(!is_literal());
  return builder_->nodes()[static_cast<std::size_t>(id_)].dtype;
}

ScalarValue ScalarBuilder::add(const ScalarNode& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  if (found != nodes_.end()) return {this, static_cast<ScalarId>(found - nodes_.begin())};
  nodes_.push_back(node);
  return {this, static_cast<ScalarId>(nodes_.size() - 1)};
}

ScalarValue ScalarBuilder::constant(DType dtype, double value) {
  ScalarNode node{.op = ScalarOp::constant, .dtype = dtype};
  if (is_float(dtype) || is_complex(dtype)) {
    node.value = value;
  } else {
    node.integer = static_cast<std::int64_t>(value);
  }
  return add(node);
}

ScalarValue ScalarBuilder::unary(ScalarOp op, ScalarValue a) {
  DType dtype = a.dtype();
  if (op == ScalarOp::is_nan || op == ScalarOp::is_inf) dtype = DType::boolean;
  if (op == ScalarOp::abs && is_complex(dtype))
    dtype = dtype == DType::c64 ? DType::f32 : DType::f64;
  return add({.op = op, .dtype = dtype, .a = a.id()});
}

ScalarValue ScalarBuilder::binary(ScalarOp op, ScalarValue a, ScalarValue b) {
  RLX_CHECK(!a.is_literal() || !b.is_literal());
  if (a.is_literal()) a = constant(b.dtype(), a.literal());
  if (b.is_literal()) b = constant(a.dtype(), b.literal());
  RLX_CHECK(a.dtype() == b.dtype(), "{}: {} and {}", name_of(op), name_of(a.dtype()),
            name_of(b.dtype()));
  const bool compares = op >= ScalarOp::equal && op <= ScalarOp::greater_equal;
  return add({.op = op, .dtype = compares ? DType::boolean : a.dtype(), .a = a.id(), .b = b.id()});
}

ScalarValue ScalarBuilder::select(ScalarValue condition, ScalarValue a, ScalarValue b) {
  RLX_CHECK(!a.is_literal() || !b.is_literal());
  if (a.is_literal()) a = constant(b.dtype(), a.literal());
  if (b.is_literal()) b = constant(a.dtype(), b.literal());
  return add(
      {.op = ScalarOp::select, .dtype = a.dtype(), .a = condition.id(), .b = a.id(), .c = b.id()});
}

ScalarValue ScalarBuilder::cast(ScalarValue a, DType dtype) {
  if (a.is_literal()) return constant(dtype, a.literal());
  if (a.dtype() == dtype) return a;
  return add({.op = ScalarOp::cast, .dtype = dtype, .a = a.id()});
}

ScalarValue ScalarBuilder::bitcast(ScalarValue a, DType dtype) {
  if (a.dtype() == dtype) return a;
  return add({.op = ScalarOp::bitcast, .dtype = dtype, .a = a.id()});
}

ScalarValue ScalarBuilder::reduce(ReduceKind kind, ScalarValue a) {
  const bool positions = kind == ReduceKind::argmin || kind == ReduceKind::argmax;
  return add({.op = ScalarOp::reduce,
              .dtype = positions ? DType::i64 : a.dtype(),
              .a = a.id(),
              .reduce_kind = kind});
}

namespace {
ScalarBuilder& builder_of(ScalarValue a, ScalarValue b) {
  RLX_CHECK(a.builder() || b.builder());
  return a.builder() ? *a.builder() : *b.builder();
}
}  // namespace

#define RLX_UNARY(function, op) \
  ScalarValue function(ScalarValue a) { return a.builder()->unary(ScalarOp::op, a); }
#define RLX_BINARY(function, op)                        \
  ScalarValue function(ScalarValue a, ScalarValue b) {  \
    return builder_of(a, b).binary(ScalarOp::op, a, b); \
  }

RLX_BINARY(operator+, add)
RLX_BINARY(operator-, sub)
RLX_BINARY(operator*, mul)
RLX_BINARY(operator/, div)
RLX_UNARY(operator-, neg)
RLX_BINARY(operator<, less)
RLX_BINARY(operator<=, less_equal)
RLX_BINARY(operator>, greater)
RLX_BINARY(operator>=, greater_equal)

namespace scalar {
RLX_UNARY(abs, abs)
RLX_UNARY(sign, sign)
RLX_UNARY(exp, exp)
RLX_UNARY(expm1, expm1)
RLX_UNARY(log, log)
RLX_UNARY(log1p, log1p)
RLX_UNARY(sqrt, sqrt)
RLX_UNARY(rsqrt, rsqrt)
RLX_UNARY(reciprocal, reciprocal)
RLX_UNARY(sin, sin)
RLX_UNARY(cos, cos)
RLX_UNARY(tan, tan)
RLX_UNARY(asin, asin)
RLX_UNARY(acos, acos)
RLX_UNARY(atan, atan)
RLX_UNARY(sinh, sinh)
RLX_UNARY(cosh, cosh)
RLX_UNARY(tanh, tanh)
RLX_UNARY(asinh, asinh)
RLX_UNARY(acosh, acosh)
RLX_UNARY(atanh, atanh)
RLX_UNARY(erf, erf)
RLX_UNARY(floor, floor)
RLX_UNARY(ceil, ceil)
RLX_UNARY(round, round)
RLX_UNARY(trunc, trunc)
RLX_UNARY(bit_not, bit_not)
RLX_UNARY(is_nan, is_nan)
RLX_UNARY(is_inf, is_inf)
RLX_BINARY(rem, rem)
RLX_BINARY(mod, mod)
RLX_BINARY(pow, pow)
RLX_BINARY(atan2, atan2)
RLX_BINARY(min, min)
RLX_BINARY(max, max)
RLX_BINARY(bit_and, bit_and)
RLX_BINARY(bit_or, bit_or)
RLX_BINARY(bit_xor, bit_xor)
RLX_BINARY(shift_left, shift_left)
RLX_BINARY(shift_right, shift_right)
RLX_BINARY(equal, equal)
RLX_BINARY(not_equal, not_equal)

ScalarValue select(ScalarValue condition, ScalarValue a, ScalarValue b) {
  return condition.builder()->select(condition, a, b);
}
ScalarValue cast(ScalarValue a, DType dtype) { return a.builder()->cast(a, dtype); }
}  // namespace scalar

}  // namespace rlx
