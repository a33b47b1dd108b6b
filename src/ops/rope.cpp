// Rotary position embeddings: pairs of halves or of neighbours, over a part of the width.
#include "ops/attention.hpp"
#include "ops/norm.hpp"

namespace rlx {
namespace {

/// Where the pairs of a rotary embedding lie.
struct RopeShape {
  std::int64_t rotary, half;
  HeadAxes axes;
};

Result<RopeShape> rope_shape(const op::Rope& a, const Type& x) {
  const Dim& width = x.shape[3];
  if (!a.rotary && !width.is_static())
    return bad_input("The rotary width of rope on {} is not known.", x.text());
  const std::int64_t rotary = a.rotary ? a.rotary : width.value();
  if (rotary < 2 || rotary % 2 || (width.is_static() && rotary > width.value())) {
    return bad_input("The rotary width ({}) of rope is odd or wider than {}.", rotary, x.text());
  }
  return RopeShape{rotary, rotary / 2, HeadAxes(a.bshd)};
}

// [start, limit) along one axis, everything along the others.
Value part(Value x, std::int64_t axis, std::int64_t start, std::int64_t limit) {
  Axes starts(x.rank(), 0), limits(x.rank(), op::slice_end);
  starts[axis] = start;
  limits[axis] = limit;
  return slice(x, std::move(starts), std::move(limits));
}

Status check_table(const Type& table, const Type& x, const RopeShape& s) {
  RLX_TRY(require_same_dtype("rope", x, table));
  const bool fits = table.rank() == 3 &&
                    (table.shape[0] == Dim(1) || compatible(table.shape[0], x.shape[0])) &&
                    compatible(table.shape[1], x.shape[s.axes.sequence]) &&
                    compatible(table.shape[2], Dim(s.half));
  if (fits) return {};
  return bad_input("The table {} of rope is not [B or 1, S, ({})] for {}.", table.text(), s.half,
                   x.text());
}

}  // namespace

// (a, b) -> (a cos - b sin, a sin + b cos) for each pair; what lies beyond the rotary width stays
template <>
struct Rules<op::Rope> {
  static constexpr std::string_view name = "rope";
  static constexpr Arity arity{3, 3};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields =
      std::tuple{field("rotary", &op::Rope::rotary), field("interleaved", &op::Rope::interleaved),
                 field("bshd", &op::Rope::bshd)};
  static Result<std::vector<Type>> infer(const op::Rope& a, const InferArgs& args) {
    RLX_TRY(
        require(is_float(args[0].dtype) && args[0].rank() == 4, name, "floats of rank 4", args[0]));
    RLX_ASSIGN(const RopeShape shape, rope_shape(a, args[0]));
    RLX_TRY(check_table(args[1], args[0], shape));
    RLX_TRY(check_table(args[2], args[0], shape));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::Rope& a, const EvalArgs& args) {
    const TensorView &x = args.in(0), &table = args.in(1);
    RLX_ASSIGN(const RopeShape s, rope_shape(a, {x.dtype, to_shape(x.dims)}));
    std::vector<double> values = load_all<double>(x);
    const std::vector<double> cosines = load_all<double>(table),
                              sines = load_all<double>(args.in(2));
    const std::int64_t batch_stride = table.dims[0] == 1 ? 0 : table.dims[1] * s.half;
    Dims rows(x.dims.begin(), x.dims.end() - 1);
    double* row = values.data();
    for_each_index(rows, [&](const Dims& index) {
      const std::int64_t at = index[0] * batch_stride + index[s.axes.sequence] * s.half;
      for (std::int64_t i = 0; i < s.half; ++i) {
        double& first = row[a.interleaved ? 2 * i : i];
        double& second = row[a.interleaved ? 2 * i + 1 : i + s.half];
        const double x1 = first, x2 = second, c = cosines[at + i], w = sines[at + i];
        first = x1 * c - x2 * w;
        second = x1 * w + x2 * c;
      }
      row += x.dims[3];
    });
    store_all<double>(args.out(0), values);
    return {};
  }
  static Values body(const op::Rope& a, Graph&, std::span<const Value> inputs) {
    const Value x = widened(inputs[0]);
    const RopeShape s = rope_shape(a, inputs[0].type()).value();
    const std::int64_t head_axis = s.axes.heads;
    // Tables as [B, 1, S, half] or [B, S, 1, half].
    const Value c = unsqueeze(cast(inputs[1], x.dtype()), {head_axis}),
                w = unsqueeze(cast(inputs[2], x.dtype()), {head_axis});
    const Value turned = part(x, 3, 0, s.rotary);
    Value rotated;
    if (a.interleaved) {
      Shape pairs = turned.shape();
      pairs[3] = Dim(s.half);
      pairs.push_back(Dim(2));
      const Value both = reshape(turned, pairs);
      const Value x1 = squeeze(part(both, 4, 0, 1), {4}), x2 = squeeze(part(both, 4, 1, 2), {4});
      rotated =
          reshape(concat({unsqueeze(x1 * c - x2 * w, {4}), unsqueeze(x1 * w + x2 * c, {4})}, 4),
                  turned.shape());
    } else {
      const Value x1 = part(turned, 3, 0, s.half), x2 = part(turned, 3, s.half, s.rotary);
      rotated = concat({x1 * c - x2 * w, x1 * w + x2 * c}, 3);
    }
    const Dim& width = x.shape()[3];
    if (!(width == Dim(s.rotary)))
      rotated = concat({rotated, part(x, 3, s.rotary, op::slice_end)}, 3);
    return {cast(rotated, inputs[0].dtype())};
  }
  static OpCost cost(const op::Rope&, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    return cost_per_element(3, inputs, results);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const DType dtype : {f32, f16}) {
      const Type table{dtype, {1, 5, 4}};
      list.push_back({.op = op::Rope{},
                      .inputs = {Type{dtype, {2, 3, 5, 8}}, table, table},
                      .low = -1,
                      .high = 1});
    }
    const Type table{f32, {2, 5, 3}};
    list.push_back(
        {.op = op::Rope{.interleaved = true}, .inputs = {Type{f32, {2, 3, 5, 6}}, table, table}});
    list.push_back({.op = op::Rope{.rotary = 6, .bshd = true},
                    .inputs = {Type{f32, {2, 5, 3, 8}}, table, table}});
    list.push_back({.op = op::Rope{.rotary = 6, .interleaved = true},
                    .inputs = {Type{f32, {2, 3, 5, 8}}, table, table}});
    return list;
  }
};
RLX_OP(op::Rope, "attention")

}  // namespace rlx
