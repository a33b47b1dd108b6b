// Windows in parts, strides as channels, volumes as images; the graph of points.
#include "passes/line_form.hpp"

#include <algorithm>
#include <iterator>

namespace rlx::passes {
namespace {

using Finish = std::function<Result<Value>(Value)>;

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

/// The form of a layer whose window has one tap more than its stride: the first and the last one
/// meet the same pixels, each stride-th.
LineForm of_outer_taps(const Layer& layer, std::size_t line) {
  const std::int64_t stride = layer.stride(line), low = layer.low(line);
  LineForm form{.layer = layer, .line = line, .every = stride, .direct_taps = layer.filter[line]};
  form.first = (stride - low % stride) % stride;
  Layer& made = form.layer;
  made.image[line + 1] = (made.image[line + 1] - form.first + stride - 1) / stride;
  made.filter[line] = 2;
  if (!made.conv.pad_low.empty()) made.conv.pad_low[line] = (low + form.first) / stride;
  made.conv.strides[line] = 1;
  return form;
}

/// The form of a layer with a stride: along the last axis so many neighbouring pixels are channels
/// of one, and taps those of one.
std::optional<LineForm> of_strides(const Layer& layer, std::size_t line) {
  const std::int64_t stride = layer.stride(line), low = layer.low(line), taps = layer.filter[line];
  if (stride == 1) return LineForm{.layer = layer, .line = line, .direct_taps = taps};
  if (taps == stride + 1 && layer.dilation(line) == 1) return of_outer_taps(layer, line);
  const bool is_last = line + 3 == layer.filter.size();
  if (!is_last || layer.dilation(line) != 1 || layer.conv.groups != 1) return std::nullopt;
  const auto whole = [&](std::int64_t pixels) { return (pixels + stride - 1) / stride; };
  LineForm form{.layer = layer, .line = line, .stride = stride, .direct_taps = taps};
  form.delay = whole(low) * stride - low;
  Layer& made = form.layer;
  made.image[line + 1] = whole(made.image[line + 1]);
  made.image.back() *= stride;
  made.filter[line] = whole(taps + form.delay);
  *(made.filter.end() - 2) *= stride;
  if (!made.conv.pad_low.empty()) made.conv.pad_low[line] = whole(low);
  made.conv.strides[line] = 1;
  return form;
}

/// The weights of every point, side by side, of w as the convolution reads it.
Value filters_of(Value w, const LineForm& form) {
  const std::size_t rank = w.type().dims().size();
  Axes perm{static_cast<std::int64_t>(rank) - 1, static_cast<std::int64_t>(rank) - 2};
  for (std::size_t axis = 0; axis + 2 < rank; ++axis)
    perm.push_back(static_cast<std::int64_t>(axis));
  const Dims& filter = form.layer.filter;
  Dims dims{filter.back(), *(filter.end() - 2) / form.stride};
  dims.insert(dims.end(), filter.begin(), filter.end() - 2);
  dims[form.line + 2] = form.direct_taps;
  const op::LineFilters filters{static_cast<std::int64_t>(form.line),
                                form.tile.outputs,
                                form.tile.taps,
                                form.stride * form.every,
                                form.delay,
                                form.stride};
  return w.graph().add_one(filters, {reshape(transpose(w, perm), to_shape(dims))});
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

/// That axis of a value from `begin` to before `end`, each step-th place.
Value along(Value v, std::size_t axis, std::int64_t begin, std::int64_t end,
            std::int64_t step = 1) {
  const Dims& dims = v.type().dims();
  Axes starts(dims.size(), 0), limits(dims.begin(), dims.end()), steps(dims.size(), 1);
  starts[axis] = begin;
  limits[axis] = end;
  steps[axis] = step;
  return slice(v, starts, limits, steps);
}

/// The direct sum of the taps between the two that the form's layer has, x in that layer's dims but
/// with all pixels.
Value sum_between(Value x, Value w, const LineForm& form) {
  const std::size_t axis = form.line + 1;
  Dims filter = form.layer.filter;
  filter[form.line] = form.direct_taps;
  w = reshape(w, to_shape(filter));
  const std::int64_t pixels = x.type().dims()[axis],
                     low = form.layer.low(form.line) * form.every - form.first,
                     begin = low == 0 ? 1 : 0, end = form.results() * form.every - low;
  op::Conv conv = form.layer.conv;
  conv.strides[form.line] = form.every;
  for (Axes* pads : {&conv.pad_low, &conv.pad_high})
    if (pads->empty()) pads->assign(conv.strides.size(), 0);
  conv.pad_low[form.line] = low - 1 + begin;
  conv.pad_high[form.line] = std::max<std::int64_t>(0, end - pixels);
  return x.graph().add_one(
      conv, {along(x, axis, begin, std::min(pixels, end)), along(w, form.line, 1, form.every)});
}

}  // namespace

std::optional<LineForm> line_form(const Layer& layer, std::size_t line, const lines::Tile& tile) {
  const bool is_volume = layer.filter.size() > 4;
  const auto image = is_volume ? along_one_axis(layer, line) : layer;
  if (!image) return std::nullopt;
  auto form = of_strides(*image, is_volume ? 0 : line);
  if (!form) return std::nullopt;
  form->tile = tile;
  const bool begins_inside = form->layer.low(form->line) <= form->dilation() * (form->taps() - 1);
  // Parts of a window read the same points where they are as long as tiles.
  const bool fits = form->parts() == 1 || tile.outputs == tile.taps;
  if (!begins_inside || !fits) return std::nullopt;
  return form;
}

Result<Value> by_lines(Value x, Value w, const LineForm& form, const Finish& finish) {
  Graph& graph = x.graph();
  const lines::Tile& tile = form.tile;
  const auto axis = static_cast<std::int64_t>(form.line) + 1;
  Dims limits = form.layer.image;
  std::int64_t& pixels = limits[form.line + 1];
  const std::int64_t low = form.layer.low(form.line), reads = form.reads() - low,
                     high = std::max<std::int64_t>(0, reads - pixels);
  Value between;
  if (form.every > 1) {
    Dims all = limits;
    all[form.line + 1] = x.type().elements() / (element_count(limits) / pixels);
    x = reshape(x, to_shape(all));
    between = sum_between(x, w, form);
    x = along(x, form.line + 1, form.first, all[form.line + 1], form.every);
  }
  if (form.stride > 1) {  // whole pixels
    Axes before(limits.size(), 0), behind = before;
    behind[form.line + 1] = pixels * form.stride - x.type().dims()[form.line + 1];
    x = pad(x, before, behind);
  }
  x = reshape(x, to_shape(limits));
  pixels = std::min(reads, pixels);
  x = slice(x, Axes(limits.size(), 0), Axes(limits.begin(), limits.end()));
  const op::LinePoints of_lines{axis, tile.outputs, tile.taps, form.dilation(), low, high};
  const Value products =
      graph.add_one(of_points(form), {graph.add_one(of_lines, {x}), filters_of(w, form)});
  const Value y =
      graph.add_one(op::LineOutputs{axis, tile.outputs, tile.taps, form.cut()}, {products});
  return finish(between ? y + between : y);
}

}  // namespace rlx::passes
