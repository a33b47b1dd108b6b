// What the recurrent layers share.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/cancel_scope.hpp"
#include "ops/families.hpp"
#include "ops/recurrent.hpp"

namespace rlx {
namespace {

// "HardSigmoid", "hard_sigmoid" -> "hardsigmoid".
std::string plain_name(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// A function of x, alpha and beta with the parameters' defaults, as numbers and as an expression.
struct NamedFunction {
  std::string_view name;
  int parameters;
  double alpha, beta;
  double (*apply)(double x, double alpha, double beta);
  ScalarValue (*scalar)(ScalarValue x, double alpha, double beta);
};

using Number = double;
using Symbol = ScalarValue;

constexpr NamedFunction functions[] = {
    {"sigmoid", 0, 0, 0, [](Number x, double, double) { return 1 / (1 + std::exp(-x)); },
     [](Symbol x, double, double) { return 1.0 / (1.0 + scalar::exp(-x)); }},
    {"tanh", 0, 0, 0, [](Number x, double, double) { return std::tanh(x); },
     [](Symbol x, double, double) { return scalar::tanh(x); }},
    {"relu", 0, 0, 0, [](Number x, double, double) { return std::max(x, 0.0); },
     [](Symbol x, double, double) { return scalar::max(x, 0.0); }},
    {"softsign", 0, 0, 0, [](Number x, double, double) { return x / (1 + std::abs(x)); },
     [](Symbol x, double, double) { return x / (1.0 + scalar::abs(x)); }},
    {"softplus", 0, 0, 0,
     [](Number x, double, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
     [](Symbol x, double, double) {
       return scalar::max(x, 0.0) + scalar::log1p(scalar::exp(-scalar::abs(x)));
     }},
    {"affine", 2, 1, 0, [](Number x, double alpha, double beta) { return alpha * x + beta; },
     [](Symbol x, double alpha, double beta) { return alpha * x + beta; }},
    {"leakyrelu", 1, 0.01, 0, [](Number x, double alpha, double) { return x < 0 ? alpha * x : x; },
     [](Symbol x, double alpha, double) { return scalar::select(x < 0.0, alpha * x, x); }},
    {"thresholdedrelu", 1, 1, 0, [](Number x, double alpha, double) { return x > alpha ? x : 0; },
     [](Symbol x, double alpha, double) { return scalar::select(x > alpha, x, 0.0); }},
    {"scaledtanh", 2, 1, 1,
     [](Number x, double alpha, double beta) { return alpha * std::tanh(beta * x); },
     [](Symbol x, double alpha, double beta) { return alpha * scalar::tanh(beta * x); }},
    {"hardsigmoid", 2, 0.2, 0.5,
     [](Number x, double alpha, double beta) { return std::clamp(alpha * x + beta, 0.0, 1.0); },
     [](Symbol x, double alpha, double beta) {
       return scalar::min(scalar::max(alpha * x + beta, 0.0), 1.0);
     }},
    {"elu", 1, 1, 0,
     [](Number x, double alpha, double) { return x < 0 ? alpha * std::expm1(x) : x; },
     [](Symbol x, double alpha, double) {
       return scalar::select(x < 0.0, alpha * scalar::expm1(x), x);
     }},
};

// The next value of a list that functions consume in order, or the default.
double next_of(const std::vector<double>& values, std::size_t& next, double otherwise) {
  return next < values.size() ? values[next++] : otherwise;
}

}  // namespace

Result<std::vector<CellFunction>> cell_functions(std::string_view op,
                                                 const RecurrentAttributes& attributes,
                                                 const std::vector<std::string>& defaults) {
  const auto directions = static_cast<std::size_t>(direction_count(attributes.direction));
  std::vector<std::string> names = attributes.activations;
  for (std::size_t d = 0; attributes.activations.empty() && d < directions; ++d)
    names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != directions * defaults.size()) {
    return bad_input("The op {} has ({}) activations and wants ({}) for each of ({}) directions.",
                     op, names.size(), defaults.size(), directions);
  }
  std::vector<CellFunction> result;
  std::size_t next_alpha = 0, next_beta = 0;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(std::begin(functions), std::end(functions),
                     [&](const NamedFunction& f) { return f.name == plain_name(name); });
    if (found == std::end(functions))
      return unsupported("The op {} knows no activation ({}).", op, name);
    const double alpha =
        found->parameters > 0 ? next_of(attributes.alphas, next_alpha, found->alpha) : 0;
    const double beta =
        found->parameters > 1 ? next_of(attributes.betas, next_beta, found->beta) : 0;
    result.push_back({found->apply, found->scalar, alpha, beta});
  }
  return result;
}

Status check_operand(std::string_view op, std::string_view what, const InferArgs& args, int i,
                     const Shape& wanted) {
  if (!args.has(i)) return {};
  RLX_TRY(require_same_dtype(op, args[0], args[i]));
  const Shape& shape = args[i].shape;
  if (shape.size() == wanted.size() &&
      std::equal(shape.begin(), shape.end(), wanted.begin(), compatible))
    return {};
  return bad_input("The {} of {} is {} and should be {}.", what, op, args[i].text(),
                   Type{args[0].dtype, wanted}.text());
}

Result<std::vector<Type>> infer_recurrent(std::string_view op, Direction direction,
                                          std::int64_t gates, const InferArgs& args) {
  const Type &x = args[0], &r = args[2];
  RLX_TRY(require(is_float(x.dtype) && x.rank() == 3, op, "floats [steps, batch, inputs]", x));
  if (r.rank() != 3)
    return bad_input("The recurrent weights {} of {} are not [directions, gates * hidden, hidden].",
                     r.text(), op);
  const Dim directions = direction_count(direction), hidden = r.shape[2], &steps = x.shape[0],
            &batch = x.shape[1];
  RLX_TRY(
      check_operand(op, "recurrent weights", args, 2, {directions, Dim(gates) * hidden, hidden}));
  RLX_TRY(
      check_operand(op, "input weights", args, 1, {directions, Dim(gates) * hidden, x.shape[2]}));
  RLX_TRY(check_operand(op, "bias", args, 3, {directions, Dim(2 * gates) * hidden}));
  if (args.has(4) &&
      (args[4].dtype != i32 || args[4].rank() != 1 || !compatible(args[4].shape[0], batch))) {
    return bad_input("The lengths {} of {} are not i32[{}].", args[4].text(), op, batch.text());
  }
  RLX_TRY(check_operand(op, "initial state", args, 5, {directions, batch, hidden}));
  return std::vector<Type>{{x.dtype, {steps, directions, batch, hidden}},
                           {x.dtype, {directions, batch, hidden}}};
}

RecurrentLayer::RecurrentLayer(Direction direction, std::int64_t gate_count, const EvalArgs& args)
    : steps(args.in(0).dims[0]),
      batch(args.in(0).dims[1]),
      inputs(args.in(0).dims[2]),
      hidden(args.in(2).dims[2]),
      directions(direction_count(direction)),
      gates(gate_count),
      x(load_all<double>(args.in(0))),
      w(load_all<double>(args.in(1))),
      r(load_all<double>(args.in(2))),
      reverse(direction == Direction::reverse) {
  if (args.has(3)) b = load_all<double>(args.in(3));
  lengths.assign(batch, steps);
  if (args.has(4)) lengths = load_all<std::int64_t>(args.in(4));
  for (std::int64_t& length : lengths) length = std::clamp<std::int64_t>(length, 0, steps);
  h0.assign(directions * batch * hidden, 0.0);
  if (args.has(5)) h0 = load_all<double>(args.in(5));
}

double RecurrentLayer::from_input(std::int64_t d, std::int64_t gate, std::int64_t unit,
                                  std::int64_t step, std::int64_t item) const {
  double sum = input_bias(d, gate, unit);
  const double* row = x.data() + (step * batch + item) * inputs;
  for (std::int64_t i = 0; i < inputs; ++i) sum += row[i] * weight(d, gate, unit, i);
  return sum;
}

double RecurrentLayer::from_hidden(std::int64_t d, std::int64_t gate, std::int64_t unit,
                                   const std::vector<double>& h) const {
  double sum = 0;
  for (std::int64_t i = 0; i < hidden; ++i) sum += h[i] * recurrence(d, gate, unit, i);
  return sum;
}

void run_recurrent(const RecurrentLayer& layer, const EvalArgs& args, const CellStep& step) {
  std::vector<double> y(args.out(0).elements(), 0.0), last(args.out(1).elements(), 0.0);
  for (std::int64_t d = 0; d < layer.directions; ++d) {
    for (std::int64_t item = 0; item < layer.batch; ++item) {
      const std::int64_t state = (d * layer.batch + item) * layer.hidden,
                         length = layer.lengths[item];
      std::vector<double> h(layer.h0.begin() + state, layer.h0.begin() + state + layer.hidden);
      // Whoever cancels wants no result.
      for (std::int64_t n = 0; n < length && !CancelScope::is_cancelled(); ++n) {
        const std::int64_t t = layer.walks_back(d) ? length - 1 - n : n;
        step(d, item, t, h);
        std::copy(h.begin(), h.end(),
                  y.begin() + ((t * layer.directions + d) * layer.batch + item) * layer.hidden);
      }
      std::copy(h.begin(), h.end(), last.begin() + state);
    }
  }
  store_all<double>(args.out(0), y);
  store_all<double>(args.out(1), last);
}

OpCost recurrent_cost(std::span<const Type* const> inputs, std::span<const Type> results) {
  const Dims x = inputs[0]->dims();
  const double weights = static_cast<double>(inputs[1]->elements() + inputs[2]->elements());
  return {2 * static_cast<double>(x[0] * x[1]) * weights, bytes_of(inputs, results)};
}

}  // namespace rlx
