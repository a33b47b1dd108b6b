// Transposed convolutions with strides as plain ones of which every channel block is one phase of
// the result (sub-pixel convolutions): nothing is multiplied with zeros between the elements of x.
#include "passes/sub_pixel.hpp"

#include <algorithm>
#include <optional>

#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

std::int64_t at(const Axes& axes, std::size_t i, std::int64_t otherwise) {
  return axes.empty() ? otherwise : axes[i];
}

/// One spatial axis: result[q * stride + phase] = sum over t of x[q - t] * w[t * stride + phase].
struct PhaseAxis {
  std::int64_t stride = 1, taps = 1;       ///< taps of a phase
  std::int64_t pad_low = 0, pad_high = 0;  ///< of the plain convolution over x
  std::int64_t places = 1;                 ///< its results
  std::int64_t start = 0, size = 1;        ///< the part of places * stride that is the result
};

/// A transposed convolution and the maps behind it that treat all points of a channel alike.
struct Upsampling : FoundProduct {
  std::vector<PhaseAxis> axes;
  std::int64_t groups = 1, in = 1, out = 1;  ///< channels of a group

  std::int64_t phases() const {
    std::int64_t count = 1;
    for (const PhaseAxis& axis : axes) count *= axis.stride;
    return count;
  }
};

class Upsamplings {
 public:
  explicit Upsamplings(const Graph& graph) : graph_(graph), maps_(graph) {}

  std::optional<Upsampling> at_conv(std::int32_t index) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const auto* conv = node.op.as<op::Conv>();
    if (!conv || !conv->transposed || conv->channels_last || !node.results[0].is_static() ||
        !graph_.type(node.inputs[0]).is_static() || !graph_.type(node.inputs[1]).is_static())
      return std::nullopt;
    const Dims x = graph_.type(node.inputs[0]).dims(), w = graph_.type(node.inputs[1]).dims(),
               y = node.results[0].dims();
    Upsampling found{{index, {}}, {}, conv->groups};
    found.in = w[0] / conv->groups;
    found.out = w[1];
    // Groups of single channels are better off as windows over spread elements.
    if (element_count(y) == 0 || element_count(x) == 0 || (conv->groups > 1 && found.in < 4))
      return std::nullopt;
    for (std::size_t i = 0; i + 2 < x.size(); ++i) {
      const auto axis = phase_axis(*conv, i, x[i + 2], w[i + 2], y[i + 2]);
      if (!axis) return std::nullopt;
      found.axes.push_back(*axis);
    }
    if (found.phases() == 1) return std::nullopt;
    found.maps = maps_.behind(index, 1);
    return found;
  }

 private:
  static std::optional<PhaseAxis> phase_axis(const op::Conv& conv, std::size_t i, std::int64_t n,
                                             std::int64_t kernel, std::int64_t size) {
    if (at(conv.dilations, i, 1) != 1 && kernel > 1) return std::nullopt;
    PhaseAxis axis{.stride = at(conv.strides, i, 1), .size = size};
    const std::int64_t cut = at(conv.pad_low, i, 0);
    if (cut < 0) return std::nullopt;
    axis.taps = (kernel + axis.stride - 1) / axis.stride;
    const std::int64_t first = cut / axis.stride;
    const std::int64_t end = (cut + size + axis.stride - 1) / axis.stride;
    axis.start = cut - first * axis.stride;
    axis.places = end - first;
    axis.pad_low = axis.taps - 1 - first;
    axis.pad_high = axis.places - n - axis.pad_low + axis.taps - 1;
    if (axis.pad_low < 0 || axis.pad_high < 0) return std::nullopt;
    return axis;
  }

  const Graph& graph_;
  ChannelMaps maps_;
};

// w [g*in, out, k...] -> [taps..., in, g * phases * out], the taps of a phase in reverse.
Value phase_weights(Value w, const Upsampling& up) {
  const std::size_t spatial = up.axes.size();
  Axes low(spatial + 2, 0), high(spatial + 2, 0), flipped;
  Shape split{Dim(up.groups), Dim(up.in), Dim(up.out)}, joined;
  Axes perm;
  for (std::size_t i = 0; i < spatial; ++i) {
    const PhaseAxis& axis = up.axes[i];
    high[i + 2] = axis.taps * axis.stride - w.shape()[i + 2].value();
    split.push_back(axis.taps);
    split.push_back(axis.stride);
    joined.push_back(axis.taps);
    const auto taps = static_cast<std::int64_t>(3 + 2 * i);
    perm.push_back(taps);
    if (axis.taps > 1) flipped.push_back(taps);
  }
  perm.insert(perm.end(), {1, 0});
  for (std::size_t i = 0; i < spatial; ++i) perm.push_back(static_cast<std::int64_t>(4 + 2 * i));
  perm.push_back(2);
  joined.insert(joined.end(), {Dim(up.in), Dim(up.groups * up.phases() * up.out)});
  if (std::any_of(high.begin(), high.end(), [](auto n) { return n > 0; })) w = pad(w, low, high);
  w = reshape(w, split);
  if (!flipped.empty()) w = w.graph().add_one(op::Reverse{flipped}, {w});
  return reshape(transpose(w, perm), joined);
}

/// An operand of a map, for channels (group, phases, out) that lie last.
Value channel_operand(Value x, const Upsampling& up) {
  const std::int64_t count = x.type().elements();
  if (count == 1) return reshape(x, Shape{});
  const Dim groups(up.groups), phases(up.phases()), out(up.out);
  return reshape(broadcast(reshape(x, {groups, Dim(1), out}), {groups, phases, out}),
                 {Dim(up.groups * up.phases() * up.out)});
}

// y [N, places..., g * phases * out] -> [N, places * stride..., g * out], cropped, channels first.
Value joined_phases(Value y, const Upsampling& up) {
  const std::size_t spatial = up.axes.size();
  const Dim images = y.shape()[0];
  Shape split{images}, joined{images};
  Axes perm{0}, starts{0}, limits{images.value()}, to_front{0};
  const auto first_phase = static_cast<std::int64_t>(spatial + 2);
  for (std::size_t i = 0; i < spatial; ++i) {
    const PhaseAxis& axis = up.axes[i];
    const auto place = static_cast<std::int64_t>(i);
    split.push_back(axis.places);
    joined.push_back(axis.places * axis.stride);
    perm.insert(perm.end(), {place + 1, first_phase + place});
    starts.push_back(axis.start);
    limits.push_back(axis.start + axis.size);
  }
  split.push_back(up.groups);
  for (const PhaseAxis& axis : up.axes) split.push_back(axis.stride);
  split.push_back(up.out);
  perm.insert(perm.end(),
              {static_cast<std::int64_t>(spatial + 1), static_cast<std::int64_t>(2 * spatial + 2)});
  joined.push_back(up.groups * up.out);
  starts.push_back(0);
  limits.push_back(up.groups * up.out);
  y = slice(reshape(transpose(reshape(y, split), perm), joined), starts, limits);
  to_front.push_back(static_cast<std::int64_t>(spatial + 1));
  for (std::size_t i = 0; i < spatial; ++i) to_front.push_back(static_cast<std::int64_t>(i + 1));
  return transpose(y, to_front);
}

Value phase_convolution(Rewriter& rewriter, const Node& node, const Upsampling& up) {
  const Values inputs = rewriter.values_of(node);
  const auto rank = static_cast<std::int64_t>(up.axes.size()) + 2;
  Axes to_back{0};
  for (std::int64_t axis = 2; axis < rank; ++axis) to_back.push_back(axis);
  to_back.push_back(1);
  op::Conv plain{.groups = up.groups, .channels_last = true};
  for (const PhaseAxis& axis : up.axes) {
    plain.strides.push_back(1);
    plain.dilations.push_back(1);
    plain.pad_low.push_back(axis.pad_low);
    plain.pad_high.push_back(axis.pad_high);
  }
  Value y = rewriter.target().add_one(
      plain, {transpose(inputs[0], to_back), phase_weights(inputs[1], up)});
  if (inputs.size() > 2 && inputs[2]) y = y + channel_operand(inputs[2], up);
  return y;
}

Result<Value> upsampled(Rewriter& rewriter, const Upsampling& up) {
  const Node& conv = rewriter.source().nodes()[static_cast<std::size_t>(up.product)];
  RLX_ASSIGN(const Value y,
             add_maps(rewriter, up.product, up.maps, phase_convolution(rewriter, conv, up),
                      [&](Value operand) { return channel_operand(operand, up); }));
  return joined_phases(y, up);
}

}  // namespace

Result<Graph> sub_pixel(const Graph& graph) {
  const Upsamplings all(graph);
  std::vector<Upsampling> found;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    if (auto up = all.at_conv(static_cast<std::int32_t>(i))) found.push_back(std::move(*up));
  }
  return replace_found(graph, found, upsampled);
}

}  // namespace rlx::passes
