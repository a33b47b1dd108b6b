// Names of scalar operations.
#include "graph/scalar.hpp"

#include <iterator>
#include <limits>

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
  const auto at = [&](ScalarId id) -> const ScalarNode& {
    return nodes[static_cast<std::size_t>(id)];
  };
  if (node.op != ScalarOp::exp || node.dtype != DType::f32) return false;
  const ScalarNode& difference = at(node.a);
  if (difference.op != ScalarOp::sub) return false;
  ScalarId largest = difference.b;
  if (const ScalarNode& chosen = at(largest); chosen.op == ScalarOp::select) {
    const auto is_number = [&](ScalarId id, double value) {
      return at(id).op == ScalarOp::constant && at(id).value == value;
    };
    const ScalarNode& hidden = at(chosen.a);
    largest = chosen.c;
    if (hidden.op != ScalarOp::equal || hidden.a != largest || !is_number(chosen.b, 0) ||
        !is_number(hidden.b, -std::numeric_limits<double>::infinity()))
      return false;
  }
  const ScalarNode& max = at(largest);
  return max.op == ScalarOp::reduce && max.reduce_kind == ReduceKind::max && max.a == difference.a;
}

}  // namespace rlx
