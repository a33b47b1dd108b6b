// Norms. Statistics are computed in f32 at least, the variance as the mean of centred squares.
#include "ops/norm.hpp"

#include <cmath>

namespace rlx {

void standardize(std::vector<double>& row, double epsilon) {
  double mean = 0, variance = 0;
  for (const double value : row) mean += value;
  mean /= static_cast<double>(row.size());
  for (const double value : row) variance += (value - mean) * (value - mean);
  variance /= static_cast<double>(row.size());
  for (double& value : row) value = (value - mean) / std::sqrt(variance + epsilon);
}

void scale_and_shift(std::vector<double>& values, std::span<const std::int64_t> dims,
                     const TensorView* scale, std::span<const std::int64_t> scale_dims,
                     const TensorView* bias) {
  const auto apply = [&](const TensorView* operand, auto combine) {
    if (!operand || !operand->data) return;
    const std::vector<double> factors = load_all<double>(*operand);
    const Dims strides = broadcast_strides(scale_dims.empty() ? operand->dims : scale_dims, dims);
    std::size_t at = 0;
    for_each_index(dims, [&](const Dims& index) {
      combine(values[at++], factors[offset_of(index, strides)]);
    });
  };
  apply(scale, [](double& value, double factor) { value *= factor; });
  apply(bias, [](double& value, double amount) { value += amount; });
}

Value per_channel(Value x, int ones) {
  Shape shape{x.shape()[0]};
  shape.insert(shape.end(), ones, Dim(1));
  return reshape(x, std::move(shape));
}

namespace {

// (x - mean) / sqrt(mean((x - mean)^2) + epsilon), in two passes
Value standardized(Value x, const Axes& axes, double epsilon) {
  const Value centred = x - mean(x, axes, true);
  const Value variance = mean(centred * centred, axes, true);
  return centred * rsqrt(variance + x.graph().constant(x.dtype(), epsilon));
}

Axes axes_between(std::int64_t first, std::int64_t last) {
  Axes axes;
  for (std::int64_t axis = first; axis < last; ++axis) axes.push_back(axis);
  return axes;
}

// x * scale + bias, either left out.
Value scaled(Value x, Value scale, Value bias) {
  if (scale) x = x * cast(scale, x.dtype());
  if (bias) x = x + cast(bias, x.dtype());
  return x;
}

Value optional_input(std::span<const Value> inputs, std::size_t i) {
  return i < inputs.size() ? inputs[i] : Value();
}

const TensorView* operand(const EvalArgs& args, int i) {
  return args.has(i) ? &args.in(i) : nullptr;
}

// Operands beside x: their dtype is x's, and they broadcast to x without widening it.
Status check_broadcast(std::string_view name, const InferArgs& args) {
  for (int i = 1; i < args.count(); ++i) {
    if (!args.has(i)) continue;
    RLX_TRY(require_same_dtype(name, args[0], args[i]));
    RLX_ASSIGN(const Shape shape, broadcast_shapes(args[0].shape, args[i].shape));
    if (shape.size() != args[0].shape.size() ||
        !std::equal(shape.begin(), shape.end(), args[0].shape.begin(), compatible)) {
      return bad_input("The operand {} of {} does not broadcast to {}.", args[i].text(), name,
                       args[0].text());
    }
  }
  return {};
}

// Operands beside x [N, C, ...]: one value for each channel.
Status check_per_channel(std::string_view name, const InferArgs& args) {
  RLX_TRY(
      require(is_float(args[0].dtype) && args[0].rank() >= 2, name, "floats [N, C, ...]", args[0]));
  for (int i = 1; i < args.count(); ++i) {
    RLX_TRY(require(is_float(args[i].dtype), name, "floats", args[i]));
    if (args[i].rank() != 1 || !compatible(args[i].shape[0], args[0].shape[1])) {
      return bad_input("The operand {} of {} is not one value for each channel of {}.",
                       args[i].text(), name, args[0].text());
    }
  }
  return {};
}

// [C, 1, ...] for an x of that rank.
Dims channel_dims(const TensorView& x) {
  Dims dims(x.dims.size() - 1, 1);
  dims[0] = x.dims[1];
  return dims;
}

// (x, scale?, bias?) over the trailing axes.
template <class A>
struct TrailingNorm {
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("axis", &A::axis), field("epsilon", &A::epsilon)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype), Rules<A>::name, "floats", args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    RLX_TRY(check_broadcast(Rules<A>::name, args));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const A& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    std::vector<double> values = load_all<double>(x);
    const RowShape shape = row_shape(x.dims, axis_at(a.axis, x.rank()), x.dims.size());
    map_rows(shape, values, [&](std::vector<double>& row) { Rules<A>::row(row, a.epsilon); });
    scale_and_shift(values, x.dims, operand(args, 1), {}, operand(args, 2));
    store_all<double>(args.out(0), values);
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f64, f16, bf16}) {
      list.push_back({.op = A{}, .inputs = {Type{dtype, {3, 17}}, Type{dtype, {17}}}});
    }
    list.push_back(
        {.op = A{.axis = 1, .epsilon = 1e-3}, .inputs = {Type{f32, {2, 5, 3}}, Type{f32, {5, 3}}}});
    list.push_back({.op = A{.axis = -2}, .inputs = {Type{f32, {2, 5, 3}}, Type{f32, {5, 1}}}});
    list.push_back({.op = A{}, .inputs = {Type{f32, {4, 9}}}});
    return list;
  }
};

// The mean and deviation of `groups` groups of channels of x [N, C, ...].
Status evaluate_group_norm(std::int64_t groups, double epsilon, const EvalArgs& args) {
  const TensorView& x = args.in(0);
  std::vector<double> values = load_all<double>(x);
  const std::int64_t rows = x.dims[0] * groups;
  const RowShape shape{rows, rows ? x.elements() / rows : 0, 1};
  map_rows(shape, values, [&](std::vector<double>& row) { standardize(row, epsilon); });
  scale_and_shift(values, x.dims, &args.in(1), channel_dims(x), &args.in(2));
  store_all<double>(args.out(0), values);
  return {};
}

}  // namespace

// (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias
template <>
struct Rules<op::LayerNorm> : TrailingNorm<op::LayerNorm> {
  static constexpr std::string_view name = "layer_norm";
  static constexpr Arity arity{1, 3};
  static void row(std::vector<double>& row, double epsilon) { standardize(row, epsilon); }
  static Values body(const op::LayerNorm& a, Graph&, std::span<const Value> inputs) {
    const int rank = inputs[0].rank();
    const Value x = standardized(
        widened(inputs[0]), axes_between(a.axis < 0 ? a.axis + rank : a.axis, rank), a.epsilon);
    return {
        cast(scaled(x, optional_input(inputs, 1), optional_input(inputs, 2)), inputs[0].dtype())};
  }
  static OpCost cost(const op::LayerNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(8, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list = TrailingNorm::samples();
    list.push_back(
        {.op = op::LayerNorm{}, .inputs = {Type{f32, {3, 17}}, Type{f32, {17}}, Type{f32, {17}}}});
    list.push_back({.op = op::LayerNorm{},
                    .inputs = {Type{f32, {3, 17}}, Type{}, Type{f32, {17}}},
                    .absent = {1}});
    return list;
  }
};
RLX_OP(op::LayerNorm, "norm")

// x / sqrt(mean(x^2) + epsilon) * scale
template <>
struct Rules<op::RmsNorm> : TrailingNorm<op::RmsNorm> {
  static constexpr std::string_view name = "rms_norm";
  static constexpr Arity arity{1, 2};
  static void row(std::vector<double>& row, double epsilon) {
    double square = 0;
    for (const double value : row) square += value * value;
    square /= static_cast<double>(row.size());
    for (double& value : row) value /= std::sqrt(square + epsilon);
  }
  static Values body(const op::RmsNorm& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const Axes axes = axes_between(a.axis < 0 ? a.axis + x.rank() : a.axis, x.rank());
    const Value square = mean(x * x, axes, true) + graph.constant(x.dtype(), a.epsilon);
    return {cast(scaled(x * rsqrt(square), optional_input(inputs, 1), {}), inputs[0].dtype())};
  }
  static OpCost cost(const op::RmsNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(5, inputs, results);
  }
};
RLX_OP(op::RmsNorm, "norm")

// layer norm over each group of channels, then scale and bias by channel
template <>
struct Rules<op::GroupNorm> {
  static constexpr std::string_view name = "group_norm";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("groups", &op::GroupNorm::groups),
                                            field("epsilon", &op::GroupNorm::epsilon)};
  static Result<std::vector<Type>> infer(const op::GroupNorm& a, const InferArgs& args) {
    RLX_TRY(check_per_channel(name, args));
    const Dim& channels = args[0].shape[1];
    if (a.groups < 1 || (channels.is_static() && channels.value() % a.groups)) {
      return bad_input("The channels ({}) of group_norm are no multiple of its groups ({}).",
                       channels.text(), a.groups);
    }
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::GroupNorm& a, const EvalArgs& args) {
    return evaluate_group_norm(a.groups, a.epsilon, args);
  }
  static Values body(const op::GroupNorm& a, Graph&, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    Shape grouped{x.shape()[0], Dim(a.groups), floor_div(x.shape()[1], Dim(a.groups))};
    grouped.insert(grouped.end(), x.shape().begin() + 2, x.shape().end());
    const Value rows = reshape(x, grouped);
    const Value normal =
        reshape(standardized(rows, axes_between(2, rows.rank()), a.epsilon), x.shape());
    const int ones = x.rank() - 2;
    return {cast(scaled(normal, per_channel(inputs[1], ones), per_channel(inputs[2], ones)),
                 inputs[0].dtype())};
  }
  static OpCost cost(const op::GroupNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(8, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f16}) {
      list.push_back({.op = op::GroupNorm{.groups = 3},
                      .inputs = {Type{dtype, {2, 6, 4, 5}}, Type{dtype, {6}}, Type{dtype, {6}}}});
    }
    list.push_back({.op = op::GroupNorm{.groups = 2, .epsilon = 0.1},
                    .inputs = {Type{f32, {3, 8}}, Type{f32, {8}}, Type{f32, {8}}}});
    return list;
  }
};
RLX_OP(op::GroupNorm, "norm")

// layer norm over the spatial axes of each channel
template <>
struct Rules<op::InstanceNorm> {
  static constexpr std::string_view name = "instance_norm";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("epsilon", &op::InstanceNorm::epsilon)};
  static Result<std::vector<Type>> infer(const op::InstanceNorm&, const InferArgs& args) {
    RLX_TRY(check_per_channel(name, args));
    RLX_TRY(require(args[0].rank() > 2, name, "operands with spatial axes", args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::InstanceNorm& a, const EvalArgs& args) {
    return evaluate_group_norm(args.in(0).dims[1], a.epsilon, args);
  }
  static Values body(const op::InstanceNorm& a, Graph&, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const int ones = x.rank() - 2;
    const Value normal = standardized(x, axes_between(2, x.rank()), a.epsilon);
    return {cast(scaled(normal, per_channel(inputs[1], ones), per_channel(inputs[2], ones)),
                 inputs[0].dtype())};
  }
  static OpCost cost(const op::InstanceNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(8, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, bf16}) {
      list.push_back({.op = op::InstanceNorm{},
                      .inputs = {Type{dtype, {2, 3, 4, 5}}, Type{dtype, {3}}, Type{dtype, {3}}}});
    }
    list.push_back({.op = op::InstanceNorm{.epsilon = 0.1},
                    .inputs = {Type{f32, {2, 3, 9}}, Type{f32, {3}}, Type{f32, {3}}}});
    return list;
  }
};
RLX_OP(op::InstanceNorm, "norm")

// (x - mean) / sqrt(variance + epsilon) * scale + bias, all by channel
template <>
struct Rules<op::BatchNorm> {
  static constexpr std::string_view name = "batch_norm";
  static constexpr Arity arity{5, 5};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("epsilon", &op::BatchNorm::epsilon)};
  static Result<std::vector<Type>> infer(const op::BatchNorm&, const InferArgs& args) {
    RLX_TRY(check_per_channel(name, args));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::BatchNorm& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    std::vector<double> values = load_all<double>(x);
    const auto scale = load_all<double>(args.in(1)), bias = load_all<double>(args.in(2));
    const auto mean = load_all<double>(args.in(3)), variance = load_all<double>(args.in(4));
    const std::int64_t plane = product(x.dims, 2, x.dims.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t c = static_cast<std::int64_t>(i) / plane % x.dims[1];
      values[i] = (values[i] - mean[c]) / std::sqrt(variance[c] + a.epsilon) * scale[c] + bias[c];
    }
    store_all<double>(args.out(0), values);
    return {};
  }
  // One multiplication and one addition for each element; the factors depend on the params alone.
  static Values body(const op::BatchNorm& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const auto wide = [&](int i) { return cast(inputs[i], x.dtype()); };
    const Value factor = wide(1) * rsqrt(wide(4) + graph.constant(x.dtype(), a.epsilon));
    const Value shift = wide(2) - wide(3) * factor;
    const int ones = x.rank() - 2;
    return {cast(x * per_channel(factor, ones) + per_channel(shift, ones), inputs[0].dtype())};
  }
  static OpCost cost(const op::BatchNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(2, inputs, results);
  }
  static std::vector<Sample> samples() {
    const auto channels = [](DType dtype, std::int64_t count) { return Type{dtype, {count}}; };
    std::vector<Sample> list;
    for (const DType dtype : {f32, f16}) {
      const Type c = channels(dtype, 3);
      list.push_back({.op = op::BatchNorm{},
                      .inputs = {Type{dtype, {2, 3, 4, 5}}, c, c, c, c},
                      .low = 0.1,
                      .high = 2});
    }
    const Type c = channels(f32, 7);
    list.push_back({.op = op::BatchNorm{.epsilon = 0.5},
                    .inputs = {Type{f32, {4, 7}}, c, c, c, c},
                    .low = 0.1,
                    .high = 2});
    return list;
  }
};
RLX_OP(op::BatchNorm, "norm")

// x / (sum |x|^p)^(1/p) along the axis; rows of zeros stay zeros
template <>
struct Rules<op::LpNorm> {
  static constexpr std::string_view name = "lp_norm";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("axis", &op::LpNorm::axis), field("p", &op::LpNorm::p)};
  static Result<std::vector<Type>> infer(const op::LpNorm& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype), name, "floats", args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    if (a.p != 1 && a.p != 2) return bad_input("The op lp_norm takes p of 1 or 2, not ({}).", a.p);
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::LpNorm& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const std::size_t axis = axis_at(a.axis, x.rank());
    std::vector<double> values = load_all<double>(x);
    map_rows(row_shape(x.dims, axis, axis + 1), values, [&](std::vector<double>& row) {
      double norm = 0;
      for (const double value : row) norm += a.p == 1 ? std::abs(value) : value * value;
      if (a.p == 2) norm = std::sqrt(norm);
      for (double& value : row) value = norm == 0 ? 0 : value / norm;
    });
    store_all<double>(args.out(0), values);
    return {};
  }
  static Values body(const op::LpNorm& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const Value norm = a.p == 1 ? sum(abs(x), {a.axis}, true) : sqrt(sum(x * x, {a.axis}, true));
    const Value zero = graph.constant(x.dtype(), 0), one = graph.constant(x.dtype(), 1);
    return {cast(x / select(equal(norm, zero), one, norm), inputs[0].dtype())};
  }
  static OpCost cost(const op::LpNorm&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(3, inputs, results);
  }
  static std::vector<Sample> samples() {
    return {{.op = op::LpNorm{}, .inputs = {Type{f32, {3, 17}}}},
            {.op = op::LpNorm{.axis = 1, .p = 1}, .inputs = {Type{f32, {2, 5, 3}}}},
            {.op = op::LpNorm{.axis = 0}, .inputs = {Type{f16, {6, 3}}}}};
  }
};
RLX_OP(op::LpNorm, "norm")

// x / (bias + alpha / size * sum of squares of the `size` channels around)^beta
template <>
struct Rules<op::LocalResponseNorm> {
  using Lrn = op::LocalResponseNorm;
  static constexpr std::string_view name = "local_response_norm";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("size", &Lrn::size), field("alpha", &Lrn::alpha),
                                            field("beta", &Lrn::beta), field("bias", &Lrn::bias)};
  static Result<std::vector<Type>> infer(const Lrn& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype) && args[0].rank() >= 2, name, "floats [N, C, ...]",
                    args[0]));
    if (a.size < 1)
      return bad_input("The size ({}) of local_response_norm must be at least 1.", a.size);
    return std::vector<Type>{args[0]};
  }
  static Status eval(const Lrn& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    std::vector<double> values = load_all<double>(x);
    map_rows(row_shape(x.dims, 1, 2), values, [&](std::vector<double>& row) {
      const std::vector<double> channel = row;
      const auto count = static_cast<std::int64_t>(row.size());
      for (std::int64_t c = 0; c < count; ++c) {
        double square = 0;
        const std::int64_t first = std::max<std::int64_t>(c - (a.size - 1) / 2, 0),
                           last = std::min(c + a.size / 2, count - 1);
        for (std::int64_t k = first; k <= last; ++k) square += channel[k] * channel[k];
        row[c] =
            channel[c] / std::pow(a.bias + a.alpha / static_cast<double>(a.size) * square, a.beta);
      }
    });
    store_all<double>(args.out(0), values);
    return {};
  }
  // The window slides along rows of channels, [N rest, 1, C]: images mostly lie with their channels
  // last, where that is no copy, and the rest of the formula joins the window's loop.
  static Values body(const Lrn& a, Graph& graph, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    Axes to_last{0}, to_second{0, x.rank() - 1};
    Shape last{x.shape()[0]};
    Dim points = x.shape()[0];
    for (int i = 2; i < x.rank(); ++i) {
      to_last.push_back(i);
      to_second.push_back(i - 1);
      last.push_back(x.shape()[i]);
      points = points * x.shape()[i];
    }
    to_last.push_back(1);
    last.push_back(x.shape()[1]);
    const Value rows = reshape(transpose(x, to_last), {points, 1, x.shape()[1]});
    const op::WindowReduce window{.kind = Reduction::sum,
                                  .window = {a.size},
                                  .pad_low = {(a.size - 1) / 2},
                                  .pad_high = {a.size / 2}};
    const Value sums = graph.add_one(window, {rows * rows});
    const auto constant = [&](double value) { return graph.constant(x.dtype(), value); };
    const Value base = constant(a.bias) + constant(a.alpha / static_cast<double>(a.size)) * sums;
    const Value result = rows * pow(base, constant(-a.beta));
    return {cast(transpose(reshape(result, last), to_second), inputs[0].dtype())};
  }
  static OpCost cost(const Lrn& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(static_cast<double>(a.size) + 12, inputs, results);
  }
  static std::vector<Sample> samples() {
    return {{.op = Lrn{.size = 3, .alpha = 0.5, .beta = 0.6, .bias = 1.5},
             .inputs = {Type{f32, {2, 7, 3, 4}}}},
            {.op = Lrn{.size = 4, .alpha = 0.5}, .inputs = {Type{f32, {2, 7, 5}}}},
            {.op = Lrn{.size = 5}, .inputs = {Type{f16, {1, 6}}}}};
  }
};
RLX_OP(op::LocalResponseNorm, "norm")

OpList norm_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::Softmax>(),          &info_of<op::LogSoftmax>(), &info_of<op::Hardmax>(),
      &info_of<op::LayerNorm>(),        &info_of<op::RmsNorm>(),    &info_of<op::GroupNorm>(),
      &info_of<op::InstanceNorm>(),     &info_of<op::BatchNorm>(),  &info_of<op::LpNorm>(),
      &info_of<op::LocalResponseNorm>()};
  return list;
}

}  // namespace rlx
