// Activation functions of recurrent cells by name: as numbers for the reference, as expressions for
// generated code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/scalar_value.hpp"
#include "rlx/ops.hpp"
#include "rlx/result.hpp"

namespace rlx {

/// The attributes that every recurrent layer has.
struct RecurrentAttributes {
  Direction direction;
  const std::vector<std::string>& activations;
  const std::vector<double>&alphas, &betas;
};

/// An activation function with its parameters.
struct CellFunction {
  double (*apply)(double x, double alpha, double beta) = nullptr;
  ScalarValue (*scalar)(ScalarValue x, double alpha, double beta) = nullptr;
  double alpha = 0, beta = 0;

  double operator()(double x) const { return apply(x, alpha, beta); }
  ScalarValue operator()(ScalarValue x) const { return scalar(x, alpha, beta); }
  bool operator==(const CellFunction&) const = default;
};

/// The functions of one direction after another; `defaults` for each where none are named. Names as
/// ONNX spells them or in snake case; alphas and betas go, in order, to the functions that take
/// them.
Result<std::vector<CellFunction>> cell_functions(std::string_view op,
                                                 const RecurrentAttributes& attributes,
                                                 const std::vector<std::string>& defaults);

/// Two for a bidirectional layer.
inline std::int64_t direction_count(Direction direction) {
  return direction == Direction::bidirectional ? 2 : 1;
}

}  // namespace rlx
