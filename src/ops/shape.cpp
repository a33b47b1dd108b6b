// Ops that move elements without looking at them: reshape, transpose, broadcast, slice, concat,
// reverse, shapes as values.
#include <algorithm>
#include <cstring>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/reshape.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

Types one(DType dtype, Shape shape) { return std::vector<Type>{Type{dtype, std::move(shape)}}; }

// An attribute with one entry for each axis.
Status require_each_axis(std::size_t entries, std::string_view what, std::string_view op,
                         const Type& x) {
  if (entries == x.shape.size()) return {};
  return bad_input("The op {} wants as many {} as {} has axes and was given ({}).", op, what,
                   x.text(), entries);
}

void copy_all(const TensorView& x, const MutableTensorView& out) {
  if (x.bytes() > 0) std::memcpy(out.data, x.data, x.bytes());
}

}  // namespace

template <>
struct Rules<op::Reshape> {
  static constexpr std::string_view name = "reshape";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.metadata = true};
  static constexpr auto fields = std::tuple{field("shape", &op::Reshape::shape)};
  static Types infer(const op::Reshape& a, const InferArgs& args) {
    RLX_ASSIGN(Shape shape, reshaped_shape(args[0], a.shape));
    return one(args[0].dtype, std::move(shape));
  }
  static Status eval(const op::Reshape&, const EvalArgs& args) {
    copy_all(args.in(0), args.out(0));
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Reshape{{4, 6}}, .inputs = {Type{f32, {2, 3, 4}}}},
            {.op = op::Reshape{{Dim(-1), 6}}, .inputs = {Type{i64, {2, 3, 4}}}},
            {.op = op::Reshape{{1}}, .inputs = {Type{f16, {}}}},
            {.op = op::Reshape{{0, 5}}, .inputs = {Type{u8, {5, 0}}}}};
  }
};
RLX_OP(op::Reshape, "shape")

template <>
struct Rules<op::NameDims> {
  static constexpr std::string_view name = "name_dims";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.metadata = true};
  static constexpr auto fields = std::tuple{field("shape", &op::NameDims::shape)};
  static Types infer(const op::NameDims& a, const InferArgs& args) {
    Shape shape = args[0].shape;
    bool fits = shape.size() == a.shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      fits = compatible(shape[i], a.shape[i]);
      if (!shape[i].is_static() && !a.shape[i].is_unknown()) shape[i] = a.shape[i];
    }
    if (!fits) {
      return bad_input("{} cannot have the dims {}.", args[0].text(),
                       Type{args[0].dtype, a.shape}.text());
    }
    return one(args[0].dtype, std::move(shape));
  }
  static Status eval(const op::NameDims&, const EvalArgs& args) {
    copy_all(args.in(0), args.out(0));
    return {};
  }
  static std::optional<Values> resolve(const op::NameDims& a, Graph&, std::span<const Value> inputs,
                                       KnownValues) {
    if (!inputs[0].type().is_static()) return std::nullopt;
    const Type type = inputs[0].type();
    const Type* const operands[] = {&type};
    const auto checked = infer(a, InferArgs{operands});
    if (!checked.ok()) throw Exception(checked.error());
    return Values{inputs[0]};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::NameDims{{2, "n"}}, .inputs = {Type{f32, {2, 3}}}}};
  }
};
RLX_OP(op::NameDims, "shape")

template <>
struct Rules<op::Transpose> {
  static constexpr std::string_view name = "transpose";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{.metadata = true};
  static constexpr auto fields = std::tuple{field("perm", &op::Transpose::perm)};
  static Types infer(const op::Transpose& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require_each_axis(a.perm.size(), "entries of perm", name, x));
    Shape shape;
    std::vector<bool> seen(a.perm.size(), false);
    for (const std::int64_t entry : a.perm) {
      RLX_ASSIGN(const std::int64_t axis, normalize_axis(entry, x.rank(), x));
      const auto i = static_cast<std::size_t>(axis);
      if (seen[i]) return bad_input("Axis ({}) of {} is named twice.", axis, x.text());
      seen[i] = true;
      shape.push_back(x.shape[i]);
    }
    return one(x.dtype, std::move(shape));
  }
  static Status eval(const op::Transpose& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const MutableTensorView& out = args.out(0);
    const Dims strides = row_major_strides(x.dims);
    Dims source;
    for (const std::int64_t axis : a.perm) {
      source.push_back(strides[static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis)]);
    }
    copy_strided(size_of(x.dtype), out.dims, x.data, source, out.data, row_major_strides(out.dims));
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Transpose{{1, 0}}, .inputs = {Type{f32, {70, 45}}}},
            {.op = op::Transpose{{2, 0, 1}}, .inputs = {Type{i64, {2, 3, 4}}}},
            {.op = op::Transpose{{0, 2, 1, 3}}, .inputs = {Type{f16, {2, 3, 4, 5}}}},
            {.op = op::Transpose{{3, 1, 2, 0}}, .inputs = {Type{u8, {2, 3, 1, 5}}}},
            {.op = op::Transpose{{}}, .inputs = {Type{c128, {}}}}};
  }
};
RLX_OP(op::Transpose, "shape")

template <>
struct Rules<op::Broadcast> {
  static constexpr std::string_view name = "broadcast";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("shape", &op::Broadcast::shape)};
  static Types infer(const op::Broadcast& a, const InferArgs& args) {
    const Type& x = args[0];
    const Type wanted{x.dtype, a.shape};
    if (x.rank() > wanted.rank())
      return bad_input("{} has more axes than {} and cannot be broadcast to it.", x.text(),
                       wanted.text());
    Shape shape = a.shape;
    const std::size_t added = shape.size() - x.shape.size();
    for (std::size_t i = 0; i < x.shape.size(); ++i) {
      Dim& dim = shape[added + i];
      if (!(x.shape[i] == Dim(1)) && !compatible(x.shape[i], dim)) {
        return bad_input("{} cannot be broadcast to {}: dim ({}) against ({}).", x.text(),
                         wanted.text(), x.shape[i].text(), dim.text());
      }
      if (dim.is_unknown() && !(x.shape[i] == Dim(1))) dim = x.shape[i];
    }
    RLX_TRY(require_dims(shape));
    return one(x.dtype, std::move(shape));
  }
  static Status eval(const op::Broadcast&, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const MutableTensorView& out = args.out(0);
    const Dims strides = row_major_strides(x.dims);
    Dims source(out.dims.size(), 0);
    const std::size_t added = out.dims.size() - x.dims.size();
    for (std::size_t i = 0; i < x.dims.size(); ++i)
      source[added + i] = x.dims[i] == 1 ? 0 : strides[i];
    copy_strided(size_of(x.dtype), out.dims, x.data, source, out.data, row_major_strides(out.dims));
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Broadcast{{4, 3, 5}}, .inputs = {Type{f32, {3, 1}}}},
            {.op = op::Broadcast{{2, 6}}, .inputs = {Type{i64, {}}}},
            {.op = op::Broadcast{{3, 5}}, .inputs = {Type{boolean, {3, 5}}}}};
  }
};
RLX_OP(op::Broadcast, "shape")

template <>
struct Rules<op::Concat> {
  static constexpr std::string_view name = "concat";
  static constexpr Arity arity{1, -1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axis", &op::Concat::axis)};
  static Types infer(const op::Concat& a, const InferArgs& args) {
    const Type& first = args[0];
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, first.rank(), first));
    Shape shape = first.shape;
    for (int i = 1; i < args.count(); ++i) {
      if (!args.has(i)) return bad_input("Part ({}) of a concat is left out.", i);
      const Type& part = args[i];
      if (part.dtype != first.dtype || part.rank() != first.rank()) {
        return bad_input("The op concat wants parts of one dtype and rank and was given {} and {}.",
                         first.text(), part.text());
      }
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (static_cast<std::int64_t>(d) == axis) {
          shape[d] = shape[d] + part.shape[d];
        } else if (!compatible(shape[d], part.shape[d])) {
          return bad_input("The parts {} and {} of a concat along axis ({}) differ in axis ({}).",
                           first.text(), part.text(), axis, d);
        } else if (!shape[d].is_static() && (part.shape[d].is_static() || shape[d].is_unknown())) {
          shape[d] = part.shape[d];
        }
      }
    }
    return one(first.dtype, std::move(shape));
  }
  static Status eval(const op::Concat& a, const EvalArgs& args) {
    const MutableTensorView& out = args.out(0);
    const std::int64_t axis = a.axis < 0 ? a.axis + out.rank() : a.axis;
    const std::int64_t rows = count_before(out.dims, axis);
    const std::size_t out_row =
        static_cast<std::size_t>(count_from(out.dims, axis)) * size_of(out.dtype);
    std::size_t offset = 0;
    for (const TensorView& part : args.inputs) {
      const std::size_t row =
          static_cast<std::size_t>(count_from(part.dims, axis)) * size_of(out.dtype);
      for (std::int64_t r = 0; r < rows && row > 0; ++r) {
        std::memcpy(out.data + static_cast<std::size_t>(r) * out_row + offset,
                    part.data + static_cast<std::size_t>(r) * row, row);
      }
      offset += row;
    }
    return {};
  }
  static std::vector<Sample> samples() {
    return {
        {.op = op::Concat{1}, .inputs = {Type{f32, {3, 4}}, Type{f32, {3, 2}}, Type{f32, {3, 1}}}},
        {.op = op::Concat{-1}, .inputs = {Type{i64, {2, 2}}, Type{i64, {2, 0}}}},
        {.op = op::Concat{0}, .inputs = {Type{f16, {3}}}}};
  }
};
RLX_OP(op::Concat, "shape")

template <>
struct Rules<op::Reverse> {
  static constexpr std::string_view name = "reverse";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("axes", &op::Reverse::axes)};
  static Types infer(const op::Reverse& a, const InferArgs& args) {
    RLX_TRY(normalize_axes(a.axes, args[0].rank(), args[0]));
    return std::vector<Type>{args[0]};
  }
  static Status eval(const op::Reverse& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    RLX_ASSIGN(const Axes axes, normalize_axes(a.axes, x.rank(), Type{x.dtype, to_shape(x.dims)}));
    if (x.elements() == 0) return {};
    const Dims strides = row_major_strides(x.dims);
    Dims source = strides;
    std::int64_t start = 0;
    for (const std::int64_t axis : axes) {
      const auto i = static_cast<std::size_t>(axis);
      start += (x.dims[i] - 1) * strides[i];
      source[i] = -strides[i];
    }
    copy_strided(size_of(x.dtype), x.dims,
                 x.data + start * static_cast<std::int64_t>(size_of(x.dtype)), source,
                 args.out(0).data, strides);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Reverse{{1}}, .inputs = {Type{f32, {3, 5}}}},
            {.op = op::Reverse{{0, -1}}, .inputs = {Type{u8, {3, 2, 5}}}},
            {.op = op::Reverse{}, .inputs = {Type{c64, {2, 3}}}}};
  }
};
RLX_OP(op::Reverse, "shape")

template <>
struct Rules<op::ShapeOf> {
  static constexpr std::string_view name = "shape_of";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::ShapeOf&, const InferArgs& args) {
    return one(i64, {args[0].rank()});
  }
  static Status eval(const op::ShapeOf&, const EvalArgs& args) {
    std::copy(args.in(0).dims.begin(), args.in(0).dims.end(), args.out(0).as<std::int64_t>());
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::ShapeOf{}, .inputs = {Type{f32, {3, 1, 7}}}},
            {.op = op::ShapeOf{}, .inputs = {Type{boolean, {}}}}};
  }
};
RLX_OP(op::ShapeOf, "shape")

OpList shape_ops() {
  static const OpInfo* const list[] = {&info_of<op::Reshape>(),   &info_of<op::NameDims>(),
                                       &info_of<op::Transpose>(), &info_of<op::Broadcast>(),
                                       &info_of<op::Concat>(),    &info_of<op::Reverse>(),
                                       &info_of<op::ShapeOf>()};
  return list;
}

}  // namespace rlx
