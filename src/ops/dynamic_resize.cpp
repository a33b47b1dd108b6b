// Resizes by scales or to sizes that operands tell, and what they mean for dims that are numbers.
#include <algorithm>
#include <cmath>

#include "graph/rules.hpp"
#include "ops/dynamic_shape.hpp"
#include "ops/families.hpp"
#include "ops/reference.hpp"

namespace rlx {

namespace op {

namespace {

/// Every axis keeps its size; -1 where it is no number yet.
void keep_sizes(Resize& resize, const Shape& x) {
  resize.sizes.clear();
  for (const Dim& dim : x) resize.sizes.push_back(dim.value());
  resize.scales.assign(x.size(), 1);
}

Result<std::int64_t> scaled(std::int64_t size, double scale) {
  const double result = std::floor(static_cast<double>(size) * scale);
  if (!(result >= 0 && result < 1e12)) return bad_input("The scale ({}) is wrong.", scale);
  return static_cast<std::int64_t>(result);
}

}  // namespace

Result<Resize> resize_by(Resize how, const Shape& x, const Axes& axes,
                         const std::vector<double>& scales) {
  if (scales.size() != axes.size())
    return bad_input("There are ({}) scales for ({}) axes.", scales.size(), axes.size());
  keep_sizes(how, x);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    how.scales[axis] = scales[i];
    RLX_ASSIGN(how.sizes[axis], scaled(how.sizes[axis], scales[i]));
  }
  return how;
}

Result<Resize> resize_to(Resize how, const Shape& x, const Axes& axes, Axes sizes,
                         ResizePolicy policy) {
  if (sizes.size() != axes.size())
    return bad_input("There are ({}) sizes for ({}) axes.", sizes.size(), axes.size());
  keep_sizes(how, x);
  std::optional<double> common;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t in = how.sizes[static_cast<std::size_t>(axes[i])];
    if (in == 0 && sizes[i] != 0) return bad_input("An axis of 0 elements cannot be resized.");
    if (in == 0) continue;
    const double scale = static_cast<double>(sizes[i]) / static_cast<double>(in);
    if (!common || (policy == ResizePolicy::not_larger ? scale < *common : scale > *common))
      common = scale;
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    const auto in = static_cast<double>(how.sizes[axis]);
    if (in == 0) continue;
    how.scales[axis] =
        policy == ResizePolicy::stretch ? static_cast<double>(sizes[i]) / in : *common;
    if (policy != ResizePolicy::stretch)
      sizes[i] = static_cast<std::int64_t>(std::floor(in * *common + 0.5));
    if (sizes[i] < 0) return bad_input("A size ({}) is negative.", sizes[i]);
    how.sizes[axis] = sizes[i];
  }
  return how;
}

}  // namespace op

using namespace dynamic_shape;

template <>
struct Rules<op::DynamicResize> {
  using R = op::DynamicResize;
  static constexpr std::string_view name = "dynamic_resize";
  static constexpr Arity arity{2, 2};
  static constexpr OpTraits traits = told_by_operands;
  static constexpr auto fields = std::tuple{field("axes", &R::axes),
                                            field("policy", &R::policy),
                                            field("mode", &R::mode),
                                            field("coordinates", &R::coordinates),
                                            field("nearest", &R::nearest),
                                            field("cubic_coefficient", &R::cubic_coefficient),
                                            field("exclude_outside", &R::exclude_outside),
                                            field("antialias", &R::antialias),
                                            field("extrapolation", &R::extrapolation),
                                            field("roi", &R::roi)};
  static Types infer(const R& a, const InferArgs& args) {
    const Type& lengths = args[1];
    if (!(is_integer(lengths.dtype) || is_float(lengths.dtype)) || lengths.rank() != 1 ||
        !compatible(lengths.shape[0], Dim(static_cast<std::int64_t>(a.axes.size())))) {
      return bad_input("The op {} wants ({}) sizes or scales as a list, not {}.", name,
                       a.axes.size(), lengths.text());
    }
    Shape shape = args[0].shape;
    for (const std::int64_t axis : a.axes) {
      RLX_ASSIGN(const std::int64_t at, normalize_axis(axis, args[0].rank(), args[0]));
      shape[static_cast<std::size_t>(at)] = Dim::unknown();
    }
    return one(args[0].dtype, std::move(shape));
  }
  static std::optional<Values> resolve(const R& a, Graph& graph, std::span<const Value> inputs,
                                       KnownValues known) {
    const Shape& x = inputs[0].shape();
    if (!known[1]) return std::nullopt;
    for (const std::int64_t axis : a.axes) {
      if (!x[static_cast<std::size_t>(axis)].is_static()) return std::nullopt;
    }
    const Result<op::Resize> resize =
        is_float(known[1]->dtype())
            ? op::resize_by(a, x, a.axes, load_all<double>(TensorView(*known[1])))
            : op::resize_to(a, x, a.axes, integers_of(*known[1]), a.policy);
    return graph.add(value_or_throw(resize, name), Values{inputs[0]});
  }
  static std::vector<Sample> samples() {
    op::DynamicResize to;
    to.axes = {1, 2};
    op::DynamicResize by = to;
    by.mode = op::ResizeMode::linear;
    return {{.op = std::move(to),
             .inputs = {Type{f32, {1, 4, 5}}, Type{i64, {2}}},
             .values = {std::nullopt, Tensor::of<std::int64_t>({2}, {8, 3})}},
            {.op = std::move(by),
             .inputs = {Type{f32, {1, 4, 5}}, Type{f32, {2}}},
             .values = {std::nullopt, Tensor::of<float>({2}, {2, 0.5F})}}};
  }
};
RLX_OP(op::DynamicResize, "resize")

}  // namespace rlx
