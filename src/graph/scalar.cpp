// Names of scalar operations.
#include "graph/scalar.hpp"

#include <iterator>

namespace rlx {

std::string_view name_of(ScalarOp op) {
  constexpr std::string_view names[] = {
      "constant",   "load",       "domain_index",  "accumulator", "neg",   "abs",       "sign",
      "exp",        "expm1",      "exp2",          "log",         "log1p", "log2",      "sqrt",
      "rsqrt",      "reciprocal", "sin",           "cos",         "tan",   "asin",      "acos",
      "atan",       "sinh",       "cosh",          "tanh",        "asinh", "acosh",     "atanh",
      "erf",        "floor",      "ceil",          "round",       "trunc", "bit_not",   "is_nan",
      "is_inf",     "cast",       "bitcast",       "add",         "sub",   "mul",       "div",
      "rem",        "mod",        "pow",           "atan2",       "min",   "max",       "bit_and",
      "bit_or",     "bit_xor",    "shift_left",    "shift_right", "equal", "not_equal", "less",
      "less_equal", "greater",    "greater_equal", "select",      "reduce"};
  static_assert(std::size(names) == static_cast<int>(ScalarOp::reduce) + 1);
  return names[static_cast<int>(op)];
}

bool is_softmax_power(const ScalarNode& node, std::span<const ScalarNode> nodes) {
  if (node.op != ScalarOp::exp || node.dtype != DType::f32) return false;
  const ScalarNode& difference = nodes[static_cast<std::size_t>(node.a)];
  if (difference.op != ScalarOp::sub) return false;
  const ScalarNode& max = nodes[static_cast<std::size_t>(difference.b)];
  return max.op == ScalarOp::reduce && max.reduce_kind == ReduceKind::max && max.a == difference.a;
}

}  // namespace rlx
