// Recurrent layers with ONNX's meaning: LSTM, GRU and the plain RNN.
#include "ops/recurrent.hpp"

#include "ops/families.hpp"

namespace rlx {
namespace {

template <class A>
RecurrentAttributes common(const A& a) {
  return {a.direction, a.activations, a.alphas, a.betas};
}

// Types of the samples of a layer with so many gates: x, w, r, b, lengths, h0.
std::vector<Type> sample_types(std::int64_t directions, std::int64_t gates, DType dtype = f32) {
  const std::int64_t steps = 4, batch = 3, inputs = 5, hidden = 2;
  return {{dtype, {steps, batch, inputs}},
          {dtype, {directions, gates * hidden, inputs}},
          {dtype, {directions, gates * hidden, hidden}},
          {dtype, {directions, 2 * gates * hidden}},
          {i32, {batch}},
          {dtype, {directions, batch, hidden}}};
}

std::vector<std::optional<Tensor>> with_lengths() {
  return {{}, {}, {}, {}, Tensor::of<std::int32_t>({3}, {4, 2, 0})};
}

// The first three operands alone.
std::vector<Type> bare(std::vector<Type> types) {
  types.resize(3);
  return types;
}

}  // namespace

// i, o, f = f(x W + h R + P c + b); c' = f c + i g(...); h' = o h(c'). Peepholes: i and f see c, o
// sees c'.
template <>
struct Rules<op::Lstm> {
  using A = op::Lstm;
  static constexpr std::string_view name = "lstm";
  static constexpr Arity arity{3, 8};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("direction", &A::direction), field("activations", &A::activations),
                 field("alphas", &A::alphas),       field("betas", &A::betas),
                 field("clip", &A::clip),           field("input_forget", &A::input_forget)};
  enum Gate { input, output, forget, cell };

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(functions_of(a));
    RLX_ASSIGN(std::vector<Type> types, infer_recurrent(name, a.direction, 4, args));
    const Dim directions = direction_count(a.direction), &hidden = args[2].shape[2];
    RLX_TRY(check_operand(name, "initial cell", args, 6, types[1].shape));
    RLX_TRY(check_operand(name, "peephole", args, 7, {directions, Dim(3) * hidden}));
    types.push_back(types[1]);
    return types;
  }
  static Status eval(const A& a, const EvalArgs& args) {
    RLX_ASSIGN(const auto functions, functions_of(a));
    const RecurrentLayer layer(a.direction, 4, args);
    std::vector<double> cells(args.out(2).elements(), 0.0);
    if (args.has(6)) cells = load_all<double>(args.in(6));
    const std::vector<double> peephole =
        args.has(7) ? load_all<double>(args.in(7))
                    : std::vector<double>(layer.directions * 3 * layer.hidden, 0.0);
    run_recurrent(
        layer, args,
        [&](std::int64_t d, std::int64_t item, std::int64_t step, std::vector<double>& h) {
          const std::vector<double> previous = h;
          const auto f = functions.begin() + static_cast<std::ptrdiff_t>(3 * d);
          for (std::int64_t unit = 0; unit < layer.hidden; ++unit) {
            double& c = cells[(d * layer.batch + item) * layer.hidden + unit];
            const auto sum = [&](Gate gate) {
              return layer.from_input(d, gate, unit, step, item) +
                     layer.from_hidden(d, gate, unit, previous) +
                     layer.recurrent_bias(d, gate, unit);
            };
            const auto peep = [&](Gate gate) {
              return peephole[(d * 3 + gate) * layer.hidden + unit];
            };
            const double in = f[0](clipped(sum(input) + peep(input) * c, a.clip));
            const double kept =
                a.input_forget ? 1 - in : f[0](clipped(sum(forget) + peep(forget) * c, a.clip));
            c = kept * c + in * f[1](clipped(sum(cell), a.clip));
            h[unit] = f[0](clipped(sum(output) + peep(output) * c, a.clip)) * f[2](c);
          }
        });
    store_all<double>(args.out(2), cells);
    return {};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    return recurrent_body(a, graph, inputs);
  }
  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    return recurrent_cost(inputs, results);
  }
  static std::vector<Sample> samples();

 private:
  static Result<std::vector<CellFunction>> functions_of(const A& a) {
    return cell_functions(name, common(a), {"sigmoid", "tanh", "tanh"});
  }
};

std::vector<Sample> Rules<op::Lstm>::samples() {
  std::vector<Sample> list;
  const auto full = [](std::int64_t directions) {
    std::vector<Type> types = sample_types(directions, 4);
    types.push_back(types[5]);
    types.push_back({f32, {directions, 6}});
    return types;
  };
  for (const DType dtype : {f32, f64, f16})
    list.push_back({.op = A{}, .inputs = bare(sample_types(1, 4, dtype))});
  list.push_back({.op = A{.direction = Direction::bidirectional},
                  .inputs = full(2),
                  .values = with_lengths()});
  list.push_back({.op = A{.direction = Direction::reverse, .clip = 0.5, .input_forget = true},
                  .inputs = full(1)});
  list.push_back({.op = A{.activations = {"HardSigmoid", "Affine", "ScaledTanh"},
                          .alphas = {0.3, 0.8, 1.2},
                          .betas = {0.4, 0.1, 0.7}},
                  .inputs = full(1),
                  .absent = {4}});
  return list;
}
RLX_OP(op::Lstm, "recurrent")

// z, r = f(x W + h R + b); n = g(x W + (r h) R + b), or g(x W + r (h R + b)); h' = (1 - z) n + z h
template <>
struct Rules<op::Gru> {
  using A = op::Gru;
  static constexpr std::string_view name = "gru";
  static constexpr Arity arity{3, 6};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{
      field("direction", &A::direction), field("activations", &A::activations),
      field("alphas", &A::alphas),       field("betas", &A::betas),
      field("clip", &A::clip),           field("linear_before_reset", &A::linear_before_reset)};
  enum Gate { update, reset, candidate };

  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(functions_of(a));
    return infer_recurrent(name, a.direction, 3, args);
  }
  static Status eval(const A& a, const EvalArgs& args) {
    RLX_ASSIGN(const auto functions, functions_of(a));
    const RecurrentLayer layer(a.direction, 3, args);
    run_recurrent(
        layer, args,
        [&](std::int64_t d, std::int64_t item, std::int64_t step, std::vector<double>& h) {
          const std::vector<double> previous = h;
          const auto f = functions.begin() + static_cast<std::ptrdiff_t>(2 * d);
          const auto gate_value = [&](Gate gate, std::int64_t unit) {
            return f[0](clipped(layer.from_input(d, gate, unit, step, item) +
                                    layer.from_hidden(d, gate, unit, previous) +
                                    layer.recurrent_bias(d, gate, unit),
                                a.clip));
          };
          std::vector<double> resets, passed;
          for (std::int64_t unit = 0; unit < layer.hidden; ++unit) {
            resets.push_back(gate_value(reset, unit));
            passed.push_back(resets.back() * previous[unit]);
          }
          for (std::int64_t unit = 0; unit < layer.hidden; ++unit) {
            const double bias = layer.recurrent_bias(d, candidate, unit);
            const double recurrent =
                a.linear_before_reset
                    ? resets[unit] * (layer.from_hidden(d, candidate, unit, previous) + bias)
                    : layer.from_hidden(d, candidate, unit, passed) + bias;
            const double next = f[1](clipped(
                             layer.from_input(d, candidate, unit, step, item) + recurrent, a.clip)),
                         z = gate_value(update, unit);
            h[unit] = (1 - z) * next + z * previous[unit];
          }
        });
    return {};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    return recurrent_body(a, graph, inputs);
  }
  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    return recurrent_cost(inputs, results);
  }
  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = bare(sample_types(1, 3))},
            {.op = A{.direction = Direction::bidirectional},
             .inputs = sample_types(2, 3),
             .values = with_lengths()},
            {.op = A{.direction = Direction::reverse, .clip = 0.5, .linear_before_reset = true},
             .inputs = sample_types(1, 3),
             .absent = {4}},
            {.op = A{.activations = {"LeakyRelu", "Elu"}, .alphas = {0.2, 0.7}, .betas = {}},
             .inputs = bare(sample_types(1, 3, f16))}};
  }

 private:
  static Result<std::vector<CellFunction>> functions_of(const A& a) {
    return cell_functions(name, common(a), {"sigmoid", "tanh"});
  }
};
RLX_OP(op::Gru, "recurrent")

// h' = f(x W + h R + b)
template <>
struct Rules<op::Rnn> {
  using A = op::Rnn;
  static constexpr std::string_view name = "rnn";
  static constexpr Arity arity{3, 6};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("direction", &A::direction), field("activations", &A::activations),
                 field("alphas", &A::alphas), field("betas", &A::betas), field("clip", &A::clip)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(functions_of(a));
    return infer_recurrent(name, a.direction, 1, args);
  }
  static Status eval(const A& a, const EvalArgs& args) {
    RLX_ASSIGN(const auto functions, functions_of(a));
    const RecurrentLayer layer(a.direction, 1, args);
    run_recurrent(
        layer, args,
        [&](std::int64_t d, std::int64_t item, std::int64_t step, std::vector<double>& h) {
          const std::vector<double> previous = h;
          for (std::int64_t unit = 0; unit < layer.hidden; ++unit) {
            h[unit] = functions[d](clipped(layer.from_input(d, 0, unit, step, item) +
                                               layer.from_hidden(d, 0, unit, previous) +
                                               layer.recurrent_bias(d, 0, unit),
                                           a.clip));
          }
        });
    return {};
  }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    return recurrent_body(a, graph, inputs);
  }
  static OpCost cost(const A&, std::span<const Type* const> inputs, std::span<const Type> results) {
    return recurrent_cost(inputs, results);
  }
  static std::vector<Sample> samples() {
    return {{.op = A{}, .inputs = bare(sample_types(1, 1))},
            {.op = A{.direction = Direction::bidirectional, .activations = {"Relu", "Softsign"}},
             .inputs = sample_types(2, 1),
             .values = with_lengths()},
            {.op = A{.direction = Direction::reverse, .activations = {"softplus"}, .clip = 1},
             .inputs = sample_types(1, 1),
             .absent = {4}}};
  }

 private:
  static Result<std::vector<CellFunction>> functions_of(const A& a) {
    return cell_functions(name, common(a), {"tanh"});
  }
};
RLX_OP(op::Rnn, "recurrent")

OpList recurrent_ops() {
  static const OpInfo* const list[] = {&info_of<op::Lstm>(), &info_of<op::Gru>(),
                                       &info_of<op::Rnn>()};
  return list;
}

}  // namespace rlx
