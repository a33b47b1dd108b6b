// Shapes and values of the phases of transposed convolutions.
#include "passes/phases.hpp"

#include <algorithm>

#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

std::int64_t at(const Axes& axes, std::size_t i, std::int64_t otherwise) {
  return axes.empty() ? otherwise : axes[i];
}

std::optional<PhaseAxis> phase_axis(const op::Conv& conv, std::size_t i, std::int64_t n,
                                    std::int64_t kernel, std::int64_t size) {
  if (at(conv.dilations, i, 1) != 1 && kernel > 1) return std::nullopt;
  PhaseAxis axis{.stride = at(conv.strides, i, 1), .size = size};
  const std::int64_t cut = at(conv.pad_low, i, 0);
  if (cut < 0) return std::nullopt;
  axis.taps = (kernel + axis.stride - 1) / axis.stride;
  axis.missing = axis.taps * axis.stride - kernel;
  const std::int64_t first = cut / axis.stride;
  const std::int64_t end = (cut + size + axis.stride - 1) / axis.stride;
  axis.start = cut - first * axis.stride;
  axis.places = end - first;
  axis.pad_low = axis.taps - 1 - first;
  axis.pad_high = axis.places - n - axis.pad_low + axis.taps - 1;
  if (axis.pad_low < 0 || axis.pad_high < 0) return std::nullopt;
  return axis;
}

}  // namespace

std::int64_t Phases::count() const {
  std::int64_t count = 1;
  for (const PhaseAxis& axis : axes) count *= axis.stride;
  return count;
}

std::int64_t Phases::channels() const { return groups * count() * out; }

bool Phases::are_whole() const {
  return std::ranges::all_of(axes, [](const PhaseAxis& axis) { return axis.missing == 0; });
}

std::optional<Phases> phases_of(const Graph& graph, const Node& node) {
  const auto* conv = node.op.as<op::Conv>();
  if (!conv || !conv->transposed || conv->channels_last || !node.results[0].is_static() ||
      !graph.type(node.inputs[0]).is_static() || !graph.type(node.inputs[1]).is_static())
    return std::nullopt;
  const Dims x = graph.type(node.inputs[0]).dims(), w = graph.type(node.inputs[1]).dims(),
             y = node.results[0].dims();
  Phases found{{}, conv->groups, w[0] / conv->groups, w[1]};
  // Groups of single channels are better off as windows over spread elements.
  if (element_count(y) == 0 || element_count(x) == 0 || (conv->groups > 1 && found.in < 4))
    return std::nullopt;
  for (std::size_t i = 0; i + 2 < x.size(); ++i) {
    const auto axis = phase_axis(*conv, i, x[i + 2], w[i + 2], y[i + 2]);
    if (!axis) return std::nullopt;
    found.axes.push_back(*axis);
  }
  if (found.count() == 1) return std::nullopt;
  return found;
}

op::Conv plain_convolution(const Phases& phases) {
  op::Conv plain{.groups = phases.groups};
  for (const PhaseAxis& axis : phases.axes) {
    plain.strides.push_back(1);
    plain.dilations.push_back(1);
    plain.pad_low.push_back(axis.pad_low);
    plain.pad_high.push_back(axis.pad_high);
  }
  return plain;
}

Value phase_weights(Value w, const Phases& phases) {
  const std::size_t spatial = phases.axes.size();
  Axes low(spatial + 2, 0), high(spatial + 2, 0), flipped;
  Shape split{Dim(phases.groups), Dim(phases.in), Dim(phases.out)}, joined;
  Axes perm;
  for (std::size_t i = 0; i < spatial; ++i) {
    const PhaseAxis& axis = phases.axes[i];
    high[i + 2] = axis.missing;
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
  joined.insert(joined.end(), {Dim(phases.in), Dim(phases.channels())});
  if (std::any_of(high.begin(), high.end(), [](auto n) { return n > 0; })) w = pad(w, low, high);
  w = reshape(w, split);
  if (!flipped.empty()) w = w.graph().add_one(op::Reverse{flipped}, {w});
  return reshape(transpose(w, perm), joined);
}

Value channel_operand(Value x, const Phases& phases) {
  const std::int64_t count = x.type().elements();
  if (count == 1) return reshape(x, Shape{});
  const Dim groups(phases.groups), blocks(phases.count()), out(phases.out);
  return reshape(broadcast(reshape(x, {groups, Dim(1), out}), {groups, blocks, out}),
                 {Dim(phases.channels())});
}

namespace {

/// [N, places * stride..., channels] -> [N, size..., channels].
Value cropped(Value y, const Phases& phases) {
  const Shape shape = y.shape();
  Axes starts{0}, limits{shape[0].value()};
  for (const PhaseAxis& axis : phases.axes) {
    starts.push_back(axis.start);
    limits.push_back(axis.start + axis.size);
  }
  starts.push_back(0);
  limits.push_back(shape.back().value());
  return slice(y, starts, limits);
}

}  // namespace

Value joined_phases(Value y, const Phases& phases) {
  const std::size_t spatial = phases.axes.size();
  const Dim images = y.shape()[0];
  Shape split{images}, joined{images};
  Axes perm{0};
  const auto first_phase = static_cast<std::int64_t>(spatial + 2);
  for (std::size_t i = 0; i < spatial; ++i) {
    const PhaseAxis& axis = phases.axes[i];
    const auto place = static_cast<std::int64_t>(i);
    split.push_back(axis.places);
    joined.push_back(axis.places * axis.stride);
    perm.insert(perm.end(), {place + 1, first_phase + place});
  }
  split.push_back(phases.groups);
  for (const PhaseAxis& axis : phases.axes) split.push_back(axis.stride);
  split.push_back(phases.out);
  perm.insert(perm.end(),
              {static_cast<std::int64_t>(spatial + 1), static_cast<std::int64_t>(2 * spatial + 2)});
  joined.push_back(phases.groups * phases.out);
  return cropped(reshape(transpose(reshape(y, split), perm), joined), phases);
}

Phases PhaseParts::of_part() const {
  Phases part = phases;
  for (std::size_t i = 0; i < apart; ++i) part.axes[i].stride = 1;
  return part;
}

Values PhaseParts::slices(Value all) const {
  const std::int64_t channels = of_part().channels();
  Axes starts(all.shape().size(), 0), limits;
  for (const Dim& dim : all.shape()) limits.push_back(dim.value());
  Values parts;
  for (std::int64_t first = 0; first < phases.channels(); first += channels) {
    starts.back() = first;
    limits.back() = first + channels;
    parts.push_back(slice(all, starts, limits));
  }
  return parts;
}

Value PhaseParts::joined(const Values& parts) const {
  // [N, (place, 1)..., out], or with (place * phase * out) of an axis whose phases are together.
  Shape beside{parts[0].shape()[0]}, joined = beside;
  for (std::size_t i = 0; i < phases.axes.size(); ++i) {
    const PhaseAxis& axis = phases.axes[i];
    joined.push_back(axis.places * axis.stride);
    if (i < apart) beside.insert(beside.end(), {Dim(axis.places), Dim(1)});
  }
  const PhaseAxis& last = phases.axes.back();
  const bool together = apart < phases.axes.size();
  beside.push_back(together ? last.places * last.stride * phases.out : phases.out);
  joined.push_back(phases.out);
  Values rows;
  for (const Value& part : parts) rows.push_back(reshape(part, beside));
  // The phases of the last of these axes change fastest.
  for (std::size_t i = apart; i-- > 0;) {
    Values some, fewer;
    for (const Value& row : rows) {
      some.push_back(row);
      if (std::ssize(some) < phases.axes[i].stride) continue;
      fewer.push_back(concat(some, static_cast<std::int64_t>(2 * i + 2)));
      some.clear();
    }
    rows = std::move(fewer);
  }
  return cropped(reshape(rows[0], joined), phases);
}

}  // namespace rlx::passes
