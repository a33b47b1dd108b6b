// Convolutions: forward and transposed, of floats and of small integers with zero points.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"
#include "ops/window.hpp"

namespace rlx {
namespace {

/// The operands with their axes in one order whatever the layout: x [N, C, spatial...], w [O,
/// C/groups, spatial...] or, transposed, [C, O/groups, spatial...].
struct ConvShapes {
  Shape x, w;
  Dim out_channels = 1;
};

Shape permuted_shape(const Shape& shape, const Axes& perm) {
  Shape result;
  for (const std::int64_t axis : perm) result.push_back(shape[axis]);
  return result;
}

Status check_channels(const op::Conv& c, const Type& x, const Type& w, const ConvShapes& shapes) {
  const Dim wanted = c.transposed ? shapes.x[1] : floor_div(shapes.x[1], Dim(c.groups));
  const Dim& given = c.transposed ? shapes.w[0] : shapes.w[1];
  if (!compatible(wanted, given) || (shapes.x[1].is_static() && shapes.x[1].value() % c.groups)) {
    return bad_input("The channels of conv do not fit: {} with weights {} in ({}) groups.",
                     x.text(), w.text(), c.groups);
  }
  if (shapes.out_channels.is_static() && shapes.out_channels.value() % c.groups) {
    return bad_input("The output channels ({}) of conv are no multiple of its groups ({}).",
                     shapes.out_channels.value(), c.groups);
  }
  return {};
}

Result<ConvShapes> conv_shapes(const op::Conv& c, const Type& x, const Type& w) {
  if (x.rank() < 3 || x.rank() != w.rank()) {
    return bad_input("The op conv takes x and weights of one rank of at least 3, not {} and {}.",
                     x.text(), w.text());
  }
  if (c.groups < 1) return bad_input("The op conv has ({}) groups.", c.groups);
  if (c.transposed && c.channels_last)
    return unsupported("A transposed conv is never channels-last.");
  ConvShapes shapes{x.shape, w.shape};
  if (c.channels_last) {
    shapes.x = permuted_shape(x.shape, channels_first(x.rank()));
    shapes.w = permuted_shape(w.shape, weights_first(w.rank()));
  }
  shapes.out_channels = c.transposed ? shapes.w[1] * Dim(c.groups) : shapes.w[0];
  RLX_TRY(check_channels(c, x, w, shapes));
  for (int i = 2; i < w.rank(); ++i) {
    if (!shapes.w[i].is_static())
      return bad_input("The window of conv is not known: {}.", w.text());
  }
  return shapes;
}

Result<WindowAxes> axes_of(const op::Conv& c, int rank) {
  return window_axes("conv", static_cast<std::size_t>(rank - 2), c.strides, c.pad_low, c.pad_high,
                     c.dilations);
}

// (in - 1) stride + extent + output padding - padding
Result<Dim> transposed_dim(const op::Conv& c, const WindowAxes& axes, std::size_t i, const Dim& in,
                           std::int64_t window) {
  if (window < 1 || in == Dim(0))
    return bad_input("Spatial axis ({}) of a transposed conv or of its window has no elements.", i);
  const std::int64_t extra = c.output_padding.empty() ? 0 : c.output_padding[i];
  const std::int64_t extent = (window - 1) * axes.dilations[i] + 1;
  const std::int64_t rest = extent + extra - axes.pad_low[i] - axes.pad_high[i] - axes.strides[i];
  const Dim scaled = in * Dim(axes.strides[i]);
  if (scaled.is_static() && scaled.value() + rest < 0) {
    return bad_input("The padding of a transposed conv leaves ({}) elements of spatial axis ({}).",
                     scaled.value() + rest, i);
  }
  return shifted(scaled, rest);
}

Result<Shape> conv_result(const op::Conv& c, const Type& x, const Type& w) {
  RLX_ASSIGN(const ConvShapes shapes, conv_shapes(c, x, w));
  RLX_ASSIGN(const WindowAxes axes, axes_of(c, x.rank()));
  if (!c.output_padding.empty() && (!c.transposed || c.output_padding.size() != axes.rank())) {
    return bad_input(
        "The op conv has ({}) output paddings, which only a transposed one takes, one for each "
        "spatial axis.",
        c.output_padding.size());
  }
  Shape result{shapes.x[0], shapes.out_channels};
  for (std::size_t i = 0; i < axes.rank(); ++i) {
    const std::int64_t window = shapes.w[i + 2].value();
    if (c.transposed) {
      RLX_ASSIGN(const Dim dim, transposed_dim(c, axes, i, shapes.x[i + 2], window));
      result.push_back(dim);
    } else {
      RLX_ASSIGN(const Dim dim, window_count("conv", shapes.x[i + 2], window, axes, i));
      result.push_back(dim);
    }
  }
  return c.channels_last ? permuted_shape(result, channels_last(x.rank())) : result;
}

/// Sizes of a convolution on concrete dims, channels counted per group.
struct ConvSizes {
  std::int64_t batch = 1, groups = 1, in_channels = 1, out_channels = 1;
  WindowGrid grid;  ///< windows slide over x; of a transposed convolution, over the result
  std::int64_t in_plane() const { return grid[0].in * grid[1].in * grid[2].in; }
  std::int64_t out_plane() const { return grid[0].out * grid[1].out * grid[2].out; }
  std::int64_t window() const { return grid[0].window * grid[1].window * grid[2].window; }
};

// Visits each element of the window with the windows for which it lies inside: visit(k, first of
// in, first of out, count), rows along the last axis. Positions in x step by the last stride, those
// of the windows by one.
template <class Visit>
void for_each_row(const WindowGrid& g, Visit visit) {
  std::int64_t k = 0;
  for (std::int64_t k0 = 0; k0 < g[0].window; ++k0) {
    for (std::int64_t k1 = 0; k1 < g[1].window; ++k1) {
      for (std::int64_t k2 = 0; k2 < g[2].window; ++k2, ++k) {
        const std::int64_t first = g[2].first(k2), count = g[2].last(k2) - first;
        for (std::int64_t w0 = g[0].first(k0); w0 < g[0].last(k0); ++w0) {
          for (std::int64_t w1 = g[1].first(k1); w1 < g[1].last(k1); ++w1) {
            const std::int64_t row =
                (g[0].position(w0, k0) * g[1].in + g[1].position(w1, k1)) * g[2].in;
            visit(k, row + g[2].position(first, k2), (w0 * g[1].out + w1) * g[2].out + first,
                  count);
          }
        }
      }
    }
  }
}

// The sums of one image and one group; x and w point to the group's first channel.
template <class Element, class Sum>
void convolve_group(const ConvSizes& s, const Element* x, const Element* w, Sum* result) {
  for (std::int64_t o = 0; o < s.out_channels; ++o) {
    for (std::int64_t c = 0; c < s.in_channels; ++c) {
      const Element* x_plane = x + c * s.in_plane();
      const Element* w_plane = w + (o * s.in_channels + c) * s.window();
      Sum* plane = result + o * s.out_plane();
      for_each_row(s.grid,
                   [&](std::int64_t k, std::int64_t from, std::int64_t to, std::int64_t count) {
                     const Sum factor(w_plane[k]);
                     for (std::int64_t i = 0; i < count; ++i)
                       plane[to + i] += factor * Sum(x_plane[from + i * s.grid[2].stride]);
                   });
    }
  }
}

// The same map read backwards: each element of x is spread over the window that it would be the sum
// of.
template <class Element, class Sum>
void spread_group(const ConvSizes& s, const Element* x, const Element* w, Sum* result) {
  for (std::int64_t c = 0; c < s.in_channels; ++c) {
    for (std::int64_t o = 0; o < s.out_channels; ++o) {
      const Element* x_plane = x + c * s.out_plane();
      const Element* w_plane = w + (c * s.out_channels + o) * s.window();
      Sum* plane = result + o * s.in_plane();
      for_each_row(s.grid,
                   [&](std::int64_t k, std::int64_t to, std::int64_t from, std::int64_t count) {
                     const Sum factor(w_plane[k]);
                     for (std::int64_t i = 0; i < count; ++i)
                       plane[to + i * s.grid[2].stride] += factor * Sum(x_plane[from + i]);
                   });
    }
  }
}

template <class Element, class Sum>
std::vector<Sum> convolve(const ConvSizes& s, bool transposed, std::span<const Element> x,
                          std::span<const Element> w) {
  const std::int64_t x_plane = transposed ? s.out_plane() : s.in_plane();
  const std::int64_t result_plane = transposed ? s.in_plane() : s.out_plane();
  std::vector<Sum> result(s.batch * s.groups * s.out_channels * result_plane, Sum(0));
  for (std::int64_t i = 0; i < s.batch * s.groups; ++i) {
    const Element* x_group = x.data() + i * s.in_channels * x_plane;
    const Element* w_group = w.data() + i % s.groups * s.out_channels * s.in_channels * s.window();
    Sum* result_group = result.data() + i * s.out_channels * result_plane;
    if (transposed) {
      spread_group(s, x_group, w_group, result_group);
    } else {
      convolve_group(s, x_group, w_group, result_group);
    }
  }
  return result;
}

// From dims in channels-first order.
ConvSizes conv_sizes(bool transposed, std::int64_t groups, const WindowAxes& axes,
                     std::span<const std::int64_t> x, std::span<const std::int64_t> w,
                     std::span<const std::int64_t> result) {
  const auto slid = transposed ? result : x, windows = transposed ? x : result;
  return {.batch = x[0],
          .groups = groups,
          .in_channels = x[1] / groups,
          .out_channels = result[1] / groups,
          .grid = window_grid(axes, slid.subspan(2), windows.subspan(2), w.subspan(2))};
}

Dims permuted_dims(std::span<const std::int64_t> dims, const Axes& perm) {
  Dims result;
  for (const std::int64_t axis : perm) result.push_back(dims[axis]);
  return result;
}

Axes identity(int rank) {
  Axes perm;
  for (int i = 0; i < rank; ++i) perm.push_back(i);
  return perm;
}

template <class Element, class Sum, class Stored>
void evaluate_conv(const op::Conv& c, const WindowAxes& axes, const EvalArgs& args) {
  const TensorView &x = args.in(0), &w = args.in(1);
  const int rank = x.rank();
  const Axes x_perm = c.channels_last ? channels_first(rank) : identity(rank);
  const Axes w_perm = c.channels_last ? weights_first(rank) : identity(rank);
  const Dims result_dims = permuted_dims(args.out(0).dims, x_perm);
  const ConvSizes sizes = conv_sizes(c.transposed, c.groups, axes, permuted_dims(x.dims, x_perm),
                                     permuted_dims(w.dims, w_perm), result_dims);
  const auto x_values = permuted<Element>(load_all<Element>(x), x.dims, x_perm);
  const auto w_values = permuted<Element>(load_all<Element>(w), w.dims, w_perm);
  std::vector<Sum> result = convolve<Element, Sum>(sizes, c.transposed, x_values, w_values);
  if (args.has(2)) {
    const std::vector<Stored> bias = load_all<Stored>(args.in(2));
    const std::int64_t plane = element_count(std::span(result_dims).subspan(2));
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] += Sum(bias[static_cast<std::int64_t>(i) / plane % result_dims[1]]);
  }
  if (c.channels_last) result = permuted<Sum>(result, result_dims, channels_last(rank));
  store_all<Stored>(args.out(0), std::vector<Stored>(result.begin(), result.end()));
}

}  // namespace

// y[n, o, p] = bias[o] + sum over c, k of w[o, c, k] x[n, c, p stride + k dilation - pad]
template <>
struct Rules<op::Conv> {
  static constexpr std::string_view name = "conv";
  static constexpr Arity arity{2, 3};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("strides", &op::Conv::strides),
                                            field("pad_low", &op::Conv::pad_low),
                                            field("pad_high", &op::Conv::pad_high),
                                            field("dilations", &op::Conv::dilations),
                                            field("groups", &op::Conv::groups),
                                            field("transposed", &op::Conv::transposed),
                                            field("output_padding", &op::Conv::output_padding),
                                            field("channels_last", &op::Conv::channels_last)};
  static Result<std::vector<Type>> infer(const op::Conv& c, const InferArgs& args) {
    RLX_TRY(
        require(is_float(args[0].dtype) || is_integer(args[0].dtype), name, "numbers", args[0]));
    RLX_TRY(require_same_dtype(name, args[0], args[1]));
    RLX_ASSIGN(Shape shape, conv_result(c, args[0], args[1]));
    if (args.has(2)) {
      RLX_TRY(require_same_dtype(name, args[0], args[2]));
      const Dim& channels = c.channels_last ? shape.back() : shape[1];
      if (args[2].rank() != 1 || !compatible(args[2].shape[0], channels)) {
        return bad_input("The bias {} of conv is not one value for each of ({}) channels.",
                         args[2].text(), channels.text());
      }
    }
    return std::vector<Type>{{args[0].dtype, std::move(shape)}};
  }
  static Status eval(const op::Conv& c, const EvalArgs& args) {
    RLX_ASSIGN(const WindowAxes axes, axes_of(c, args.in(0).rank()));
    if (is_integer(args.in(0).dtype)) {
      // Unsigned sums wrap; their low bits are those of the signed ones.
      evaluate_conv<std::int64_t, std::uint64_t, std::int64_t>(c, axes, args);
    } else if (args.in(0).dtype == f64) {
      evaluate_conv<double, double, double>(c, axes, args);
    } else {
      evaluate_conv<float, double, double>(c, axes, args);
    }
    return {};
  }
  static OpCost cost(const op::Conv& c, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const double weights = static_cast<double>(inputs[1]->elements());
    const Dims w = inputs[1]->dims();
    // Each result of a channel meets the weights of that channel; of a transposed one, each element
    // of x those of its channel.
    const auto channels = static_cast<double>(c.channels_last ? w.back() : w[0]);
    const auto points = static_cast<double>((c.transposed ? *inputs[0] : results[0]).elements());
    double flops = 2 * points * weights / std::max(channels, 1.0);
    if (inputs.size() > 2 && inputs[2]) flops += static_cast<double>(results[0].elements());
    return {flops, bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples();
};

std::vector<Sample> Rules<op::Conv>::samples() {
  const op::Conv same{.pad_low = {1, 1}, .pad_high = {1, 1}};
  std::vector<Sample> list;
  for (const DType dtype : {f32, f64, f16, bf16, i32}) {
    list.push_back(
        {.op = same,
         .inputs = {Type{dtype, {2, 3, 7, 6}}, Type{dtype, {4, 3, 3, 3}}, Type{dtype, {4}}},
         .tolerance = 1e-4});
  }
  for (const DType dtype : {f32, f64, f16, bf16, i32}) {
    list.push_back({.op = same,
                    .inputs = {Type{dtype, {2, 1, 9, 21}}, Type{dtype, {1, 1, 3, 3}}},
                    .tolerance = 1e-4});
  }
  const op::Conv odd{.strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {0, 2}, .dilations = {1, 2}};
  list.push_back({.op = odd, .inputs = {Type{f32, {1, 2, 9, 8}}, Type{f32, {3, 2, 3, 2}}}});
  list.push_back({.op = odd, .inputs = {Type{f32, {2, 1, 9, 23}}, Type{f32, {1, 1, 3, 2}}}});
  list.push_back({.op = op::Conv{.groups = 4},
                  .inputs = {Type{f32, {2, 4, 5, 5}}, Type{f32, {8, 1, 3, 3}}, Type{f32, {8}}}});
  list.push_back({.op = op::Conv{.strides = {2}, .groups = 2},
                  .inputs = {Type{f32, {1, 4, 11}}, Type{f32, {6, 2, 3}}}});
  list.push_back({.op = op::Conv{.strides = {1, 2, 1}},
                  .inputs = {Type{f32, {1, 2, 4, 5, 6}}, Type{f32, {3, 2, 2, 3, 2}}}});
  list.push_back(
      {.op = op::Conv{.pad_low = {1, 1}, .pad_high = {1, 1}, .groups = 2, .channels_last = true},
       .inputs = {Type{f32, {2, 6, 5, 4}}, Type{f32, {3, 3, 2, 6}}, Type{f32, {6}}}});
  list.push_back(
      {.op = op::Conv{}, .inputs = {Type{f32, {1, 16, 4, 4}}, Type{f32, {8, 16, 1, 1}}}});
  const op::Conv up{.strides = {2, 3},
                    .pad_low = {1, 0},
                    .pad_high = {0, 1},
                    .transposed = true,
                    .output_padding = {1, 0}};
  list.push_back(
      {.op = up, .inputs = {Type{f32, {1, 2, 4, 3}}, Type{f32, {2, 3, 3, 2}}, Type{f32, {3}}}});
  list.push_back({.op = op::Conv{.dilations = {2}, .groups = 2, .transposed = true},
                  .inputs = {Type{f32, {2, 4, 5}}, Type{f32, {4, 3, 3}}}});
  return list;
}
RLX_OP(op::Conv, "conv")

namespace {

op::Conv plain_conv(const op::IntegerConv& c) {
  return {.strides = c.strides,
          .pad_low = c.pad_low,
          .pad_high = c.pad_high,
          .dilations = c.dilations,
          .groups = c.groups};
}

std::vector<std::int64_t> load_centred(const EvalArgs& args, int operand) {
  std::vector<std::int64_t> values = load_all<std::int64_t>(args.in(operand));
  const std::vector<std::int64_t> zeros = args.has(operand + 2)
                                              ? load_all<std::int64_t>(args.in(operand + 2))
                                              : std::vector<std::int64_t>{0};
  const auto each = static_cast<std::int64_t>(values.size() / zeros.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] -= zeros[static_cast<std::int64_t>(i) / each];
  return values;
}

}  // namespace

// conv(x - x zero, w - w zero) in i32; padding stands for x's zero point
template <>
struct Rules<op::IntegerConv> {
  static constexpr std::string_view name = "integer_conv";
  static constexpr Arity arity{2, 4};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{
      field("strides", &op::IntegerConv::strides), field("pad_low", &op::IntegerConv::pad_low),
      field("pad_high", &op::IntegerConv::pad_high),
      field("dilations", &op::IntegerConv::dilations), field("groups", &op::IntegerConv::groups)};
  static Result<std::vector<Type>> infer(const op::IntegerConv& c, const InferArgs& args) {
    for (int i = 0; i < 2; ++i)
      RLX_TRY(require(args[i].dtype == i8 || args[i].dtype == u8, name, "i8 or u8", args[i]));
    RLX_ASSIGN(Shape shape, conv_result(plain_conv(c), args[0], args[1]));
    for (int i = 2; i < args.count(); ++i) {
      if (!args.has(i)) continue;
      RLX_TRY(require_same_dtype(name, args[i - 2], args[i]));
      const bool scalar =
          args[i].rank() == 0 || (args[i].rank() == 1 && args[i].shape[0] == Dim(1));
      const bool per_channel =
          i == 3 && args[i].rank() == 1 && compatible(args[i].shape[0], args[1].shape[0]);
      if (!scalar && !per_channel) {
        return bad_input(
            "A zero point {} of integer_conv is neither a scalar nor, for weights, one for each "
            "output channel.",
            args[i].text());
      }
    }
    return std::vector<Type>{{i32, std::move(shape)}};
  }
  static Status eval(const op::IntegerConv& c, const EvalArgs& args) {
    RLX_ASSIGN(const WindowAxes axes, axes_of(plain_conv(c), args.in(0).rank()));
    const ConvSizes sizes =
        conv_sizes(false, c.groups, axes, args.in(0).dims, args.in(1).dims, args.out(0).dims);
    const auto x = load_centred(args, 0), w = load_centred(args, 1);
    store_all<std::int64_t>(args.out(0), convolve<std::int64_t, std::int64_t>(sizes, false, x, w));
    return {};
  }
  static Values body(const op::IntegerConv& c, Graph&, std::span<const Value> inputs) {
    Dim products(1);
    for (std::size_t i = 1; i < inputs[1].shape().size(); ++i)
      products = products * inputs[1].shape()[i];
    const ExactProducts exact(products);
    const auto centred = [&](std::size_t i) {
      const Value x = cast(inputs[i], exact.dtype);
      if (i + 2 >= inputs.size() || !inputs[i + 2]) return x;
      const Value zero = cast(inputs[i + 2], exact.dtype);
      Shape shape(x.rank(), Dim(1));
      if (zero.rank() == 1) shape[0] = zero.shape()[0];
      return x - reshape(zero, std::move(shape));
    };
    return {exact.rounded(conv(centred(0), centred(1), plain_conv(c)))};
  }
  static OpCost cost(const op::IntegerConv& c, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return Rules<op::Conv>::cost(plain_conv(c), inputs.first(2), results);
  }
  static std::vector<Sample> samples() {
    const op::IntegerConv padded{.pad_low = {1, 1}, .pad_high = {1, 1}};
    return {
        {.op = padded,
         .inputs = {Type{u8, {1, 2, 5, 5}}, Type{i8, {3, 2, 3, 3}}},
         .low = 0,
         .high = 100},
        {.op = padded,
         .inputs = {Type{u8, {1, 2, 5, 5}}, Type{u8, {3, 2, 3, 3}}, Type{u8, {}}, Type{u8, {3}}},
         .low = 0,
         .high = 200},
        {.op = op::IntegerConv{.strides = {2}, .dilations = {2}, .groups = 2},
         .inputs = {Type{i8, {2, 4, 9}}, Type{i8, {4, 2, 3}}, Type{i8, {1}}},
         .low = -100,
         .high = 100}};
  }
};
RLX_OP(op::IntegerConv, "conv")

OpList conv_ops() {
  static const OpInfo* const list[] = {&info_of<op::Conv>(), &info_of<op::IntegerConv>(),
                                       &info_of<op::WindowReduce>(), &info_of<op::WindowArgMax>()};
  return list;
}

}  // namespace rlx
