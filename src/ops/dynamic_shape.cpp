// Ops whose operands tell dims. Their results have unknown dims of a known rank; once the operands
// are known, each resolves to ops whose attributes say the same.
#include <algorithm>
#include <cmath>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/index.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;
constexpr OpTraits told_by_operands{.shape_operands = true};

Types one(DType dtype, Shape shape) { return std::vector<Type>{Type{dtype, std::move(shape)}}; }

Shape unknown_shape(std::int64_t rank) {
  return Shape(static_cast<std::size_t>(rank), Dim::unknown());
}

// The number of entries of an operand that holds a list of integers.
Result<std::int64_t> list_length(std::string_view op, std::string_view what, const Type& type) {
  if (!is_integer(type.dtype) || type.rank() != 1)
    return bad_input("The op {} wants {} as a list of integers, not {}.", op, what, type.text());
  if (!type.shape[0].is_static())
    return unsupported("The op {} wants {} of a known length, not {}.", op, what, type.text());
  // More axes than any tensor has would only come from a broken file.
  constexpr std::int64_t most_axes = 64;
  if (type.shape[0].value() > most_axes)
    return unsupported("The op {} was given {} of ({}) entries; at most ({}) are supported.", op,
                       what, type.shape[0].value(), most_axes);
  return type.shape[0].value();
}

// An operand of one integer, as a scalar or a list of one.
Status require_single(std::string_view op, std::string_view what, const Type& type) {
  const bool single = type.rank() == 0 || (type.rank() == 1 && compatible(type.shape[0], Dim(1)));
  if (single && is_integer(type.dtype)) return {};
  return bad_input("The op {} wants {} as one integer, not {}.", op, what, type.text());
}

Axes integers_of(const Tensor& tensor) {
  Axes values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(read_index(tensor, i));
  return values;
}

// The integers of operand i, or nothing while they are not known.
std::optional<Axes> known_integers(KnownValues known, std::size_t i) {
  if (i >= known.size() || !known[i]) return std::nullopt;
  return integers_of(*known[i]);
}

bool given(std::span<const Value> inputs, std::size_t i) { return i < inputs.size() && inputs[i]; }

// Raises the error of a rule that has no Result to return it in.
template <class T>
T value_or_throw(Result<T> result, std::string_view op) {
  if (!result.ok())
    throw Exception(std::move(result.error()).while_("resolving " + std::string(op)));
  return *std::move(result);
}

Status require_no_negative(const Axes& dims, std::string_view op) {
  for (const std::int64_t dim : dims) {
    if (dim < 0) return bad_input("A dim ({}) of the shape given to {} is negative.", dim, op);
  }
  return {};
}

// Lists whose lengths were not known when types were inferred.
void require_length(const Axes& list, std::size_t length, std::string_view what,
                    std::string_view op) {
  if (list.size() == length) return;
  throw Exception(
      bad_input("The op {} wants ({}) {} and was given ({}).", op, length, what, list.size()));
}

// The axes that an optional operand names, or 0, 1, 2, ... `count`.
Axes named_axes(const std::optional<Axes>& axes, std::size_t count) {
  if (axes) return *axes;
  Axes all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<std::int64_t>(i));
  return all;
}

}  // namespace

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

template <>
struct Rules<op::DynamicFill> {
  static constexpr std::string_view name = "dynamic_fill";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicFill&, const InferArgs& args) {
    RLX_TRY(require(
        args[0].rank() == 0 || (args[0].rank() == 1 && compatible(args[0].shape[0], Dim(1))), name,
        "a scalar to fill with", args[0]));
    RLX_ASSIGN(const std::int64_t rank, list_length(name, "a shape", args[1]));
    return one(args[0].dtype, unknown_shape(rank));
  }
  static std::optional<Values> resolve(const op::DynamicFill&, Graph&,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto wanted = known_integers(known, 1);
    if (!wanted) return std::nullopt;
    const Status dims = require_no_negative(*wanted, name);
    if (!dims.ok()) throw Exception(dims.error());
    const Value scalar = inputs[0].rank() == 0 ? inputs[0] : reshape(inputs[0], {});
    return Values{broadcast(scalar, to_shape(*wanted))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicFill{},
             .inputs = {Type{f32, {}}, Type{i64, {2}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {3, 2})}},
            {.op = op::DynamicFill{},
             .inputs = {Type{i64, {1}}, Type{i64, {0}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({0}, {})}}};
  }
};
RLX_OP(op::DynamicFill, "dynamic_shape")

/// start, start + delta, ... before limit: max(0, ceil((limit - start) / delta)) elements.
template <>
struct Rules<op::DynamicRange> {
  static constexpr std::string_view name = "dynamic_range";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicRange&, const InferArgs& args) {
    RLX_TRY(
        require(args[0].dtype != boolean && !is_complex(args[0].dtype), name, "numbers", args[0]));
    for (int i = 0; i < 3; ++i) {
      if (args[i].rank() > 1 || args[i].dtype != args[0].dtype ||
          (args[i].rank() == 1 && !compatible(args[i].shape[0], Dim(1)))) {
        return bad_input("The op {} wants three scalars of one dtype, not {}.", name,
                         args[i].text());
      }
    }
    return one(args[0].dtype, {Dim::unknown()});
  }
  // Operands may be many millions apart; ranges above this are refused, not allocated.
  static constexpr double most_elements = 1e9;
  static std::int64_t count(DType dtype, const ScalarDatum& start, const ScalarDatum& limit,
                            const ScalarDatum& delta) {
    const double step = is_float(dtype) ? delta.number.real() : static_cast<double>(delta.integer);
    if (step == 0 || std::isnan(step))
      throw Exception(bad_input("The step of a range is ({}).", step));
    double elements = 0;
    if (is_float(dtype)) {
      elements = std::ceil((limit.number.real() - start.number.real()) / step);
    } else {
      // The sum of both is exact in 128 bits, whatever the ends are.
      const __int128 gap = static_cast<__int128>(limit.integer) - start.integer,
                     stride = delta.integer;
      elements = (gap > 0) == (stride > 0) && gap != 0
                     ? static_cast<double>((gap - (stride > 0 ? 1 : -1)) / stride + 1)
                     : 0;
    }
    if (!(elements <= most_elements))
      throw Exception(bad_input("A range of ({}) elements is too long.", elements));
    return elements < 0 ? 0 : static_cast<std::int64_t>(elements);
  }
  static std::optional<Values> resolve(const op::DynamicRange&, Graph& graph,
                                       std::span<const Value> inputs, KnownValues known) {
    if (!known[0] || !known[1] || !known[2]) return std::nullopt;
    const DType dtype = inputs[0].dtype();
    ScalarDatum data[3];
    for (std::size_t i = 0; i < 3; ++i) data[i] = load_datum(dtype, known[i]->data(), 0);
    const std::int64_t elements = count(dtype, data[0], data[1], data[2]);
    const auto scalar = [&](std::size_t i) {
      return inputs[i].rank() == 0 ? inputs[i] : reshape(inputs[i], {});
    };
    // Positions are counted in a type that holds them, so that f16 ranges round once.
    const DType wide = dtype == f16 || dtype == bf16 ? f32 : dtype;
    const Value steps = graph.add_one(op::Iota{.dtype = wide, .shape = {elements}, .axis = 0}, {});
    return Values{cast(cast(scalar(0), wide) + steps * cast(scalar(2), wide), dtype)};
  }
  static std::vector<Sample> samples() {
    const auto integer = [](std::int64_t value) { return std::optional(Tensor::scalar(value)); };
    const auto real = [](float value) { return std::optional(Tensor::scalar(value)); };
    return {{.op = op::DynamicRange{},
             .inputs = {Type{i64, {}}, Type{i64, {}}, Type{i64, {}}},
             .values = {integer(2), integer(11), integer(3)}},
            {.op = op::DynamicRange{},
             .inputs = {Type{f32, {}}, Type{f32, {}}, Type{f32, {}}},
             .values = {real(1), real(-1), real(-0.75f)}}};
  }
};
RLX_OP(op::DynamicRange, "dynamic_shape")

template <>
struct Rules<op::DynamicTile> {
  static constexpr std::string_view name = "dynamic_tile";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicTile&, const InferArgs& args) {
    RLX_TRY(require(is_integer(args[1].dtype) && args[1].rank() == 1 &&
                        compatible(args[1].shape[0], Dim(args[0].rank())),
                    name, "a repetition for each axis as a list of integers", args[1]));
    return one(args[0].dtype, unknown_shape(args[0].rank()));
  }
  // [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r a, s b]
  static std::optional<Values> resolve(const op::DynamicTile&, Graph&,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto repeats = known_integers(known, 1);
    if (!repeats) return std::nullopt;
    const Status counts = require_no_negative(*repeats, name);
    if (!counts.ok()) throw Exception(counts.error());
    require_length(*repeats, inputs[0].shape().size(), "repetitions", name);
    Shape split, repeated, joined;
    for (std::size_t i = 0; i < repeats->size(); ++i) {
      const Dim& dim = inputs[0].shape()[i];
      if (dim.is_unknown()) return std::nullopt;
      split.insert(split.end(), {Dim(1), dim});
      repeated.insert(repeated.end(), {Dim((*repeats)[i]), dim});
      joined.push_back(Dim((*repeats)[i]) * dim);
    }
    return Values{reshape(broadcast(reshape(inputs[0], std::move(split)), std::move(repeated)),
                          std::move(joined))};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicTile{},
             .inputs = {Type{f32, {2, 3}}, Type{i64, {2}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {2, 3})}}};
  }
};
RLX_OP(op::DynamicTile, "dynamic_shape")

template <>
struct Rules<op::DynamicTopK> {
  static constexpr std::string_view name = "dynamic_top_k";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields =
      std::tuple{field("axis", &op::DynamicTopK::axis), field("largest", &op::DynamicTopK::largest),
                 field("sorted", &op::DynamicTopK::sorted)};
  static Types infer(const op::DynamicTopK& a, const InferArgs& args) {
    RLX_TRY(require_single(name, "k", args[1]));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank(), args[0]));
    Shape shape = args[0].shape;
    shape[static_cast<std::size_t>(axis)] = Dim::unknown();
    return std::vector<Type>{{args[0].dtype, shape}, {i64, shape}};
  }
  static std::optional<Values> resolve(const op::DynamicTopK& a, Graph& graph,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto k = known_integers(known, 1);
    if (!k) return std::nullopt;
    require_length(*k, 1, "value of k", name);
    return graph.add(op::TopK{k->front(), a.axis, a.largest, a.sorted}, inputs.first(1));
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicTopK{},
             .inputs = {Type{f32, {3, 7}}, Type{i64, {1}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({1}, {4})}}};
  }
};
RLX_OP(op::DynamicTopK, "dynamic_shape")

template <>
struct Rules<op::DynamicOneHot> {
  static constexpr std::string_view name = "dynamic_one_hot";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{field("axis", &op::DynamicOneHot::axis)};
  static Types infer(const op::DynamicOneHot& a, const InferArgs& args) {
    RLX_TRY(require_single(name, "a depth", args[1]));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, args[0].rank() + 1, args[0]));
    Shape shape = args[0].shape;
    shape.insert(shape.begin() + axis, Dim::unknown());
    return one(args[2].dtype, std::move(shape));
  }
  static std::optional<Values> resolve(const op::DynamicOneHot& a, Graph& graph,
                                       std::span<const Value> inputs, KnownValues known) {
    const auto depth = known_integers(known, 1);
    if (!depth) return std::nullopt;
    require_length(*depth, 1, "depth", name);
    return Values{graph.add_one(op::OneHot{a.axis, depth->front()}, {inputs[0], inputs[2]})};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::DynamicOneHot{},
             .inputs = {Type{i64, {4}}, Type{i64, {}}, Type{f32, {2}}},
             .values = {Tensor::of<std::int64_t>({4}, {0, 2, -1, 7}),
                        Tensor::scalar<std::int64_t>(3)}}};
  }
};
RLX_OP(op::DynamicOneHot, "dynamic_shape")

OpList dynamic_shape_ops() {
  static const OpInfo* const list[] = {
      &info_of<op::DynamicReshape>(),    &info_of<op::DynamicBroadcast>(),
      &info_of<op::DynamicSliceRange>(), &info_of<op::DynamicPad>(),
      &info_of<op::DynamicFill>(),       &info_of<op::DynamicRange>(),
      &info_of<op::DynamicTile>(),       &info_of<op::DynamicTopK>(),
      &info_of<op::DynamicOneHot>()};
  return list;
}

}  // namespace rlx
