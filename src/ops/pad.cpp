// Padding: with a value, or with elements of the operand itself. Negative widths crop.
#include <algorithm>

#include "graph/rules.hpp"
#include "ops/families.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

// The element of an axis of `size` that stands at `position`, which may lie outside.
std::int64_t source_position(PadMode mode, std::int64_t position, std::int64_t size) {
  if (mode == PadMode::edge) return std::clamp<std::int64_t>(position, 0, size - 1);
  const std::int64_t period =
      mode == PadMode::wrap ? size : std::max<std::int64_t>(1, 2 * (size - 1));
  const std::int64_t inside = (position % period + period) % period;
  return mode == PadMode::reflect && inside >= size ? period - inside : inside;
}

Dim padded(const Dim& dim, std::int64_t low, std::int64_t high) {
  return low + high < 0 ? dim - Dim(-(low + high)) : dim + Dim(low + high);
}

// The part of x that the result shows goes into a result full of the fill value.
void pad_with_value(const op::Pad& a, const EvalArgs& args) {
  const TensorView& x = args.in(0);
  const MutableTensorView& out = args.out(0);
  const std::size_t size = size_of(x.dtype);
  const std::byte zero[16] = {};
  fill_elements(size, out.data, out.elements(), args.has(1) ? args.in(1).data : zero);
  const Dims from = row_major_strides(x.dims), to = row_major_strides(out.dims);
  Dims shown;
  std::int64_t source = 0, destination = 0;
  for (std::size_t i = 0; i < x.dims.size(); ++i) {
    const std::int64_t first = std::max<std::int64_t>(0, -a.low[i]);
    const std::int64_t last = std::min(x.dims[i], x.dims[i] + a.high[i]);
    shown.push_back(std::max<std::int64_t>(0, last - first));
    source += first * from[i];
    destination += std::max<std::int64_t>(0, a.low[i]) * to[i];
  }
  if (element_count(shown) == 0) return;
  const auto bytes = static_cast<std::int64_t>(size);
  copy_strided(size, shown, x.data + source * bytes, from, out.data + destination * bytes, to);
}

void pad_with_elements(const op::Pad& a, const EvalArgs& args) {
  const TensorView& x = args.in(0);
  const MutableTensorView& out = args.out(0);
  const std::size_t rank = x.dims.size();
  const Dims strides = row_major_strides(x.dims);
  std::vector<Dims> offsets(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    for (std::int64_t p = 0; p < out.dims[i]; ++p) {
      offsets[i].push_back(source_position(a.mode, p - a.low[i], x.dims[i]) * strides[i]);
    }
  }
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  Dims index(rank, 0);
  const std::int64_t count = out.elements();
  for (std::int64_t point = 0; point < count; ++point) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < rank; ++i) offset += offsets[i][static_cast<std::size_t>(index[i])];
    std::copy_n(x.data + offset * size, size, out.data + point * size);
    for (std::size_t i = rank; i-- > 0;) {
      if (++index[i] < out.dims[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

template <>
struct Rules<op::Pad> {
  static constexpr std::string_view name = "pad";
  static constexpr Arity arity{1, 2};
  static constexpr OpTraits traits{};
  static constexpr auto fields = std::tuple{
      field("low", &op::Pad::low), field("high", &op::Pad::high), field("mode", &op::Pad::mode)};
  static Result<std::vector<Type>> infer(const op::Pad& a, const InferArgs& args) {
    const Type& x = args[0];
    if (a.low.size() != x.shape.size() || a.high.size() != x.shape.size()) {
      return bad_input(
          "The op pad wants two widths for each axis of {} and was given ({}) and ({}).", x.text(),
          a.low.size(), a.high.size());
    }
    if (args.has(1) && (args[1].dtype != x.dtype || args[1].rank() != 0)) {
      return bad_input("The op pad wants a scalar of {} as fill value, not {}.", name_of(x.dtype),
                       args[1].text());
    }
    Shape shape;
    for (std::size_t i = 0; i < x.shape.size(); ++i) {
      constexpr std::int64_t limit = std::int64_t{1} << 48;
      if (std::abs(a.low[i]) > limit || std::abs(a.high[i]) > limit)
        return bad_input("The widths ({}, {}) of a pad are too large.", a.low[i], a.high[i]);
      shape.push_back(padded(x.shape[i], a.low[i], a.high[i]));
      if (is_negative(shape.back())) {
        return bad_input("The widths ({}, {}) crop more than axis ({}) of {} has.", a.low[i],
                         a.high[i], i, x.text());
      }
      if (a.mode != PadMode::constant && x.shape[i] == Dim(0) && !(shape.back() == Dim(0))) {
        return bad_input("Axis ({}) of {} has no element to pad with.", i, x.text());
      }
    }
    return std::vector<Type>{{x.dtype, std::move(shape)}};
  }
  static Status eval(const op::Pad& a, const EvalArgs& args) {
    if (args.out(0).elements() == 0) return {};
    if (a.mode == PadMode::constant) {
      pad_with_value(a, args);
    } else {
      pad_with_elements(a, args);
    }
    return {};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> list;
    for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::edge, PadMode::wrap}) {
      list.push_back({.op = op::Pad{{1, 0}, {2, 3}, mode}, .inputs = {Type{f32, {4, 5}}}});
      list.push_back({.op = op::Pad{{-1, 2}, {1, -2}, mode}, .inputs = {Type{i32, {4, 5}}}});
    }
    list.push_back({.op = op::Pad{{1, 2}, {0, 1}}, .inputs = {Type{f16, {2, 3}}, Type{f16, {}}}});
    list.push_back({.op = op::Pad{{7}, {9}, PadMode::reflect}, .inputs = {Type{u8, {3}}}});
    return list;
  }
};
RLX_OP(op::Pad, "shape")

OpList pad_ops() {
  static const OpInfo* const list[] = {&info_of<op::Pad>()};
  return list;
}

}  // namespace rlx
