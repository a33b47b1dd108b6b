// Ops that only rearrange elements: reshape, transpose, concat, split, slice, pad, blocks.
#include <algorithm>
#include <limits>
#include <numeric>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

void shape_of(NodeContext& c) {
  const Value x = c.in(0);
  const int rank = x.rank();
  auto start = c.integer("start", 0), end = c.integer("end", rank);
  start = std::clamp<std::int64_t>(start < 0 ? start + rank : start, 0, rank);
  end = std::clamp<std::int64_t>(end < 0 ? end + rank : end, start, rank);
  const Shape part(x.shape().begin() + start, x.shape().begin() + end);
  if (std::all_of(part.begin(), part.end(), [](const Dim& dim) { return dim.is_static(); })) {
    Axes dims;
    for (const Dim& dim : part) dims.push_back(dim.value());
    c.set(c.integers_constant(dims));
    return;
  }
  const Value all = c.add(op::ShapeOf{}, {x});
  const Value result = part.size() == x.shape().size() ? all : slice(all, {start}, {end});
  c.set(result);
  c.remember_shape(result, part);
}

void size_of_tensor(NodeContext& c) {
  const Value x = c.in(0);
  const Dim elements = product_of(x.shape());
  if (elements.is_static()) {
    c.set(c.graph().constant(Tensor::scalar<std::int64_t>(elements.value())));
    return;
  }
  const Value result = reduce(c.add(op::ShapeOf{}, {x}), Reduction::prod, {0});
  c.set(result);
  c.remember_shape(result, {elements});
}

void reshape_node(NodeContext& c) {
  const bool allow_zero = c.flag("allowzero");
  c.set(reshape_to(c, c.in(0), c.in(1), allow_zero));
}

void reshape_by_attribute(NodeContext& c) {
  c.set(reshape_to(c, c.in(0), c.integers_constant(c.integers("shape")), false));
}

void transpose_node(NodeContext& c) {
  const Value x = c.in(0);
  Axes perm(static_cast<std::size_t>(x.rank()));
  for (int i = 0; i < x.rank(); ++i) perm[static_cast<std::size_t>(i)] = x.rank() - 1 - i;
  c.set(transpose(x, c.integers("perm", perm)));
}

// Axes as an input (since 13) or an attribute; nothing if left out.
std::optional<Axes> axes_operand(NodeContext& c, int input) {
  if (c.version() < 13) return c.optional_integers("axes");
  if (!c.has(input)) return std::nullopt;
  return known_or_fail(c, input, "axes");
}

/// x with those of its axes, whose dims are not known yet, and new ones of 1 (-1).
Value reshape_by_axes(NodeContext& c, const Value& x, Axes axes) {
  const Value dims = concat({c.add(op::ShapeOf{}, {x}), c.integers_constant({1})}, 0);
  Shape shape;
  for (std::int64_t& axis : axes) {
    shape.push_back(axis < 0 ? Dim(1) : x.shape()[static_cast<std::size_t>(axis)]);
    axis = axis < 0 ? x.rank() : axis;
  }
  return with_known_dims(reshape_to(c, x, gather(dims, c.integers_constant(axes), 0), true), shape);
}

void squeeze_node(NodeContext& c) {
  const Value x = c.in(0);
  const auto axes = axes_operand(c, 1);
  std::vector<bool> dropped(static_cast<std::size_t>(x.rank()), false);
  for (const std::int64_t axis : axes.value_or(Axes{})) {
    dropped[static_cast<std::size_t>(normal_axis(axis, x.rank()))] = true;
  }
  Shape shape;
  Axes kept;
  for (std::size_t i = 0; i < x.shape().size(); ++i) {
    const Dim& dim = x.shape()[i];
    if (axes && dropped[i] && dim.is_static() && dim.value() != 1) {
      fail("Axis ({}) of {} is not 1 and cannot be squeezed.", i, x.type().text());
    }
    if (axes ? dropped[i] : dim == Dim(1)) continue;
    shape.push_back(dim);
    kept.push_back(static_cast<std::int64_t>(i));
  }
  const bool is_known = !axes || is_told(shape);
  c.set(is_known ? reshape(x, shape) : reshape_by_axes(c, x, kept));
}

void unsqueeze_node(NodeContext& c) {
  const Value x = c.in(0);
  const auto axes = axes_operand(c, 1);
  if (!axes) fail("The axes are missing.");
  const Value result = unsqueeze_axes(x, *axes);
  if (is_told(result.shape())) {
    c.set(result);
    return;
  }
  Axes from(result.shape().size(), 0);
  for (const std::int64_t axis : *axes)
    from[static_cast<std::size_t>(normal_axis(axis, result.rank()))] = -1;
  std::int64_t next = 0;
  for (std::int64_t& axis : from) axis = axis < 0 ? axis : next++;
  c.set(reshape_by_axes(c, x, std::move(from)));
}

void flatten(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = c.integer("axis", 1);
  const auto split = axis < 0 ? axis + x.rank() : axis;
  if (split < 0 || split > x.rank()) fail("Axis ({}) is outside the rank ({}).", axis, x.rank());
  const auto middle = x.shape().begin() + split;
  c.set(reshape(x, {product_of(Shape(x.shape().begin(), middle)),
                    product_of(Shape(middle, x.shape().end()))}));
}

void concat_node(NodeContext& c) {
  const auto axis = c.version() < 4 ? c.integer("axis", 1) : c.integer("axis");
  c.set(concat(c.inputs(), axis));
}

void split_into(NodeContext& c, const Value& x, std::int64_t axis, const Axes& sizes) {
  Axes starts(static_cast<std::size_t>(x.rank()), 0), limits;
  std::int64_t position = 0;
  if (static_cast<int>(sizes.size()) != c.output_count()) {
    fail("It has ({}) outputs and ({}) sizes.", c.output_count(), sizes.size());
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) fail("The size ({}) of a part is negative.", sizes[i]);
    if (c.wants(static_cast<int>(i))) {
      c.set(static_cast<int>(i), slice_axis(x, axis, position, position + sizes[i]));
    }
    position += sizes[i];
  }
  const Dim& whole = x.shape()[static_cast<std::size_t>(axis)];
  if (whole.is_static() && position != whole.value()) {
    fail("The parts have ({}) elements together and the axis ({}).", position, whole.value());
  }
}

/// x sliced along `axes` by lists that are told later or whose dims are; the other axes stay.
Value sliced_later(NodeContext& c, const Value& x, const Values& lists,
                   const std::optional<Axes>& axes) {
  Values operands{x};
  for (const Value& list : lists)
    operands.push_back(list && list.dtype() != i64 ? cast(list, i64) : list);
  const Value result = c.add(op::DynamicSliceRange{}, operands);
  if (!axes) return result;
  Shape known = x.shape();
  for (const std::int64_t axis : *axes)
    known[static_cast<std::size_t>(normal_axis(axis, x.rank()))] = Dim::unknown();
  return with_known_dims(result, known);
}

/// Parts of one size, the last one what is left since version 18, of an axis whose dim is told
/// later.
void split_later(NodeContext& c, const Value& x, std::int64_t axis, std::int64_t parts) {
  const auto list = [&](std::int64_t number) { return c.integers_constant({number}); };
  const Value whole = gather(c.add(op::ShapeOf{}, {x}), list(axis), 0);
  const Value each = (whole + list(parts - 1)) / list(parts);
  Shape known(x.shape().size(), Dim::unknown());
  Dim& size = known[static_cast<std::size_t>(axis)];
  if (c.version() < 18) size = floor_div(x.shape()[static_cast<std::size_t>(axis)], parts);
  for (std::int64_t i = 0; i < parts; ++i) {
    if (!c.wants(static_cast<int>(i))) continue;
    const Values bounds{each * list(i), each * list(i + 1), list(axis)};
    c.set(static_cast<int>(i), with_known_dims(sliced_later(c, x, bounds, Axes{axis}), known));
  }
}

void split_node(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = normal_axis(c.integer("axis", 0), x.rank());
  std::optional<Axes> sizes;
  if (c.version() < 13) sizes = c.optional_integers("split");
  if (c.has(1)) sizes = known_or_fail(c, 1, "split");
  if (!sizes) {
    const auto parts = c.integer("num_outputs", c.output_count());
    if (parts <= 0 || parts != c.output_count()) fail("The number of parts ({}) is wrong.", parts);
    if (!x.shape()[static_cast<std::size_t>(axis)].is_static()) {
      split_later(c, x, axis, parts);
      return;
    }
    const auto whole = static_dim(x, axis);
    const auto each = (whole + parts - 1) / parts;
    if (c.version() < 18 && whole % parts != 0) {
      fail("An axis of ({}) has no ({}) equal parts.", whole, parts);
    }
    sizes.emplace();
    for (std::int64_t i = 0; i < parts; ++i) {
      sizes->push_back(std::clamp<std::int64_t>(whole - i * each, 0, each));
    }
  }
  split_into(c, x, axis, *sizes);
}

// ---- slice --------------------------------------------------------------------------------------

/// Slices along some axes, by numbers.
struct KnownSlices {
  Axes starts, ends, axes, steps;
};

/// The slices along axes whose dims are known, which leave the other axes whole; `open` takes those
/// whose dims are still to be told.
op::Slice static_slice(const Value& x, const KnownSlices& slices, KnownSlices& open) {
  const auto rank = static_cast<std::size_t>(x.rank());
  op::Slice result{Axes(rank, 0), Axes(rank, op::slice_end), Axes(rank, 1)};
  std::vector<bool> done(rank, false);
  for (std::size_t i = 0; i < slices.axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(normal_axis(slices.axes[i], x.rank()));
    const std::int64_t start = slices.starts[i], end = slices.ends[i], step = slices.steps[i];
    if (done[axis]) fail("The axis ({}) is sliced twice.", slices.axes[i]);
    if (step == 0) fail("A step of 0 is not possible.");
    done[axis] = true;
    constexpr std::int64_t to_the_end = std::numeric_limits<std::int32_t>::max();
    if (start == 0 && step == 1 && end >= to_the_end) continue;
    if (!x.shape()[axis].is_static()) {
      open.starts.push_back(start);
      open.ends.push_back(end);
      open.axes.push_back(static_cast<std::int64_t>(axis));
      open.steps.push_back(step);
      continue;
    }
    const std::int64_t dim = x.shape()[axis].value();
    const auto from_end = [dim](std::int64_t at) { return at < 0 ? at + dim : at; };
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
    result.starts[axis] = std::clamp(from_end(std::max(start, -dim)), std::int64_t{0},
                                     std::max<std::int64_t>(high, 0));
    result.limits[axis] = std::clamp(from_end(std::max(end, -dim - 1)), low, std::max(high, low));
    result.steps[axis] = step;
  }
  return result;
}

void slice_with(NodeContext& c, const Value& x, Value starts, Value ends, Value axes, Value steps) {
  const auto known_starts = c.known_integers(starts), known_ends = c.known_integers(ends);
  const auto known_axes = c.known_integers(axes), known_steps = c.known_integers(steps);
  const bool known = known_starts && known_ends && (!axes || known_axes) && (!steps || known_steps);
  if (!known) {
    c.set(sliced_later(c, x, {starts, ends, axes, steps}, known_axes));
    return;
  }
  const std::size_t count = known_starts->size();
  Axes all(count);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const KnownSlices slices{*known_starts, *known_ends, known_axes.value_or(all),
                           known_steps.value_or(Axes(count, 1))};
  if (slices.ends.size() != count || slices.axes.size() != count || slices.steps.size() != count)
    fail("Starts, ends, axes and steps have different lengths.");
  KnownSlices open;
  const Value part = c.add(static_slice(x, slices, open), {x});
  if (open.axes.empty()) {
    c.set(part);
    return;
  }
  c.set(sliced_later(c, part,
                     {c.integers_constant(open.starts), c.integers_constant(open.ends),
                      c.integers_constant(open.axes), c.integers_constant(open.steps)},
                     open.axes));
}

void slice_node(NodeContext& c) {
  slice_with(c, c.in(0), c.in(1), c.in(2), c.optional(3), c.optional(4));
}

void slice_by_attributes(NodeContext& c) {
  const auto axes = c.optional_integers("axes");
  slice_with(c, c.in(0), c.integers_constant(c.integers("starts")),
             c.integers_constant(c.integers("ends")), axes ? c.integers_constant(*axes) : Value(),
             Value());
}

// ---- pad ----------------------------------------------------------------------------------------

PadMode pad_mode(NodeContext& c) {
  const std::string mode = c.text("mode", "constant");
  for (const PadMode m : {PadMode::constant, PadMode::reflect, PadMode::edge, PadMode::wrap}) {
    if (enum_names(m)[static_cast<std::size_t>(m)] == mode) return m;
  }
  fail("The mode ({}) is unknown.", mode);
}

void pad_by(NodeContext& c, const Value& x, const Axes& pads, Axes axes, PadMode mode, Value fill) {
  const auto rank = static_cast<std::size_t>(x.rank());
  if (axes.empty() && pads.size() == 2 * rank) {
    for (std::size_t i = 0; i < rank; ++i) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (pads.size() != 2 * axes.size()) {
    fail("There are ({}) pads for ({}) axes.", pads.size(), axes.size());
  }
  op::Pad attributes{Axes(rank, 0), Axes(rank, 0), mode};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(normal_axis(axes[i], x.rank()));
    attributes.low[axis] = pads[i];
    attributes.high[axis] = pads[i + axes.size()];
  }
  c.set(fill && mode == PadMode::constant ? c.add(attributes, {x, fill}) : c.add(attributes, {x}));
}

void pad_node(NodeContext& c) {
  const Value x = c.in(0);
  const PadMode mode = pad_mode(c);
  const Value fill = c.has(2) ? reshape(c.in(2), {}) : Value();
  const auto pads = c.known_integers(c.in(1));
  const auto axes = c.has(3) ? c.known_integers(c.in(3)) : std::optional(Axes{});
  if (pads && axes) {
    pad_by(c, x, *pads, *axes, mode, fill);
    return;
  }
  const Value wide_axes = c.has(3) ? cast(c.in(3), i64) : Value();
  c.set(c.add(op::DynamicPad{mode}, {x, cast(c.in(1), i64), fill, wide_axes}));
}

void pad_by_attributes(NodeContext& c) {
  const Value x = c.in(0);
  const Axes pads = c.integers(c.version() < 2 ? "paddings" : "pads");
  pad_by(c, x, pads, {}, pad_mode(c), c.scalar(x.dtype(), c.real("value", 0)));
}

// ---- blocks -------------------------------------------------------------------------------------

std::int64_t block_size(NodeContext& c) {
  const auto size = c.integer("blocksize");
  if (size <= 0 || size > (1 << 20)) fail("The block size ({}) is wrong.", size);
  return size;
}

void depth_to_space(NodeContext& c) {
  const Value x = c.in(0);
  const Dim b = block_size(c);
  if (x.rank() != 4) fail("It takes [N,C,H,W], not {}.", x.type().text());
  const std::string mode = c.text("mode", "DCR");
  const Shape& s = x.shape();
  const Dim depth = floor_div(s[1], b * b);
  const bool depth_first = mode == "DCR";
  if (!depth_first && mode != "CRD") fail("The mode ({}) is unknown.", mode);
  const Value apart = depth_first ? reshape(x, {s[0], b, b, depth, s[2], s[3]})
                                  : reshape(x, {s[0], depth, b, b, s[2], s[3]});
  const Axes perm = depth_first ? Axes{0, 3, 4, 1, 5, 2} : Axes{0, 1, 4, 2, 5, 3};
  c.set(reshape(transpose(apart, perm), {s[0], depth, s[2] * b, s[3] * b}));
}

void space_to_depth(NodeContext& c) {
  const Value x = c.in(0);
  const Dim b = block_size(c);
  if (x.rank() != 4) fail("It takes [N,C,H,W], not {}.", x.type().text());
  const Shape& s = x.shape();
  const Dim height = floor_div(s[2], b), width = floor_div(s[3], b);
  const std::string mode = c.text("mode", "DCR");
  const bool depth_first = mode == "DCR";
  const Value apart = reshape(x, {s[0], s[1], height, b, width, b});
  const Axes perm = depth_first ? Axes{0, 3, 5, 1, 2, 4} : Axes{0, 1, 3, 5, 2, 4};
  c.set(reshape(transpose(apart, perm), {s[0], s[1] * b * b, height, width}));
}

void center_crop_pad(NodeContext& c) {
  Value x = c.in(0);
  const Axes sizes = known_or_fail(c, 1, "shape");
  Axes all;
  for (int i = 0; i < x.rank(); ++i) all.push_back(i);
  const Axes axes = c.integers("axes", all);
  if (sizes.size() != axes.size()) {
    fail("There are ({}) sizes for ({}) axes.", sizes.size(), axes.size());
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = normal_axis(axes[i], x.rank());
    const auto now = static_dim(x, axis), wanted = sizes[i];
    if (wanted < now) {
      const auto start = (now - wanted) / 2;
      x = slice_axis(x, axis, start, start + wanted);
    } else if (wanted > now) {
      Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
      low[static_cast<std::size_t>(axis)] = (wanted - now) / 2;
      high[static_cast<std::size_t>(axis)] = wanted - now - (wanted - now) / 2;
      x = pad(x, low, high);
    }
  }
  c.set(x);
}

constexpr OpEntry entries[] = {
    {"Shape", 1, shape_of},
    {"Size", 1, size_of_tensor},
    {"Reshape", 5, reshape_node},
    {"Reshape", 1, reshape_by_attribute},
    {"Transpose", 1, transpose_node},
    {"Squeeze", 1, squeeze_node},
    {"Unsqueeze", 1, unsqueeze_node},
    {"Flatten", 1, flatten},
    {"Concat", 1, concat_node},
    {"Split", 1, split_node},
    {"Slice", 10, slice_node},
    {"Slice", 1, slice_by_attributes},
    {"Pad", 11, pad_node},
    {"Pad", 1, pad_by_attributes},
    {"DepthToSpace", 1, depth_to_space},
    {"SpaceToDepth", 1, space_to_depth},
    {"CenterCropPad", 18, center_crop_pad},
};

}  // namespace

OpEntries shape_entries() { return entries; }

}  // namespace rlx::onnx
