// Slices: with bounds in the attributes, and with starts that operands tell.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

// A slice along one axis, its markers replaced by numbers where the dim is one.
struct AxisSlice {
  std::int64_t start, limit, step;
};

AxisSlice axis_slice(const op::Slice& a, std::size_t axis, const Dim& dim) {
  AxisSlice slice{a.starts[axis], a.limits[axis], a.steps.empty() ? 1 : a.steps[axis]};
  if (dim.is_static() && slice.step > 0 && slice.limit == op::slice_end) slice.limit = dim.value();
  if (dim.is_static() && slice.step < 0 && slice.start == op::slice_end)
    slice.start = dim.value() - 1;
  return slice;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a <= 0 ? 0 : (a - 1) / b + 1; }

Dim divide_up(const Dim& a, std::int64_t b) {
  return b == 1 ? a : floor_div(a + Dim(b - 1), Dim(b));
}

// How many elements the slice has along the axis; what lies outside is an error where the dim is
// known.
Result<Dim> sliced_dim(const AxisSlice& slice, const Dim& dim, std::size_t axis, const Type& x) {
  const auto [start, limit, step] = slice;
  const std::int64_t known = dim.is_static() ? dim.value() : op::slice_end;
  if (step == 0 || step == std::numeric_limits<std::int64_t>::min())
    return bad_input("The step of a slice of {} along axis ({}) is ({}).", x.text(), axis, step);
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 || dim.is_static() == false ? known : known - 1;
  if (start < lowest || start > highest || limit < lowest || limit > highest) {
    return bad_input("The slice ({}:{}:{}) lies outside axis ({}) of {}.", start, limit, step, axis,
                     x.text());
  }
  if (step > 0) {
    if (limit == op::slice_end) return divide_up(dim - Dim(start), step);
    return Dim(divide_up(limit - start, step));
  }
  if (start == op::slice_end) return divide_up(dim - Dim(limit + 1), -step);
  return Dim(divide_up(start - limit, -step));
}

bool is_index(DType dtype) { return dtype == i64 || dtype == i32; }

// The starts of a dynamic slice: one scalar for each axis from operand `first` on.
Status require_starts(const InferArgs& args, int first, std::string_view op) {
  const int rank = args[0].rank();
  if (args.count() != first + rank) {
    return bad_input("The op {} wants a start for each axis of {} and was given ({}).", op,
                     args[0].text(), args.count() - first);
  }
  for (int i = first; i < args.count(); ++i) {
    if (!args.has(i)) return bad_input("The start ({}) of {} is left out.", i - first, op);
    RLX_TRY(require(is_index(args[i].dtype) && args[i].rank() == 0, op, "scalar i64 or i32 starts",
                    args[i]));
  }
  return {};
}

// Where the slice of those sizes starts in x, in elements: starts are clamped so that it lies
// inside.
std::int64_t clamped_offset(const EvalArgs& args, int first, std::span<const std::int64_t> sizes) {
  const TensorView& x = args.in(0);
  const Dims strides = row_major_strides(x.dims);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const TensorView& start = args.in(first + static_cast<int>(i));
    const std::int64_t wanted = load_datum(start.dtype, start.data, 0).integer;
    offset += std::clamp<std::int64_t>(wanted, 0, x.dims[i] - sizes[i]) * strides[i];
  }
  return offset;
}

}  // namespace

template <>
struct Rules<op::Slice> {
  static constexpr std::string_view name = "slice";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("starts", &op::Slice::starts), field("limits", &op::Slice::limits),
                 field("steps", &op::Slice::steps)};
  static Types infer(const op::Slice& a, const InferArgs& args) {
    const Type& x = args[0];
    const std::size_t rank = x.shape.size();
    if (a.starts.size() != rank || a.limits.size() != rank ||
        (!a.steps.empty() && a.steps.size() != rank)) {
      return bad_input(
          "The op slice wants a start, limit and step for each axis of {} and was given ({}), ({}) "
          "and ({}).",
          x.text(), a.starts.size(), a.limits.size(), a.steps.size());
    }
    Shape shape;
    for (std::size_t i = 0; i < rank; ++i) {
      RLX_ASSIGN(Dim dim, sliced_dim(axis_slice(a, i, x.shape[i]), x.shape[i], i, x));
      shape.push_back(std::move(dim));
    }
    return std::vector<Type>{{x.dtype, std::move(shape)}};
  }
  static Status eval(const op::Slice& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    const MutableTensorView& out = args.out(0);
    if (out.elements() == 0) return {};
    const Dims strides = row_major_strides(x.dims);
    Dims source;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < x.dims.size(); ++i) {
      const AxisSlice slice = axis_slice(a, i, Dim(x.dims[i]));
      offset += slice.start * strides[i];
      source.push_back(slice.step * strides[i]);
    }
    copy_strided(size_of(x.dtype), out.dims,
                 x.data + offset * static_cast<std::int64_t>(size_of(x.dtype)), source, out.data,
                 row_major_strides(out.dims));
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Slice{{1, 0}, {3, 5}, {1, 2}}, .inputs = {Type{f32, {4, 5}}}},
            {.op = op::Slice{{3, 1}, {-1, 1}, {-1, 1}}, .inputs = {Type{i64, {4, 5}}}},
            {.op = op::Slice{{op::slice_end, 2}, {-1, op::slice_end}, {-2, 1}},
             .inputs = {Type{f16, {6, 5}}}},
            {.op = op::Slice{{2}, {7}, {}}, .inputs = {Type{u8, {9}}}}};
  }
};
RLX_OP(op::Slice, "shape")

template <>
struct Rules<op::DynamicSlice> {
  static constexpr std::string_view name = "dynamic_slice";
  static constexpr Arity arity{1, -1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{field("sizes", &op::DynamicSlice::sizes)};
  static Types infer(const op::DynamicSlice& a, const InferArgs& args) {
    const Type& x = args[0];
    if (a.sizes.size() != x.shape.size()) {
      return bad_input("The op dynamic_slice wants a size for each axis of {} and was given ({}).",
                       x.text(), a.sizes.size());
    }
    RLX_TRY(require_starts(args, 1, name));
    for (std::size_t i = 0; i < a.sizes.size(); ++i) {
      if (a.sizes[i] < 0 || (x.shape[i].is_static() && a.sizes[i] > x.shape[i].value())) {
        return bad_input("The size ({}) of a dynamic_slice lies outside axis ({}) of {}.",
                         a.sizes[i], i, x.text());
      }
    }
    return std::vector<Type>{{x.dtype, to_shape(a.sizes)}};
  }
  static Status eval(const op::DynamicSlice& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    if (args.out(0).elements() == 0) return {};
    const std::int64_t offset =
        clamped_offset(args, 1, a.sizes) * static_cast<std::int64_t>(size_of(x.dtype));
    copy_strided(size_of(x.dtype), a.sizes, x.data + offset, row_major_strides(x.dims),
                 args.out(0).data, row_major_strides(a.sizes));
    return {};
  }
  static std::vector<Sample> samples() {
    const auto at = [](std::int64_t start) { return std::optional(Tensor::scalar(start)); };
    return {{.op = op::DynamicSlice{{2, 3}},
             .inputs = {Type{f32, {4, 5}}, Type{i64, {}}, Type{i64, {}}},
             .values = {std::nullopt, at(1), at(9)}},
            {.op = op::DynamicSlice{{3}},
             .inputs = {Type{u8, {5}}, Type{i64, {}}},
             .values = {std::nullopt, at(-4)}}};
  }
};
RLX_OP(op::DynamicSlice, "shape")

template <>
struct Rules<op::DynamicUpdateSlice> {
  static constexpr std::string_view name = "dynamic_update_slice";
  static constexpr Arity arity{2, -1};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{};
  static Types infer(const op::DynamicUpdateSlice&, const InferArgs& args) {
    const Type &x = args[0], &update = args[1];
    if (x.dtype != update.dtype || x.rank() != update.rank()) {
      return bad_input(
          "The op dynamic_update_slice wants an update of the dtype and rank of {} and was given "
          "{}.",
          x.text(), update.text());
    }
    RLX_TRY(require_starts(args, 2, name));
    for (std::size_t i = 0; i < x.shape.size(); ++i) {
      if (x.shape[i].is_static() && update.shape[i].is_static() &&
          update.shape[i].value() > x.shape[i].value()) {
        return bad_input("The update {} is larger than {} along axis ({}).", update.text(),
                         x.text(), i);
      }
    }
    return std::vector<Type>{x};
  }
  static Status eval(const op::DynamicUpdateSlice&, const EvalArgs& args) {
    const TensorView &x = args.in(0), &update = args.in(1);
    const MutableTensorView& out = args.out(0);
    std::copy(x.data, x.data + x.bytes(), out.data);
    if (update.elements() == 0) return {};
    const std::int64_t offset =
        clamped_offset(args, 2, update.dims) * static_cast<std::int64_t>(size_of(x.dtype));
    copy_strided(size_of(x.dtype), update.dims, update.data, row_major_strides(update.dims),
                 out.data + offset, row_major_strides(x.dims));
    return {};
  }
  static std::vector<Sample> samples() {
    const auto at = [](std::int64_t start) { return std::optional(Tensor::scalar(start)); };
    return {{.op = op::DynamicUpdateSlice{},
             .inputs = {Type{f32, {4, 5}}, Type{f32, {2, 5}}, Type{i64, {}}, Type{i64, {}}},
             .values = {std::nullopt, std::nullopt, at(1), at(0)}},
            {.op = op::DynamicUpdateSlice{},
             .inputs = {Type{i32, {6}}, Type{i32, {2}}, Type{i64, {}}},
             .values = {std::nullopt, std::nullopt, at(17)}}};
  }
};
RLX_OP(op::DynamicUpdateSlice, "shape")

OpList slice_ops() {
  static const OpInfo* const list[] = {&info_of<op::Slice>(), &info_of<op::DynamicSlice>(),
                                       &info_of<op::DynamicUpdateSlice>()};
  return list;
}

}  // namespace rlx
