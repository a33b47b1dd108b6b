// Builds scalar expressions by writing arithmetic: an op states its scalar meaning once, and the
// expression is both evaluated (the reference) and emitted (the backends).
#pragma once

#include <vector>

#include "graph/scalar.hpp"

namespace rlx {

class ScalarBuilder;

/// A node of an expression under construction, or a literal that takes the dtype of its partner.
class ScalarValue {
 public:
  ScalarValue() = default;
  ScalarValue(double literal) : literal_(literal) {}
  ScalarValue(ScalarBuilder* builder, ScalarId id) : builder_(builder), id_(id) {}
  bool is_literal() const { return builder_ == nullptr; }
  double literal() const { return literal_; }
  ScalarBuilder* builder() const { return builder_; }
  ScalarId id() const { return id_; }
  DType dtype() const;

 private:
  ScalarBuilder* builder_ = nullptr;
  ScalarId id_ = -1;
  double literal_ = 0;
};

/// Appends nodes to an expression; equal nodes are made once, constants are folded where both
/// operands are constants of a float type.
class ScalarBuilder {
 public:
  explicit ScalarBuilder(std::vector<ScalarNode>& nodes) : nodes_(nodes) {}

  ScalarValue add(const ScalarNode& node);
  ScalarValue constant(DType dtype, double value);
  ScalarValue unary(ScalarOp op, ScalarValue a);
  /// Literals take the other operand's dtype; comparisons give bool.
  ScalarValue binary(ScalarOp op, ScalarValue a, ScalarValue b);
  ScalarValue select(ScalarValue condition, ScalarValue a, ScalarValue b);
  ScalarValue cast(ScalarValue a, DType dtype);
  ScalarValue bitcast(ScalarValue a, DType dtype);
  ScalarValue reduce(ReduceKind kind, ScalarValue a);
  const std::vector<ScalarNode>& nodes() const { return nodes_; }

 private:
  std::vector<ScalarNode>& nodes_;
};

ScalarValue operator+(ScalarValue a, ScalarValue b);
ScalarValue operator-(ScalarValue a, ScalarValue b);
ScalarValue operator*(ScalarValue a, ScalarValue b);
ScalarValue operator/(ScalarValue a, ScalarValue b);
ScalarValue operator-(ScalarValue a);
ScalarValue operator<(ScalarValue a, ScalarValue b);
ScalarValue operator<=(ScalarValue a, ScalarValue b);
ScalarValue operator>(ScalarValue a, ScalarValue b);
ScalarValue operator>=(ScalarValue a, ScalarValue b);

namespace scalar {
ScalarValue abs(ScalarValue a);
ScalarValue sign(ScalarValue a);
ScalarValue exp(ScalarValue a);
ScalarValue expm1(ScalarValue a);
ScalarValue log(ScalarValue a);
ScalarValue log1p(ScalarValue a);
ScalarValue sqrt(ScalarValue a);
ScalarValue rsqrt(ScalarValue a);
ScalarValue reciprocal(ScalarValue a);
ScalarValue sin(ScalarValue a);
ScalarValue cos(ScalarValue a);
ScalarValue tan(ScalarValue a);
ScalarValue asin(ScalarValue a);
ScalarValue acos(ScalarValue a);
ScalarValue atan(ScalarValue a);
ScalarValue sinh(ScalarValue a);
ScalarValue cosh(ScalarValue a);
ScalarValue tanh(ScalarValue a);
ScalarValue asinh(ScalarValue a);
ScalarValue acosh(ScalarValue a);
ScalarValue atanh(ScalarValue a);
ScalarValue erf(ScalarValue a);
ScalarValue floor(ScalarValue a);
ScalarValue ceil(ScalarValue a);
ScalarValue round(ScalarValue a);
ScalarValue trunc(ScalarValue a);
ScalarValue bit_not(ScalarValue a);
ScalarValue is_nan(ScalarValue a);
ScalarValue is_inf(ScalarValue a);
ScalarValue rem(ScalarValue a, ScalarValue b);
ScalarValue mod(ScalarValue a, ScalarValue b);
ScalarValue pow(ScalarValue a, ScalarValue b);
ScalarValue atan2(ScalarValue a, ScalarValue b);
ScalarValue min(ScalarValue a, ScalarValue b);
ScalarValue max(ScalarValue a, ScalarValue b);
ScalarValue bit_and(ScalarValue a, ScalarValue b);
ScalarValue bit_or(ScalarValue a, ScalarValue b);
ScalarValue bit_xor(ScalarValue a, ScalarValue b);
ScalarValue shift_left(ScalarValue a, ScalarValue b);
ScalarValue shift_right(ScalarValue a, ScalarValue b);
ScalarValue equal(ScalarValue a, ScalarValue b);
ScalarValue not_equal(ScalarValue a, ScalarValue b);
ScalarValue select(ScalarValue condition, ScalarValue a, ScalarValue b);
ScalarValue cast(ScalarValue a, DType dtype);
}  // namespace scalar

}  // namespace rlx
