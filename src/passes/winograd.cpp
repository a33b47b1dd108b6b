// Convolutions with 3x3 windows, of images or of the slices of volumes, by Winograd's minimal
// filtering F(m x m, 3x3): transforms of tiles around one product for each of (m + 2)^2
// points; 2.25 times fewer multiplications with m = 2, 4 times with m = 4. With stride 2 by 25
// points for 2 x 2 outputs, 1.44 times fewer. The points and their rounding errors:
// graph/winograd.hpp, docs/adr/0031.
#include "graph/winograd.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/narrow_products.hpp"
#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

using winograd::taps;

/// Outputs of a tile, along one axis, for each stride.
constexpr std::int64_t tile_sizes[] = {2, 4}, tile_sizes_of_stride_2[] = {2};

using Finish = std::function<Result<Value>(Value)>;

/// A convolution over images; or over volumes, which are so many images one behind the other, of
/// which the taps along the depth are further channels: what they add up to the sums of points do.
struct Layer {
  Dims image, filter, result;  ///< [N, H, W, C], [3, 3, C, K], [N, H', W', K]
  std::int64_t stride = 1;     ///< along both axes of an image
  Axes pad_low, pad_high;      ///< of these
};

std::span<const std::int64_t> tile_sizes_of(const Layer& layer) {
  if (layer.stride == 2) return tile_sizes_of_stride_2;
  return tile_sizes;
}

/// One element of a list of the convolution that may be left out.
std::int64_t at(const Axes& list, std::size_t axis, std::int64_t otherwise) {
  return list.empty() ? otherwise : list[axis];
}

/// Axes before those of an image's pixels: 1 for volumes.
std::size_t depth_axes(const Type& x) { return static_cast<std::size_t>(x.rank()) - 4; }

Layer layer_of(const Graph& graph, const Node& node) {
  const auto& conv = *node.op.as<op::Conv>();
  const std::size_t depth = depth_axes(graph.type(node.inputs[0]));
  Layer layer{graph.type(node.inputs[0]).dims(), graph.type(node.inputs[1]).dims(),
              node.results[0].dims(), at(conv.strides, depth, 1)};
  for (std::size_t axis = depth; axis < depth + 2; ++axis) {
    layer.pad_low.push_back(at(conv.pad_low, axis, 0));
    layer.pad_high.push_back(at(conv.pad_high, axis, 0));
  }
  if (depth == 0) return layer;
  layer.result[0] *= layer.result[1];
  layer.result.erase(layer.result.begin() + 1);
  layer.image[0] = layer.result[0];
  layer.image.erase(layer.image.begin() + 1);
  layer.image.back() *= layer.filter[0];
  layer.filter[3] *= layer.filter[0];
  layer.filter.erase(layer.filter.begin());
  return layer;
}

/// The operand x of the convolution as the layer's image: for each tap of the depth the slices that
/// it meets, nothing where it lies outside.
Value image_of(Value x, const op::Conv& conv, const Layer& layer, std::int64_t taps_of_depth) {
  if (depth_axes(x.type()) == 0) return x;
  const Dims volume = x.type().dims();
  const std::int64_t stride = at(conv.strides, 0, 1), dilation = at(conv.dilations, 0, 1),
                     slices = layer.image[0] / volume[0];
  Values parts;
  for (std::int64_t tap = 0; tap < taps_of_depth; ++tap) {
    // Slice i is that of the volume at first + i * stride.
    const std::int64_t first = tap * dilation - at(conv.pad_low, 0, 0);
    const std::int64_t before = std::min(first < 0 ? (stride - 1 - first) / stride : 0, slices);
    const std::int64_t left = volume[1] - first;
    const std::int64_t until =
        std::clamp(left > 0 ? (left + stride - 1) / stride : 0, before, slices);
    const std::int64_t start = until > before ? first + before * stride : 0;
    const std::int64_t limit = until > before ? start + (until - before - 1) * stride + 1 : start;
    Dims to = volume;
    to[1] = limit;
    const Value met =
        slice(x, {0, start, 0, 0, 0}, Axes(to.begin(), to.end()), {1, stride, 1, 1, 1});
    const bool all = before == 0 && until == slices;
    parts.push_back(all ? met : pad(met, {0, before, 0, 0, 0}, {0, slices - until, 0, 0, 0}));
  }
  return reshape(parts.size() == 1 ? parts[0] : concat(parts, 4), to_shape(layer.image));
}

/// The same of the weights.
Value filter_of(Value w, const Layer& layer) {
  if (depth_axes(w.type()) == 0) return w;
  return reshape(transpose(w, {1, 2, 0, 3, 4}), to_shape(layer.filter));
}

/// What a product of integers reads: x of cast(x, i32).
Value narrow(const Value& widened) {
  Graph& graph = widened.graph();
  return graph.handle(graph.node(widened.id()).inputs[0]);
}

/// Weights as they are stored: filters are made of bytes as of i16, of halves as of f32, piece by
/// piece.
Value stored_below(Value w) {
  Graph& graph = w.graph();
  const Node* node = &graph.node(w.id());
  const auto* order = node->op.as<op::Transpose>();
  if (order) node = &graph.node(node->inputs[0]);
  if (!node->op.is<op::Cast>()) return w;
  const Value stored = graph.handle(node->inputs[0]);
  const DType dtype = stored.dtype();
  const bool widened =
      w.dtype() == f32 ? dtype == f16 || dtype == bf16 : dtype == u8 || dtype == i8;
  if (!widened) return w;
  return order ? transpose(stored, order->perm) : stored;
}

/// How the points are made: tiles of outputs x outputs, in so many strips of rows of tiles one
/// after the other; or row by row of tiles within one kernel.
struct PointForm {
  std::int64_t outputs = 0;  ///< 0: there are none
  std::int64_t strips = 1;
  bool by_rows = false;

  std::string_view how() const { return strips > 1 ? " in strips" : by_rows ? " row by row" : ""; }
};

/// The convolution by points, what follows it done by `finish`.
Result<Value> by_points(Value x, Value w, const Layer& layer, const PointForm& form,
                        const Finish& finish) {
  Graph& graph = x.graph();
  const Dims& image = layer.image;
  const Axes& low = layer.pad_low;
  const std::int64_t outputs = form.outputs, stride = layer.stride, height = layer.result[1],
                     width = layer.result[2], rows = (height + outputs - 1) / outputs,
                     columns = (width + outputs - 1) / outputs;
  // So many rows of tiles from the first one on. Whole tiles, the last of which reach behind the
  // image, or end before it where no window wants its last pixels.
  const auto tiles = [&](Value pixels, std::int64_t first, std::int64_t count) {
    const auto all = [&](std::int64_t of) { return of * outputs * stride + taps - stride; };
    const auto none = [](std::int64_t left) { return std::max<std::int64_t>(left, 0); };
    const std::int64_t top = first * outputs * stride - low[0], bottom = top + all(count),
                       right = all(columns) - low[1];
    pixels = slice(pixels, {0, none(top), 0, 0},
                   {image[0], std::min(bottom, image[1]), std::min(right, image[2]), image[3]});
    return graph.add_one(op::WinogradImage{outputs,
                                           stride,
                                           {none(-top), low[1]},
                                           {none(bottom - image[1]), none(right - image[2])}},
                         {pixels});
  };
  const auto points_of = [&](const Value& filters) {
    return graph.add_one(op::WinogradFilters{outputs, stride}, {transpose(filters, {3, 2, 0, 1})});
  };
  // Products of what is widened are made of i16; fits_integers has the bounds of both transforms.
  const bool integers = is_integer(x.dtype());
  const Value pixels = integers ? narrow(x) : x;
  const Value filters = points_of(stored_below(integers ? narrow(w) : w));
  Values parts;
  for (std::int64_t strip = 0; strip < form.strips; ++strip) {
    const std::int64_t first = rows * strip / form.strips,
                       count = rows * (strip + 1) / form.strips - first;
    const Value images = tiles(pixels, first, count);
    const Value products =
        integers ? matmul(cast(images, i32), cast(filters, i32)) : matmul(images, filters);
    const bool is_last = first + count == rows;
    Value y = graph.add_one(
        op::WinogradOutputs{outputs,
                            count,
                            columns,
                            stride,
                            {is_last ? rows * outputs - height : 0, columns * outputs - width},
                            form.by_rows},
        {products});
    if (integers)
      y = graph.add_one(op::ShiftRight{}, {y, graph.constant(i32, winograd::integer_shift)});
    RLX_ASSIGN(y, finish(y));
    parts.push_back(y);
  }
  return parts.size() == 1 ? parts[0] : concat(parts, 1);
}

/// So many strips that the points of one stay in the caches that cores share; 1 where all of them
/// do.
std::int64_t strips_of(const Layer& layer, std::int64_t outputs) {
  constexpr std::int64_t least = 2, most = 16, bytes_each = 8 * 1024 * 1024;
  const Dims &filter = layer.filter, &result = layer.result;
  const std::int64_t side = winograd::side(outputs, layer.stride);
  const auto tiles = [&](std::int64_t extent) { return (extent + outputs - 1) / outputs; };
  const std::int64_t bytes = side * side * result[0] * tiles(result[1]) * tiles(result[2]) *
                             (filter[2] + filter[3]) * static_cast<std::int64_t>(size_of(f32));
  const std::int64_t wanted = std::min({most, bytes / bytes_each, tiles(result[1])});
  return wanted < least ? 1 : wanted;
}

/// Whether rows of tiles are worth a look: there are some, and every one of them reads all weights,
/// which must come from a core's own cache.
bool goes_by_rows(const Layer& layer, std::int64_t outputs) {
  constexpr std::int64_t fewest_rows = 4, most_weight_bytes = 2 * 1024 * 1024;
  const Dims &filter = layer.filter, &result = layer.result;
  const std::int64_t side = winograd::side(outputs, layer.stride),
                     rows = result[0] * ((result[1] + outputs - 1) / outputs),
                     bytes = side * side * filter[2] * filter[3] *
                             static_cast<std::int64_t>(size_of(f32));
  return rows >= fewest_rows && bytes <= most_weight_bytes;
}

/// Products of i16 by tiles of 2x2: points of the image are sums of four elements, those of the
/// filters (four times as large) of nine, and the sums of their products must not leave i32.
bool fits_integers(const Graph& graph, const Node& node) {
  if (!multiplies_narrow_integers(graph, node)) return false;
  const ValueId x = graph.node(node.inputs[0]).inputs[0], w = graph.node(node.inputs[1]).inputs[0];
  if (graph.type(x).dtype != i16 || graph.type(w).dtype != i16) return false;
  constexpr std::int64_t words = 32767, sums = 2147483647;
  const std::int64_t image = 4 * most_magnitude(graph, x), filter = 9 * most_magnitude(graph, w);
  return image <= words && filter <= words &&
         graph.type(w).dims()[2] <= sums / std::max<std::int64_t>(1, image * filter);
}

bool fits(const Graph& graph, const Node& node, const op::Conv& conv) {
  if (!conv.channels_last || conv.transposed || conv.groups != 1 || node.inputs.size() != 2)
    return false;
  const Type &x = graph.type(node.inputs[0]), &w = graph.type(node.inputs[1]);
  if (x.rank() < 4 || x.rank() > 5 || !x.is_static() || !w.is_static() ||
      node.results[0].elements() == 0)
    return false;
  const std::size_t height = depth_axes(x), width = height + 1;
  for (const std::size_t axis : {height, width})
    if (at(conv.dilations, axis, 1) != 1 || w.dims()[axis] != taps) return false;
  const std::int64_t stride = at(conv.strides, height, 1);
  if (stride > 2 || at(conv.strides, width, 1) != stride) return false;
  // What stride 2 wins at most the transforms of few channels take.
  constexpr std::int64_t least_channels = 16;
  const Layer layer = layer_of(graph, node);
  if (stride == 2 && std::min(layer.filter[2], layer.filter[3]) < least_channels) return false;
  return (x.dtype == f32 && w.dtype == f32) ||
         (x.rank() == 4 && stride == 1 && fits_integers(graph, node));
}

/// The convolution alone, with the bias and activation that most have, as a graph of its own;
/// no tiles: as it is.
Result<Graph> alone(const Graph& graph, const Node& node, const op::Conv& conv,
                    const PointForm& form) {
  Graph result;
  const bool integers = is_integer(graph.type(node.inputs[0]).dtype);
  const ValueId read = integers ? graph.node(node.inputs[0]).inputs[0] : node.inputs[0];
  const Dims filter = graph.type(node.inputs[1]).dims();
  Value x = input_as_read(result, graph, read);
  Value w = result.param("w", x.dtype(), filter);
  const Value bias = result.param("b", f32, {filter.back()});
  if (integers) x = cast(x, i32), w = cast(w, i32);
  const Finish finish = [&](Value y) -> Result<Value> {
    return integers ? cast(relu(cast(y, f32) * bias), i16) : relu(y + bias);
  };
  if (form.outputs == 0) {
    RLX_ASSIGN(const Value y, finish(result.add_one(conv, {x, w})));
    result.output("y", y);
  } else {
    const Layer layer = layer_of(graph, node);
    RLX_ASSIGN(const Value y, by_points(image_of(x, conv, layer, filter[0]), filter_of(w, layer),
                                        layer, form, finish));
    result.output("y", y);
  }
  return result;
}

double weight_bytes(const Layer& layer, std::int64_t side) {
  return static_cast<double>(layer.filter[2] * layer.filter[3] * side * side *
                             static_cast<std::int64_t>(size_of(f32)));
}

/// The forms by points of a convolution.
std::vector<PointForm> point_forms(const Graph& graph, const Node& node) {
  const Layer layer = layer_of(graph, node);
  const bool integers = is_integer(node.results[0].dtype);
  std::vector<PointForm> forms;
  for (const std::int64_t outputs : tile_sizes_of(layer)) {
    if (outputs > 2 && integers) break;
    forms.push_back({outputs, 1});
  }
  // The largest tiles have the fewest points.
  const std::int64_t outputs = forms.back().outputs, strips = strips_of(layer, outputs);
  if (!integers && goes_by_rows(layer, outputs)) {
    forms.back().by_rows = true;
    forms.push_back({outputs});
  }
  if (strips > 1) forms.push_back({outputs, strips});
  return forms;
}

FormQuestion question(const Graph& graph, std::int32_t index, const op::Conv& conv) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
  const auto form = [&graph, &node, &conv](const PointForm& of) {
    return [&graph, &node, &conv, of] { return alone(graph, node, conv, of); };
  };
  FormQuestion asked{index, {{.what = "by the direct sum", .graph = form({})}}};
  const bool integers = is_integer(node.results[0].dtype);
  const Layer layer = layer_of(graph, node);
  for (const PointForm& points : point_forms(graph, node)) {
    const std::int64_t outputs = points.outputs, side = winograd::side(outputs, layer.stride);
    asked.forms.push_back(
        {.what = fmt::format("by Winograd's F({0}x{0}, 3x3){1}{2}", outputs,
                             layer.stride == 1 ? "" : " with stride 2", points.how()),
         .graph = form(points),
         .weights = static_cast<double>(side * side) / (taps * taps),
         .worth_ns = worth_of_start(weight_bytes(layer, side)),
         .price = integers ? ""
                           : fmt::format("errors up to {} of the result's deviation",
                                         winograd::error_of(outputs))});
  }
  return asked;
}

/// A convolution that becomes products of points.
struct Found : FoundProduct {
  PointForm form;
};

std::vector<Found> find(const Graph& graph, const ChooseForms& choose) {
  const ChannelMaps maps(graph);
  std::vector<FormQuestion> questions;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const auto* conv = node.op.as<op::Conv>();
    if (conv && fits(graph, node, *conv) && maps.is_weight_only(node.inputs[1]))
      questions.push_back(question(graph, static_cast<std::int32_t>(i), *conv));
  }
  const std::vector<std::size_t> chosen = choose(graph, questions);
  std::vector<Found> found;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (chosen[i] == 0) continue;
    const std::int32_t conv = questions[i].node;
    const Node& node = graph.nodes()[static_cast<std::size_t>(conv)];
    const auto channels = static_cast<std::size_t>(node.results[0].rank()) - 1;
    found.push_back({{conv, maps.behind(conv, channels)}, point_forms(graph, node)[chosen[i] - 1]});
  }
  return found;
}

Result<Value> rewritten(Rewriter& rewriter, const Found& found) {
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const Values inputs = rewriter.values_of(node);
  const auto& conv = *node.op.as<op::Conv>();
  const Layer layer = layer_of(rewriter.source(), node);
  const Value x = image_of(inputs[0], conv, layer, inputs[1].type().dims()[0]);
  RLX_ASSIGN(const Value y,
             by_points(x, filter_of(inputs[1], layer), layer, found.form, [&](Value part) {
               return add_maps(rewriter, found.product, found.maps, part, for_last_axis);
             }));
  return depth_axes(inputs[0].type()) == 0 ? y : reshape(y, node.results[0].shape);
}

}  // namespace

Result<Graph> winograd(Graph graph, const ChooseForms& choose) {
  try {
    const auto found = find(graph, choose);
    return replace_found(std::move(graph), found, rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
