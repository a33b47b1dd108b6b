// What the recurrent layers share: operands as ONNX lays them out, and the walk over time.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "graph/cell_function.hpp"
#include "graph/rules.hpp"
#include "ops/reference.hpp"

namespace rlx {

/// The sum that enters a gate, clipped to [-limit, limit] where a limit is set.
inline double clipped(double sum, double limit) {
  return limit > 0 ? std::clamp(sum, -limit, limit) : sum;
}

/// Checks (x, w, r, b?, lengths?, h0?, ...) of a layer with so many gates; gives (y, h).
Result<std::vector<Type>> infer_recurrent(std::string_view op, Direction direction,
                                          std::int64_t gates, const InferArgs& args);

/// An optional operand of dims [D, ...] and x's dtype.
Status check_operand(std::string_view op, std::string_view what, const InferArgs& args, int i,
                     const Shape& wanted);

/// Operands on concrete data. Weights of a direction start at its multiple of the direction's size.
struct RecurrentLayer {
  std::int64_t steps, batch, inputs, hidden, directions, gates;
  std::vector<double> x, w, r, b, h0;
  std::vector<std::int64_t> lengths;  ///< one for each batch item
  bool reverse = false;               ///< of the first direction

  RecurrentLayer(Direction direction, std::int64_t gates, const EvalArgs& args);
  bool walks_back(std::int64_t d) const { return d == 1 || reverse; }
  double weight(std::int64_t d, std::int64_t gate, std::int64_t unit, std::int64_t i) const {
    return w[((d * gates + gate) * hidden + unit) * inputs + i];
  }
  double recurrence(std::int64_t d, std::int64_t gate, std::int64_t unit, std::int64_t i) const {
    return r[((d * gates + gate) * hidden + unit) * hidden + i];
  }
  double input_bias(std::int64_t d, std::int64_t gate, std::int64_t unit) const {
    return b.empty() ? 0 : b[(d * 2 * gates + gate) * hidden + unit];
  }
  double recurrent_bias(std::int64_t d, std::int64_t gate, std::int64_t unit) const {
    return b.empty() ? 0 : b[((d * 2 + 1) * gates + gate) * hidden + unit];
  }
  /// x w^T + input bias of one gate at one step.
  double from_input(std::int64_t d, std::int64_t gate, std::int64_t unit, std::int64_t step,
                    std::int64_t item) const;
  /// h r^T of one gate, without its bias.
  double from_hidden(std::int64_t d, std::int64_t gate, std::int64_t unit,
                     const std::vector<double>& h) const;
};

/// Advances one item by one step: changes h.
using CellStep = std::function<void(std::int64_t direction, std::int64_t item, std::int64_t step,
                                    std::vector<double>& h)>;

/// Walks every direction and item over its length; stores y [S,D,B,H] (zeros beyond a length) and
/// the last h [D,B,H].
void run_recurrent(const RecurrentLayer& layer, const EvalArgs& args, const CellStep& step);

/// The layer as matmuls and a scan for each direction. Dims must be static.
Values recurrent_body(const Op& op, Graph& graph, std::span<const Value> inputs);

/// Two FLOPs for each weight, step and item.
OpCost recurrent_cost(std::span<const Type* const> inputs, std::span<const Type> results);

}  // namespace rlx
