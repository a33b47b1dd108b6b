// Convolutions with windows that are long along one axis, by minimal filtering F(m, r) of the lines
// of that axis: transforms of pieces of lines around one grouped convolution, of which each group
// is a point. F(4, 4) has 7 products for the 16 of a direct sum, F(5, 5) 9 for 25. Longer windows
// are parts of r taps; with m = r they all read the same points, each one tile behind the other.
#include "graph/line_points.hpp"

#include <fmt/format.h>

#include <optional>

#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

using Finish = std::function<Result<Value>(Value)>;

/// One element of a list of the convolution that may be left out.
std::int64_t at(const Axes& list, std::size_t axis, std::int64_t otherwise) {
  return list.empty() ? otherwise : list[axis];
}

/// A convolution x [N, .., C] by w [.., C, K].
struct Layer {
  Dims image, filter, result;
  op::Conv conv;

  /// Of spatial axis `axis`.
  std::int64_t stride(std::size_t axis) const { return at(conv.strides, axis, 1); }
  std::int64_t dilation(std::size_t axis) const { return at(conv.dilations, axis, 1); }
  std::int64_t low(std::size_t axis) const { return at(conv.pad_low, axis, 0); }
  std::int64_t high(std::size_t axis) const { return at(conv.pad_high, axis, 0); }
};

/// The same along one axis. Behind it comes another one of the places between dilated taps.
struct LineForm {
  Layer layer;
  std::size_t line = 0;  ///< the spatial axis: axis line + 1 of x
  lines::Tile tile{};

  std::int64_t taps() const { return layer.filter[line]; }
  std::int64_t parts() const { return (taps() + tile.taps - 1) / tile.taps; }
  std::int64_t results() const { return layer.result[line + 1]; }
  std::int64_t dilation() const { return layer.dilation(line); }
  /// From a tile to the next one.
  std::int64_t apart() const { return dilation() * tile.outputs; }
  std::int64_t tiles() const { return (results() + apart() - 1) / apart(); }
  /// Results of whole tiles that no line has.
  std::int64_t cut() const { return tiles() * apart() - results(); }
  /// Pixels that the tiles read, with those that are zeros.
  std::int64_t reads() const {
    return (tiles() + parts() - 1) * apart() + dilation() * (tile.taps - 1);
  }
  /// Products beside those of the direct sum.
  double products() const {
    return static_cast<double>(tiles() * dilation() * tile.points() * parts()) /
           static_cast<double>(results() * taps());
  }
  /// Weights beside those of the direct sum.
  double weights() const {
    return static_cast<double>(tile.points() * parts()) / static_cast<double>(taps());
  }
};

/// A layer whose windows lie along spatial axis `line` alone, as images [.., W, .., C] of one axis
/// before that and one behind it: convolutions of volumes have no room for another axis.
std::optional<Layer> along_one_axis(const Layer& layer, std::size_t line) {
  const std::size_t axes = layer.filter.size() - 2;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const bool plain = layer.filter[axis] == 1 && layer.stride(axis) == 1 && layer.low(axis) == 0 &&
                       layer.high(axis) == 0;
    if (axis != line && !plain) return std::nullopt;
  }
  const auto merged = [&](const Dims& dims) {
    const auto along = dims.begin() + static_cast<std::ptrdiff_t>(line) + 1;
    return Dims{element_count(Dims(dims.begin(), along)), *along,
                element_count(Dims(along + 1, dims.end() - 1)), dims.back()};
  };
  Layer made{merged(layer.image),
             {layer.filter[line], 1, layer.filter[axes], layer.filter[axes + 1]},
             merged(layer.result),
             layer.conv};
  made.conv.strides = {layer.stride(line), 1};
  made.conv.pad_low = {layer.low(line), 0};
  made.conv.pad_high = {layer.high(line), 0};
  made.conv.dilations = {layer.dilation(line), 1};
  return made;
}

/// The weights of every point, side by side: [.., parts, 1, .., C, points * K].
Value filters_of(Value w, const LineForm& form) {
  Graph& graph = w.graph();
  const lines::Tile& tile = form.tile;
  const auto line = static_cast<std::int64_t>(form.line);
  Dims dims = form.layer.filter;
  const auto rank = static_cast<std::int64_t>(dims.size());
  Axes none(dims.size(), 0), behind(dims.size(), 0);
  behind[form.line] = form.parts() * tile.taps - form.taps();
  w = reshape(w, to_shape(dims));
  if (behind[form.line] > 0) w = pad(w, none, behind);
  dims[form.line] = form.parts();
  // [.., parts, taps, .., C, K] -> [.., parts, .., C, K, taps] by G^T
  Dims apart = dims;
  apart.insert(apart.begin() + line + 1, tile.taps);
  Axes taps_last, points_before;
  for (std::int64_t axis = 0; axis <= rank; ++axis) {
    if (axis != line + 1) taps_last.push_back(axis);
    points_before.push_back(axis);
  }
  taps_last.push_back(line + 1);
  std::swap(points_before.end()[-1], points_before.end()[-2]);
  std::vector<float> factors;
  const auto rows = lines::filter_rows(tile);
  for (std::size_t tap = 0; tap < static_cast<std::size_t>(tile.taps); ++tap)
    for (const auto& row : rows) factors.push_back(static_cast<float>(row[tap]));
  const Value g = graph.constant(
      Tensor::of<float>({tile.taps, tile.points()}, std::span<const float>(factors)));
  const Value points = matmul(transpose(reshape(w, to_shape(apart)), taps_last), g);
  dims.insert(dims.begin() + line + 1, 1);
  dims.back() *= tile.points();
  return reshape(transpose(points, points_before), to_shape(dims));
}

/// The convolution of points: those along the line lie side by side.
op::Conv of_points(const LineForm& form) {
  const Layer& layer = form.layer;
  op::Conv made = layer.conv;
  made.strides = made.pad_low = made.pad_high = made.dilations = {};
  const auto add = [&](std::int64_t stride, std::int64_t low, std::int64_t high,
                       std::int64_t dilation) {
    made.strides.push_back(stride);
    made.pad_low.push_back(low);
    made.pad_high.push_back(high);
    made.dilations.push_back(dilation);
  };
  for (std::size_t axis = 0; axis + 2 < layer.filter.size(); ++axis) {
    if (axis != form.line) {
      add(layer.stride(axis), layer.low(axis), layer.high(axis), layer.dilation(axis));
    } else {
      add(1, 0, 0, 1);
      add(1, 0, 0, 1);
    }
  }
  made.groups *= form.tile.points();
  return made;
}

/// The convolution by points of lines, what follows it done by `finish`: the layer's result.
Result<Value> by_lines(Value x, Value w, const LineForm& form, const Finish& finish) {
  Graph& graph = x.graph();
  const lines::Tile& tile = form.tile;
  const auto axis = static_cast<std::int64_t>(form.line) + 1;
  Dims limits = form.layer.image;
  std::int64_t& pixels = limits[form.line + 1];
  const std::int64_t low = form.layer.low(form.line), reads = form.reads() - low,
                     high = std::max<std::int64_t>(0, reads - pixels);
  x = reshape(x, to_shape(limits));
  pixels = std::min(reads, pixels);
  x = slice(x, Axes(limits.size(), 0), Axes(limits.begin(), limits.end()));
  const op::LinePoints of_lines{axis, tile.outputs, tile.taps, form.dilation(), low, high};
  const Value products =
      graph.add_one(of_points(form), {graph.add_one(of_lines, {x}), filters_of(w, form)});
  return finish(
      graph.add_one(op::LineOutputs{axis, tile.outputs, tile.taps, form.cut()}, {products}));
}

/// Is it one of those that tiles of both axes of an image serve better?
bool is_square(const Layer& layer) {
  const std::size_t axes = layer.filter.size() - 2;
  if (axes < 2) return false;
  const std::size_t height = axes - 2, width = axes - 1;
  return layer.filter[height] == 3 && layer.filter[width] == 3 && layer.dilation(height) == 1 &&
         layer.dilation(width) == 1 && layer.stride(height) == layer.stride(width);
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), maps_(graph) {}

  struct Found : FoundProduct {
    LineForm form;
  };

  std::vector<Found> found(const ChooseForms& choose) const {
    std::vector<FormQuestion> questions;
    std::vector<LineForm> forms;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const auto form = form_of(graph_.nodes()[i]);
      if (!form) continue;
      questions.push_back(question(index, *form));
      forms.push_back(*form);
    }
    const std::vector<std::size_t> chosen = choose(graph_, questions);
    std::vector<Found> found;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (chosen[i] == 0) continue;
      const std::int32_t conv = questions[i].node;
      const int rank = graph_.nodes()[static_cast<std::size_t>(conv)].results[0].rank();
      found.push_back({{conv, maps_.behind(conv, static_cast<std::size_t>(rank) - 1)}, forms[i]});
    }
    return found;
  }

 private:
  /// The form with the fewest products, if any has few enough.
  std::optional<LineForm> form_of(const Node& node) const {
    const auto* conv = node.op.as<op::Conv>();
    if (!conv || !conv->channels_last || conv->transposed || node.inputs.size() != 2 ||
        !maps_.is_weight_only(node.inputs[1]))
      return std::nullopt;
    const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]),
               &y = node.results[0];
    if (!x.is_static() || !w.is_static() || x.dtype != f32 || w.dtype != f32 || x.rank() < 3 ||
        y.elements() == 0)
      return std::nullopt;
    const Layer layer{x.dims(), w.dims(), y.dims(), *conv};
    const std::int64_t channels = *(layer.filter.end() - 2),
                       columns = layer.filter.back() / conv->groups;
    // Less than this is not worth a question; points of fewer channels leave lanes empty.
    constexpr double least_flops = 4e6;
    constexpr std::int64_t least_channels = 8;
    const double flops = 2.0 * static_cast<double>(y.elements()) *
                         static_cast<double>(w.elements() / layer.filter.back());
    if (flops < least_flops || is_square(layer) || std::min(channels, columns) < least_channels)
      return std::nullopt;
    std::optional<LineForm> best;
    for (std::size_t line = 0; line + 2 < layer.filter.size(); ++line) {
      const bool is_volume = layer.filter.size() > 4;
      const auto of_lines = is_volume ? along_one_axis(layer, line) : layer;
      if (!of_lines) continue;
      for (const lines::Tile& tile : lines::tiles) {
        LineForm form{*of_lines, is_volume ? 0 : line, tile};
        // What errs more must win something.
        constexpr double least_gain = 1.2;
        const double gain = best && best->line == form.line ? least_gain : 1;
        if (fits(form) && (!best || gain * form.products() < best->products()))
          best = std::move(form);
      }
    }
    return best;
  }

  static bool fits(const LineForm& form) {
    constexpr double most_products = 0.7;
    const Layer& layer = form.layer;
    return layer.stride(form.line) == 1 &&
           layer.low(form.line) <= form.dilation() * (form.taps() - 1) &&
           (form.parts() == 1 || form.tile.outputs == form.tile.taps) &&
           form.products() <= most_products;
  }

  FormQuestion question(std::int32_t index, const LineForm& form) const {
    FormQuestion asked{
        index,
        {{.what = "by the direct sum", .graph = [=, this] { return alone(index, std::nullopt); }}}};
    const Type& w = graph_.type(graph_.nodes()[static_cast<std::size_t>(index)].inputs[1]);
    const double bytes = form.weights() * static_cast<double>(w.bytes());
    asked.forms.push_back({.what = fmt::format("by minimal filtering F({}, {}) of lines",
                                               form.tile.outputs, form.tile.taps),
                           .graph = [=, this] { return alone(index, form); },
                           .weights = form.weights(),
                           // As of Winograd's points.
                           .worth_ns = (1e6 + bytes) / 300,
                           .price = fmt::format("errors up to {} of the result's deviation",
                                                lines::error_of(form.tile))});
    return asked;
  }

  /// The convolution alone, with the bias and activation that most have, as a graph of its own.
  Result<Graph> alone(std::int32_t index, const std::optional<LineForm>& form) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const auto& conv = *node.op.as<op::Conv>();
    Graph result;
    const Value x = input_as_read(result, graph_, node.inputs[0]);
    const Value w = result.param("w", f32, graph_.type(node.inputs[1]).dims());
    const Value bias = result.param("b", f32, {w.type().dims().back()});
    const Finish finish = [&](Value y) -> Result<Value> { return relu(y + bias); };
    RLX_ASSIGN(const Value y,
               form ? by_lines(x, w, *form, finish) : finish(result.add_one(conv, {x, w})));
    result.output("y", y);
    return result;
  }

  const Graph& graph_;
  ChannelMaps maps_;
};

Result<Value> rewritten(Rewriter& rewriter, const Finder::Found& found) {
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const auto operand = [](Value of_channels) {
    const std::int64_t count = of_channels.type().elements();
    return reshape(of_channels, count == 1 ? Shape{} : Shape{Dim(count)});
  };
  const Values inputs = rewriter.values_of(node);
  RLX_ASSIGN(const Value y, by_lines(inputs[0], inputs[1], found.form, [&](Value lines) {
               return add_maps(rewriter, found.product, found.maps, lines, operand);
             }));
  return reshape(y, node.results[0].shape);
}

}  // namespace

Result<Graph> line_points(Graph graph, const ChooseForms& choose) {
  try {
    const auto found = Finder(graph).found(choose);
    return replace_found(std::move(graph), found, rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
