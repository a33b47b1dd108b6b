// Ops whose operands tell dims: those that fill, count, repeat and choose.
#include <algorithm>
#include <cmath>

#include "graph/rules.hpp"
#include "ops/dynamic_shape.hpp"
#include "ops/families.hpp"

namespace rlx {

using namespace dynamic_shape;

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

OpList dynamic_fill_ops() {
  static const OpInfo* const list[] = {&info_of<op::DynamicFill>(), &info_of<op::DynamicRange>(),
                                       &info_of<op::DynamicTile>(), &info_of<op::DynamicTopK>(),
                                       &info_of<op::DynamicOneHot>()};
  return list;
}

}  // namespace rlx
