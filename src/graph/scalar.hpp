// Scalar expressions: the meaning of elementwise ops as data, read by the evaluator of regions and
// by every emitter.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/dtype.hpp"

namespace rlx {

/// Operation of one expression node. Semantics on floats are IEEE; integers wrap; bool is 0 or 1.
/// min and max return NaN if an operand is NaN. f16 and bf16 operands are computed in f32 and
/// rounded to nearest even.
enum class ScalarOp : std::uint8_t {
  // leaves
  constant,      ///< value (floats) or integer (integers, bool)
  load,          ///< element of a buffer through accesses[index]
  domain_index,  ///< value of domain dim `index`, i64
  accumulator,   ///< the contraction's result at this point (epilogues only)
  // unary
  neg,
  abs,
  sign,
  exp,
  expm1,
  exp2,
  log,
  log1p,
  log2,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  floor,
  ceil,
  round,
  trunc,    ///< round: half to even
  bit_not,  ///< logical not on bool
  is_nan,
  is_inf,  ///< result bool
  cast,  ///< numeric conversion; float to integer truncates and saturates, NaN gives 0; to bool: !=
         ///< 0
  bitcast,  ///< same bits, same size
  // binary
  add,
  sub,
  mul,
  div,  ///< integer div truncates; by zero gives 0
  rem,  ///< sign of the dividend (C fmod); integer by zero gives 0
  mod,  ///< sign of the divisor (Python %)
  pow,
  atan2,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,  ///< right shift: arithmetic on signed types; shift >= width gives 0 (or the sign)
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,  ///< result bool
  // ternary
  select,  ///< a (bool) ? b : c
  // over the reduction dims of a nest
  reduce,  ///< reduce_kind over operand a
};

/// What a reduction computes. Mean is a sum followed by a multiplication and is no kind of its own
/// here.
enum class ReduceKind : std::uint8_t { sum, prod, min, max, any, all, argmin, argmax };

constexpr std::string_view name_of(ReduceKind kind) {
  constexpr std::string_view names[] = {"sum", "prod", "min",    "max",
                                        "any", "all",  "argmin", "argmax"};
  return names[static_cast<int>(kind)];
}

std::string_view name_of(ScalarOp op);

using ScalarId = std::int32_t;

/// One node of an expression; operands are earlier nodes.
struct ScalarNode {
  ScalarOp op = ScalarOp::constant;
  DType dtype = DType::f32;                  ///< of the result
  ScalarId a = -1, b = -1, c = -1;           ///< operands
  std::int32_t index = -1;                   ///< load: access; domain_index: dim
  ReduceKind reduce_kind = ReduceKind::sum;  ///< reduce: arg kinds give the i64 position in the
                                             ///< linearised reduction domain (first wins)
  double value = 0;                          ///< constant of a float type
  std::int64_t integer = 0;                  ///< constant of an integer type or bool

  bool operator==(const ScalarNode&) const = default;
};

/// Whether it is the e^(x - max(x)) of a softmax in f32, or of one that takes 0 for a maximum of
/// -inf, where every x is hidden.
bool is_softmax_power(const ScalarNode& node, std::span<const ScalarNode> nodes);

}  // namespace rlx
