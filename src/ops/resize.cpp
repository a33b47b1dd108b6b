// Resizing as ONNX Resize defines it, axis by axis: each place of the result is a weighted sum of a
// few places of the operand. Sizes and scales stand in attributes, or operands tell them.
#include <algorithm>
#include <cmath>

#include "ops/dynamic_shape.hpp"
#include "ops/norm.hpp"

namespace rlx {
namespace {

/// The sums along one axis: `taps` pairs of index and weight for each place of the result, plus a
/// constant (extrapolation).
struct AxisTable {
  std::int64_t taps = 1;
  std::vector<std::int64_t> indices;  ///< [size, taps]
  std::vector<double> weights;        ///< [size, taps]
  std::vector<double> constants;      ///< [size]
};

/// One axis: `in` places become `size`, by a nominal scale.
struct AxisResize {
  std::int64_t in, size;
  double scale, roi_start, roi_end;
};

AxisResize axis_resize(const op::Resize& a, std::size_t axis, std::int64_t in, std::int64_t size) {
  const std::size_t rank = a.sizes.size();
  const double scale =
      a.scales.empty() ? static_cast<double>(size) / static_cast<double>(in) : a.scales[axis];
  const bool has_roi = !a.roi.empty();
  return {in, size, scale, has_roi ? a.roi[axis] : 0.0, has_roi ? a.roi[axis + rank] : 1.0};
}

// Where place `at` of the result lies in the operand.
double source_position(const op::Resize& a, const AxisResize& r, std::int64_t at) {
  const auto x = static_cast<double>(at), in = static_cast<double>(r.in);
  const double size = r.scale * in;  // not rounded, as ONNX's formulas want it
  switch (a.coordinates) {
    case op::ResizeCoordinates::align_corners: return size == 1 ? 0 : x * (in - 1) / (size - 1);
    case op::ResizeCoordinates::asymmetric: return x / r.scale;
    case op::ResizeCoordinates::tf_half_pixel_for_nn: return (x + 0.5) / r.scale;
    case op::ResizeCoordinates::pytorch_half_pixel:
      return r.size == 1 ? 0 : (x + 0.5) / r.scale - 0.5;
    case op::ResizeCoordinates::half_pixel_symmetric: {
      const double adjustment = static_cast<double>(r.size) / size;
      return in / 2 * (1 - adjustment) + (x + 0.5) / r.scale - 0.5;
    }
    case op::ResizeCoordinates::tf_crop_and_resize: {
      const double span = (r.roi_end - r.roi_start) * (in - 1);
      return r.roi_start * (in - 1) +
             (r.size == 1 ? span / 2 : x * span / static_cast<double>(r.size - 1));
    }
    default: return (x + 0.5) / r.scale - 0.5;
  }
}

double nearest_offset(op::ResizeNearest mode, double ratio) {
  switch (mode) {
    case op::ResizeNearest::round_prefer_floor: return ratio <= 0.5 ? 0 : 1;
    case op::ResizeNearest::round_prefer_ceil: return ratio < 0.5 ? 0 : 1;
    case op::ResizeNearest::floor: return 0;
    default: return ratio > 0 ? 1 : 0;
  }
}

double cubic_weight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Half the width of the kernel at a scale: antialiasing widens it when shrinking.
double kernel_scale(const op::Resize& a, const AxisResize& r) {
  return a.antialias ? std::min(r.scale, 1.0) : 1.0;
}

std::int64_t reach(const op::Resize& a, const AxisResize& r) {
  const double radius = a.mode == op::ResizeMode::cubic ? 2 : 1;
  return static_cast<std::int64_t>(std::ceil(radius / kernel_scale(a, r)));
}

double kernel_weight(const op::Resize& a, const AxisResize& r, double distance) {
  const double scaled = distance * kernel_scale(a, r);
  if (a.mode == op::ResizeMode::cubic) return cubic_weight(scaled, a.cubic_coefficient);
  return std::max(0.0, 1 - std::abs(scaled));
}

// Weights of the places around a position; those outside the axis count for its edges unless
// excluded.
void add_taps(const op::Resize& a, const AxisResize& r, double position, AxisTable& table) {
  const double base = std::floor(position);
  const std::size_t first = table.weights.size();
  double sum = 0;
  for (std::int64_t k = 1 - table.taps / 2; k <= table.taps / 2; ++k) {
    const double place = base + static_cast<double>(k);
    const bool inside = place >= 0 && place <= static_cast<double>(r.in - 1);
    const double weight = a.exclude_outside && !inside ? 0 : kernel_weight(a, r, place - position);
    table.indices.push_back(
        static_cast<std::int64_t>(std::clamp(place, 0.0, static_cast<double>(r.in - 1))));
    table.weights.push_back(weight);
    sum += weight;
  }
  if (!a.antialias && !a.exclude_outside) return;
  for (std::size_t i = first; i < table.weights.size(); ++i) table.weights[i] /= sum;
}

AxisTable axis_table(const op::Resize& a, const AxisResize& r) {
  AxisTable table;
  const bool nearest = a.mode == op::ResizeMode::nearest;
  if (!nearest) table.taps = 2 * reach(a, r);
  for (std::int64_t at = 0; at < r.size; ++at) {
    const double position = source_position(a, r, at), last = static_cast<double>(r.in - 1);
    const bool crops = a.coordinates == op::ResizeCoordinates::tf_crop_and_resize;
    const bool outside = crops && (position < 0 || position > last);
    table.constants.push_back(outside ? a.extrapolation : 0.0);
    if (outside) {
      table.indices.insert(table.indices.end(), table.taps, 0);
      table.weights.insert(table.weights.end(), table.taps, 0.0);
    } else if (nearest) {
      const double place =
          std::floor(position) + nearest_offset(a.nearest, position - std::floor(position));
      table.indices.push_back(static_cast<std::int64_t>(std::clamp(place, 0.0, last)));
      table.weights.push_back(1);
    } else {
      add_taps(a, r, position, table);
    }
  }
  return table;
}

// An axis that stays as it is needs no table.
bool keeps(const op::Resize& a, const AxisResize& r) {
  return r.size == r.in && r.scale == 1 &&
         a.coordinates != op::ResizeCoordinates::tf_crop_and_resize;
}

std::vector<double> apply_table(const AxisTable& table, const std::vector<double>& x,
                                const RowShape& shape, std::int64_t size) {
  std::vector<double> result(shape.outer * size * shape.inner);
  for (std::int64_t o = 0; o < shape.outer; ++o) {
    for (std::int64_t at = 0; at < size; ++at) {
      double* out = result.data() + (o * size + at) * shape.inner;
      std::fill(out, out + shape.inner, table.constants[at]);
      for (std::int64_t t = at * table.taps; t < (at + 1) * table.taps; ++t) {
        if (table.weights[t] == 0) continue;
        const double* in = x.data() + (o * shape.size + table.indices[t]) * shape.inner;
        for (std::int64_t i = 0; i < shape.inner; ++i) out[i] += table.weights[t] * in[i];
      }
    }
  }
  return result;
}

// The values of one tap along the axis, shaped to broadcast against x.
Value tap_line(Graph& graph, DType dtype, const std::vector<double>& values, std::int64_t first,
               std::int64_t step, int rank, std::int64_t axis) {
  Dims dims(rank, 1);
  dims[axis] = static_cast<std::int64_t>(values.size()) / step;
  Tensor line(dtype, dims);
  std::vector<double> picked;
  for (std::size_t i = first; i < values.size(); i += step) picked.push_back(values[i]);
  store_all<double>({dtype, line.dims(), line.mutable_data()}, picked);
  return graph.constant(std::move(line));
}

Value gather_tap(Graph& graph, Value x, const AxisTable& table, std::int64_t tap,
                 std::int64_t axis) {
  std::vector<std::int32_t> indices;
  for (std::size_t i = tap; i < table.indices.size(); i += table.taps)
    indices.push_back(static_cast<std::int32_t>(table.indices[i]));
  const auto size = static_cast<std::int64_t>(indices.size());
  return gather(
      x, graph.constant(Tensor::of<std::int32_t>({size}, std::span<const std::int32_t>(indices))),
      axis);
}

// The sum of the taps: each gathers along the axis and multiplies by its line of weights.
Value body_of_axis(Graph& graph, Value x, const AxisTable& table, std::int64_t axis) {
  const bool all_ones =
      std::all_of(table.weights.begin(), table.weights.end(), [](double w) { return w == 1; });
  if (table.taps == 1 && all_ones) return gather_tap(graph, x, table, 0, axis);
  Value result;
  for (std::int64_t tap = 0; tap < table.taps; ++tap) {
    const Value weights =
        tap_line(graph, x.dtype(), table.weights, tap, table.taps, x.rank(), axis);
    const Value part = gather_tap(graph, x, table, tap, axis) * weights;
    result = result ? result + part : part;
  }
  const bool constant =
      std::any_of(table.constants.begin(), table.constants.end(), [](double c) { return c != 0; });
  return constant ? result + tap_line(graph, x.dtype(), table.constants, 0, 1, x.rank(), axis)
                  : result;
}

/// How places are resized, to whatever sizes.
constexpr auto how_fields = std::tuple{field("mode", &op::Resize::mode),
                                       field("coordinates", &op::Resize::coordinates),
                                       field("nearest", &op::Resize::nearest),
                                       field("cubic_coefficient", &op::Resize::cubic_coefficient),
                                       field("exclude_outside", &op::Resize::exclude_outside),
                                       field("antialias", &op::Resize::antialias),
                                       field("extrapolation", &op::Resize::extrapolation),
                                       field("roi", &op::Resize::roi)};

}  // namespace

template <>
struct Rules<op::Resize> {
  using R = op::Resize;
  static constexpr std::string_view name = "resize";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple_cat(
      std::tuple{field("sizes", &R::sizes), field("scales", &R::scales)}, how_fields);
  static Result<std::vector<Type>> infer(const R& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(x.dtype != boolean && !is_complex(x.dtype), name, "numbers", x));
    if (a.sizes.size() != x.shape.size() ||
        (!a.scales.empty() && a.scales.size() != x.shape.size())) {
      return bad_input("The op resize has ({}) sizes and ({}) scales for {}.", a.sizes.size(),
                       a.scales.size(), x.text());
    }
    if (!a.roi.empty() && a.roi.size() != 2 * x.shape.size()) {
      return bad_input(
          "The region of resize has ({}) numbers, not a start and an end for each axis of {}.",
          a.roi.size(), x.text());
    }
    Type result = x;
    for (int i = 0; i < x.rank(); ++i) {
      if (a.sizes[i] < -1 || (!a.scales.empty() && !(a.scales[i] > 0))) {
        return bad_input("The size ({}) or scale of resize along axis ({}) is not positive.",
                         a.sizes[i], i);
      }
      if (a.sizes[i] >= 0) result.shape[i] = Dim(a.sizes[i]);
    }
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const R& a, const EvalArgs& args) {
    std::vector<double> values = load_all<double>(args.in(0));
    Dims dims(args.in(0).dims.begin(), args.in(0).dims.end());
    const std::span<const std::int64_t> sizes = args.out(0).dims;
    if (args.out(0).elements() == 0) return {};
    if (values.empty())
      return bad_input("The op resize cannot fill ({}) places from an empty operand.",
                       args.out(0).elements());
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      const AxisResize r = axis_resize(a, axis, dims[axis], sizes[axis]);
      if (keeps(a, r)) continue;
      values = apply_table(axis_table(a, r), values, row_shape(dims, axis, axis + 1), sizes[axis]);
      dims[axis] = sizes[axis];
    }
    if (is_integer(args.out(0).dtype)) values = truncated(args.out(0).dtype, std::move(values));
    store_all<double>(args.out(0), values);
    return {};
  }
  static Values body(const R& a, Graph& graph, std::span<const Value> inputs) {
    const bool gathers = a.mode == op::ResizeMode::nearest &&
                         a.coordinates != op::ResizeCoordinates::tf_crop_and_resize;
    Value x = gathers ? inputs[0] : widened(inputs[0]);
    const Shape dims = x.shape();
    const bool extrapolates = a.coordinates == op::ResizeCoordinates::tf_crop_and_resize;
    bool repeats = false;
    for (int axis = 0; axis < inputs[0].rank(); ++axis) {
      if (a.sizes[axis] < 0 && !extrapolates) continue;
      if (!dims[axis].is_static())
        throw Exception(
            unsupported("Resizing an unbound dim ({}) has no body.", dims[axis].text()));
      const std::int64_t in = dims[axis].value();
      if (in == 1 && !extrapolates) {  // whatever lies between one place and itself
        repeats = repeats || a.sizes[axis] != 1;
        continue;
      }
      const AxisResize r = axis_resize(a, axis, in, a.sizes[axis] < 0 ? in : a.sizes[axis]);
      if (!keeps(a, r)) x = body_of_axis(graph, x, axis_table(a, r), axis);
    }
    if (repeats) {
      Shape repeated = x.shape();
      for (int axis = 0; axis < inputs[0].rank(); ++axis)
        if (a.sizes[axis] >= 0) repeated[axis] = Dim(a.sizes[axis]);
      x = broadcast(x, repeated);
    }
    return {cast(x, inputs[0].dtype())};
  }
  static OpCost cost(const R& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const double taps = a.mode == op::ResizeMode::cubic    ? 4
                        : a.mode == op::ResizeMode::linear ? 2
                                                           : 0.5;
    return cost_per_element(4 * taps, inputs, results);
  }
  static std::vector<Sample> samples();

 private:
  // Towards zero, into the range of the integers: as a cast does.
  static std::vector<double> truncated(DType dtype, std::vector<double> values) {
    const int bits = dtype == i4 || dtype == u4 ? 4 : static_cast<int>(size_of(dtype)) * 8;
    const bool has_sign = is_signed_integer(dtype);
    const double high = std::ldexp(1.0, has_sign ? bits - 1 : bits);
    for (double& value : values)
      value = std::clamp(std::trunc(value), has_sign ? -high : 0.0, high - 1);
    return values;
  }
};

std::vector<Sample> Rules<op::Resize>::samples() {
  using C = op::ResizeCoordinates;
  std::vector<Sample> list;
  const Type x{f32, {1, 2, 4, 5}};
  const auto add = [&](R a, Type type) {
    list.push_back({.op = std::move(a), .inputs = {std::move(type)}});
  };
  const Axes up{1, 2, 9, 7}, down{1, 2, 3, 2};
  for (const C c : {C::half_pixel, C::half_pixel_symmetric, C::pytorch_half_pixel, C::align_corners,
                    C::asymmetric, C::tf_half_pixel_for_nn}) {
    add({.sizes = up, .mode = op::ResizeMode::linear, .coordinates = c}, x);
    add({.sizes = down, .mode = op::ResizeMode::cubic, .coordinates = c}, x);
  }
  for (const auto nearest :
       {op::ResizeNearest::round_prefer_floor, op::ResizeNearest::round_prefer_ceil,
        op::ResizeNearest::floor, op::ResizeNearest::ceil}) {
    add({.sizes = up, .nearest = nearest}, x);
  }
  add({.sizes = {1, 2, 8, 10},
       .scales = {1, 1, 2, 2},
       .coordinates = C::asymmetric,
       .nearest = op::ResizeNearest::floor},
      Type{u8, {1, 2, 4, 5}});
  add({.sizes = {-1, -1, 3, 2}, .mode = op::ResizeMode::linear, .antialias = true}, x);
  add({.sizes = down,
       .mode = op::ResizeMode::cubic,
       .cubic_coefficient = -0.5,
       .exclude_outside = true,
       .antialias = true},
      x);
  add({.sizes = up, .mode = op::ResizeMode::cubic, .exclude_outside = true}, x);
  add({.sizes = {1, 2, 3, 3},
       .mode = op::ResizeMode::linear,
       .coordinates = C::tf_crop_and_resize,
       .extrapolation = 10,
       .roi = {0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7}},
      x);
  add({.sizes = up, .mode = op::ResizeMode::linear}, Type{f16, {1, 2, 4, 5}});
  add({.sizes = {-1, -1, 3, 4}, .mode = op::ResizeMode::linear}, Type{f32, {1, 2, 1, 1}});
  add({.sizes = {-1, -1, 3, 9}, .mode = op::ResizeMode::cubic}, Type{f32, {1, 2, 1, 5}});
  add({.sizes = {1, 2, 3, 2}}, Type{u8, {1, 2, 1, 1}});
  return list;
}
RLX_OP(op::Resize, "resize")

namespace op {

namespace {

/// Every axis keeps its size; -1 where it is no number yet.
void keep_sizes(Resize& resize, const Shape& x) {
  resize.sizes.clear();
  for (const Dim& dim : x) resize.sizes.push_back(dim.value());
  resize.scales.assign(x.size(), 1);
}

/// Which of x's axes that is; its dim has to be a number.
Result<std::size_t> resized_axis(const Shape& x, std::int64_t axis) {
  const Type type{f32, x};
  RLX_ASSIGN(const std::int64_t at, normalize_axis(axis, type.rank(), type));
  const auto index = static_cast<std::size_t>(at);
  if (!x[index].is_static())
    return unsupported("Resizing an unbound dim ({}) has no size.", x[index].text());
  return index;
}

Result<std::int64_t> scaled(std::int64_t size, double scale) {
  const double result = std::floor(static_cast<double>(size) * scale);
  if (!(result >= 0 && result < 1e12)) return bad_input("The scale ({}) is wrong.", scale);
  return static_cast<std::int64_t>(result);
}

}  // namespace

Result<Resize> resize_by(Resize how, const Shape& x, const Axes& axes,
                         const std::vector<double>& scales) {
  if (scales.size() != axes.size())
    return bad_input("There are ({}) scales for ({}) axes.", scales.size(), axes.size());
  keep_sizes(how, x);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    RLX_ASSIGN(const std::size_t axis, resized_axis(x, axes[i]));
    how.scales[axis] = scales[i];
    RLX_ASSIGN(how.sizes[axis], scaled(how.sizes[axis], scales[i]));
  }
  return how;
}

Result<Resize> resize_to(Resize how, const Shape& x, const Axes& axes, Axes sizes,
                         ResizePolicy policy) {
  if (sizes.size() != axes.size())
    return bad_input("There are ({}) sizes for ({}) axes.", sizes.size(), axes.size());
  keep_sizes(how, x);
  std::optional<double> common;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    RLX_ASSIGN(const std::size_t axis, resized_axis(x, axes[i]));
    const std::int64_t in = how.sizes[axis];
    if (in == 0 && sizes[i] != 0) return bad_input("An axis of 0 elements cannot be resized.");
    if (in == 0) continue;
    const double scale = static_cast<double>(sizes[i]) / static_cast<double>(in);
    if (!common || (policy == ResizePolicy::not_larger ? scale < *common : scale > *common))
      common = scale;
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    RLX_ASSIGN(const std::size_t axis, resized_axis(x, axes[i]));
    const auto in = static_cast<double>(how.sizes[axis]);
    if (in == 0) continue;
    how.scales[axis] =
        policy == ResizePolicy::stretch ? static_cast<double>(sizes[i]) / in : *common;
    if (policy != ResizePolicy::stretch)
      sizes[i] = static_cast<std::int64_t>(std::floor(in * *common + 0.5));
    if (sizes[i] < 0) return bad_input("A size ({}) is negative.", sizes[i]);
    how.sizes[axis] = sizes[i];
  }
  return how;
}

}  // namespace op

template <>
struct Rules<op::DynamicResize> {
  using R = op::DynamicResize;
  static constexpr std::string_view name = "dynamic_resize";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = dynamic_shape::told_by_operands;
  static constexpr auto fields =
      std::tuple_cat(std::tuple{field("axes", &R::axes), field("policy", &R::policy)}, how_fields);
  static dynamic_shape::Types infer(const R& a, const InferArgs& args) {
    const Type& lengths = args[1];
    if (!(is_integer(lengths.dtype) || is_float(lengths.dtype)) || lengths.rank() != 1 ||
        !compatible(lengths.shape[0], Dim(static_cast<std::int64_t>(a.axes.size())))) {
      return bad_input("The op {} wants ({}) sizes or scales as a list, not {}.", name,
                       a.axes.size(), lengths.text());
    }
    Shape shape = args[0].shape;
    if (!a.axes.empty()) {
      RLX_ASSIGN(const Axes axes, normalize_axes(a.axes, args[0].rank(), args[0]));
      for (const std::int64_t axis : axes) shape[static_cast<std::size_t>(axis)] = Dim::unknown();
    }
    return dynamic_shape::one(args[0].dtype, std::move(shape));
  }
  static std::optional<Values> resolve(const R& a, Graph& graph, std::span<const Value> inputs,
                                       KnownValues known) {
    const Shape& x = inputs[0].shape();
    if (!known[1]) return std::nullopt;
    for (const std::int64_t axis : a.axes) {
      const auto at = dynamic_shape::value_or_throw(
          normalize_axis(axis, inputs[0].rank(), inputs[0].type()), name);
      if (!x[static_cast<std::size_t>(at)].is_static()) return std::nullopt;
    }
    const Result<op::Resize> resize =
        is_float(known[1]->dtype())
            ? op::resize_by(a, x, a.axes, load_all<double>(TensorView(*known[1])))
            : op::resize_to(a, x, a.axes, dynamic_shape::integers_of(*known[1]), a.policy);
    return graph.add(dynamic_shape::value_or_throw(resize, name), Values{inputs[0]});
  }
  static std::vector<Sample> samples() {
    op::DynamicResize to;
    to.axes = {1, 2};
    op::DynamicResize by = to;
    by.mode = op::ResizeMode::linear;
    return {{.op = std::move(to),
             .inputs = {Type{f32, {1, 4, 5}}, Type{i64, {2}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {8, 3})}},
            {.op = std::move(by),
             .inputs = {Type{f32, {1, 4, 5}}, Type{f32, {2}}},
             .values = {std::nullopt, Tensor::of<float>({2}, {2, 0.5F})}}};
  }
};
RLX_OP(op::DynamicResize, "resize")

OpList resize_ops() {
  static const OpInfo* const list[] = {&info_of<op::Resize>(), &info_of<op::DynamicResize>()};
  return list;
}

}  // namespace rlx
