// Ops whose operands tell dims: those that view, cut and pad x. Their results have unknown dims of
// a known rank; once the operands are known, each resolves to ops whose attributes say the same.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/dynamic_shape.hpp"
#include "ops/families.hpp"

namespace rlx {

using namespace dynamic_shape;

template <>
struct Rules<op::DynamicReshape> {
  static constexpr std::string_view name = "dynamic_reshape";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{field("allow_zero", &op::DynamicReshape::allow_zero)};
  static Types infer(const op::DynamicReshape&, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t rank, list_length(name, "a shape", args[1]));
    return one(args[0].dtype, unknown_shape(rank));
  }
  static std::optional<Values> resolve(const op::DynamicReshape& a, Graph&,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto wanted = known_integers(known, 1);
    if (!wanted) return std::nullopt;
    Shape shape;
    for (std::size_t i = 0; i < wanted->size(); ++i) {
      if ((*wanted)[i] != 0 || a.allow_zero) {
        shape.push_back((*wanted)[i]);
        continue;
      }
      if (i >= inputs[0].shape().size()) {
        throw Exception(bad_input("Dim ({}) of a reshape copies an axis that {} does not have.", i,
                                  inputs[0].type().text()));
      }
      shape.push_back(inputs[0].shape()[i]);
    }
    return Values{reshape(inputs[0], std::move(shape))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicReshape{},
             .inputs = {Type{f32, {2, 3, 4}}, Type{i64, {3}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({3}, {0, -1, 2})}},
            {.op = op::DynamicReshape{true},
             .inputs = {Type{f32, {0, 4}}, Type{i64, {2}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {3, 0})}}};
  }
};
RLX_OP(op::DynamicReshape, "dynamic_shape")

template <>
struct Rules<op::DynamicBroadcast> {
  static constexpr std::string_view name = "dynamic_broadcast";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicBroadcast&, const InferArgs& args) {
    RLX_ASSIGN(const std::int64_t rank, list_length(name, "a shape", args[1]));
    return one(args[0].dtype, unknown_shape(std::max<std::int64_t>(rank, args[0].rank())));
  }
  static std::optional<Values> resolve(const op::DynamicBroadcast&, Graph&,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto wanted = known_integers(known, 1);
    if (!wanted) return std::nullopt;
    const Status dims = require_no_negative(*wanted, name);
    if (!dims.ok()) throw Exception(dims.error());
    return Values{broadcast(
        inputs[0], value_or_throw(broadcast_shapes(inputs[0].shape(), to_shape(*wanted)), name))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicBroadcast{},
             .inputs = {Type{f32, {3, 1}}, Type{i64, {3}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({3}, {2, 1, 4})}}};
  }
};
RLX_OP(op::DynamicBroadcast, "dynamic_shape")

namespace {

// ONNX's bounds: negative ones count from the end, then both are clamped; which limits are allowed
// depends on the direction.
void clamp_bounds(std::int64_t size, std::int64_t step, std::int64_t& start, std::int64_t& limit) {
  const auto from_end = [size](std::int64_t bound) {
    return bound < 0 ? (bound < -size ? -1 - size : bound) + size : bound;
  };
  start = from_end(start);
  limit = from_end(limit);
  if (step > 0) {
    start = std::clamp<std::int64_t>(start, 0, size);
    limit = std::clamp(limit, start, std::max(start, size));
  } else {
    start = std::clamp<std::int64_t>(start, -1, size - 1);
    limit = std::clamp<std::int64_t>(limit, -1, start);
  }
}

}  // namespace

template <>
struct Rules<op::DynamicSliceRange> {
  static constexpr std::string_view name = "dynamic_slice_range";
  static constexpr Arity arity{3, 5};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicSliceRange&, const InferArgs& args) {
    constexpr std::string_view names[] = {"", "starts", "ends", "axes", "steps"};
    std::optional<Dim> length;
    for (int i = 1; i < args.count(); ++i) {
      if (!args.has(i)) continue;
      const Type& list = args[i];
      if (!is_integer(list.dtype) || list.rank() != 1)
        return bad_input("The op {} wants {} as a list of integers, not {}.", name, names[i],
                         list.text());
      if (length && !compatible(*length, list.shape[0]))
        return bad_input("The starts, ends, axes and steps of {} differ in length ({} against {}).",
                         name, length->text(), list.shape[0].text());
      length = list.shape[0];
    }
    if (length && length->is_static() && length->value() > args[0].rank()) {
      return bad_input("The op {} was given bounds for ({}) axes of {}.", name, length->value(),
                       args[0].text());
    }
    return one(args[0].dtype, unknown_shape(args[0].rank()));
  }
  static std::optional<Values> resolve(const op::DynamicSliceRange&, Graph&,
                                       std::span<const Value> inputs, KnownValues known) {
    std::optional<Axes> lists[5];
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      lists[i] = known_integers(known, i);
      if (inputs[i] && !lists[i]) return std::nullopt;
    }
    const Value& x = inputs[0];
    const Axes axes = named_axes(lists[3], lists[1]->size());
    for (std::size_t i = 1; i < 5; ++i) {
      if (lists[i]) require_length(*lists[i], axes.size(), "entries in each of its lists", name);
    }
    op::Slice slice{Axes(x.shape().size(), 0), Axes(x.shape().size(), op::slice_end),
                    Axes(x.shape().size(), 1)};
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<std::size_t>(
          value_or_throw(normalize_axis(axes[i], x.rank(), x.type()), name));
      const Dim& dim = x.shape()[axis];
      const std::int64_t step = lists[4] ? (*lists[4])[i] : 1;
      std::int64_t start = (*lists[1])[i], limit = (*lists[2])[i];
      if (step == 0)
        throw Exception(bad_input("The step of a slice of {} along axis ({}) is ({}).",
                                  x.type().text(), axis, step));
      // A dim that is no number yet is left for later, but for bounds that mean the whole axis.
      const bool whole = start == 0 && step == 1 && limit >= (std::int64_t{1} << 31) - 1;
      if (!dim.is_static() && !whole) return std::nullopt;
      if (dim.is_static()) clamp_bounds(dim.value(), step, start, limit);
      slice.starts[axis] = start;
      slice.limits[axis] = dim.is_static() ? limit : op::slice_end;
      slice.steps[axis] = std::clamp<std::int64_t>(step, -op::slice_end, op::slice_end);
    }
    return Values{
        rlx::slice(x, std::move(slice.starts), std::move(slice.limits), std::move(slice.steps))};
  }
  static std::vector<Sample> samples() {
    const auto list = [](std::initializer_list<std::int64_t> values) {
      return std::optional(
          Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values));
    };
    return {
        {.op = op::DynamicSliceRange{},
         .inputs = {Type{f32, {5, 6}}, Type{i64, {2}}, Type{i64, {2}}, Type{i64, {2}},
                    Type{i64, {2}}},
         .values = {std::nullopt, list({-1, 1}), list({-100, 9}), list({0, -1}), list({-2, 2})}},
        {.op = op::DynamicSliceRange{},
         .inputs = {Type{i64, {5}}, Type{i64, {1}}, Type{i64, {1}}},
         .values = {std::nullopt, list({1}), list({-1})}}};
  }
};
RLX_OP(op::DynamicSliceRange, "dynamic_shape")

/// pads: the low widths of the axes, then the high ones.
template <>
struct Rules<op::DynamicPad> {
  static constexpr std::string_view name = "dynamic_pad";
  static constexpr Arity arity{2, 4};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{field("mode", &op::DynamicPad::mode)};
  static Types infer(const op::DynamicPad&, const InferArgs& args) {
    for (const int i : {1, 3}) {
      if (!args.has(i) || (is_integer(args[i].dtype) && args[i].rank() == 1)) continue;
      return bad_input("The op {} wants {} as a list of integers, not {}.", name,
                       i == 1 ? "widths" : "axes", args[i].text());
    }
    if (args.has(2) && (args[2].dtype != args[0].dtype || args[2].rank() > 1)) {
      return bad_input("The op {} wants a scalar of {} as fill value, not {}.", name,
                       name_of(args[0].dtype), args[2].text());
    }
    return one(args[0].dtype, unknown_shape(args[0].rank()));
  }
  static std::optional<Values> resolve(const op::DynamicPad& a, Graph& graph,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto widths = known_integers(known, 1), axes = known_integers(known, 3);
    if (!widths || (given(inputs, 3) && !axes)) return std::nullopt;
    const Value& x = inputs[0];
    const Axes padded = named_axes(axes, x.shape().size());
    if (widths->size() != 2 * padded.size()) {
      throw Exception(bad_input("A pad of ({}) axes wants twice as many widths and was given ({}).",
                                padded.size(), widths->size()));
    }
    op::Pad pad{Axes(x.shape().size(), 0), Axes(x.shape().size(), 0), a.mode};
    for (std::size_t i = 0; i < padded.size(); ++i) {
      const auto axis = static_cast<std::size_t>(
          value_or_throw(normalize_axis(padded[i], x.rank(), x.type()), name));
      pad.low[axis] = (*widths)[i];
      pad.high[axis] = (*widths)[i + padded.size()];
    }
    Values operands{x};
    if (given(inputs, 2))
      operands.push_back(inputs[2].rank() == 0 ? inputs[2] : reshape(inputs[2], {}));
    return graph.add(std::move(pad), operands);
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicPad{},
             .inputs = {Type{f32, {2, 3}}, Type{i64, {4}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({4}, {0, 1, 2, -1})}},
            {.op = op::DynamicPad{PadMode::reflect},
             .inputs = {Type{f32, {4, 3}}, Type{i64, {2}}, Type{}, Type{i64, {1}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {1, 2}), std::nullopt,
                        Tensor::of<std::int64_t>({1}, {-2})},
             .absent = {2}}};
  }
};
RLX_OP(op::DynamicPad, "dynamic_shape")

OpList dynamic_shape_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::DynamicReshape>(), &info_of<op::DynamicBroadcast>(),
      &info_of<op::DynamicSliceRange>(), &info_of<op::DynamicPad>()};
  return list;
}

}  // namespace rlx
