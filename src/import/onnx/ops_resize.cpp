// Resize and Upsample.
#include <algorithm>
#include <optional>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

using op::ResizeCoordinates;
using op::ResizeMode;
using op::ResizeNearest;
using op::ResizePolicy;

template <class Enum>
Enum named(const std::string& name, std::initializer_list<Enum> values) {
  for (const Enum value : values) {
    if (enum_names(value)[static_cast<std::size_t>(value)] == name) return value;
  }
  fail("The mode ({}) is unknown.", name);
}

ResizeMode mode_named(const std::string& name) {
  // The first version called the linear mode after its dimension.
  return named(name == "bilinear" ? "linear" : name,
               {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic});
}

ResizeCoordinates coordinates_named(const std::string& name) {
  using C = ResizeCoordinates;
  return named(name,
               {C::half_pixel, C::half_pixel_symmetric, C::pytorch_half_pixel, C::align_corners,
                C::asymmetric, C::tf_crop_and_resize, C::tf_half_pixel_for_nn});
}

ResizeNearest nearest_named(const std::string& name) {
  using N = ResizeNearest;
  return named(name, {N::round_prefer_floor, N::round_prefer_ceil, N::floor, N::ceil});
}

std::vector<double> reals_or_fail(NodeContext& c, int input, const char* what) {
  const auto numbers = c.known_reals(c.in(input));
  if (!numbers) fail_unsupported("Its {} must be known before it runs.", what);
  return *numbers;
}

// Inputs may be there and empty.
bool has_elements(NodeContext& c, int input) {
  return c.has(input) && c.in(input).shape() != Shape{Dim(0)};
}

template <class T>
T value_or_fail(Result<T> result) {
  if (!result.ok()) throw Exception(std::move(result.error()));
  return *std::move(result);
}

/// The resize by known scales; nothing where a dim that changes is told later.
std::optional<op::Resize> scaled(const op::Resize& how, const Shape& x, const Axes& axes,
                                 const std::vector<double>& scales) {
  if (scales.size() != axes.size())
    fail("There are ({}) scales for ({}) axes.", scales.size(), axes.size());
  Axes changed;
  std::vector<double> by;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool is_number = x[static_cast<std::size_t>(axes[i])].is_static();
    if (!is_number && scales[i] == 1) continue;
    if (!is_number) return std::nullopt;
    changed.push_back(axes[i]);
    by.push_back(scales[i]);
  }
  return value_or_fail(op::resize_by(how, x, changed, by));
}

/// The resize to known sizes; nothing where one, or a dim that changes, is told later.
std::optional<op::Resize> sized(const op::Resize& how, const Shape& x, const Axes& axes,
                                const Shape& sizes, ResizePolicy policy) {
  if (sizes.size() != axes.size())
    fail("There are ({}) sizes for ({}) axes.", sizes.size(), axes.size());
  Axes changed, to;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Dim& dim = x[static_cast<std::size_t>(axes[i])];
    if (!dim.is_static() && dim == sizes[i]) continue;
    if (!dim.is_static() || sizes[i].value() == -1) return std::nullopt;
    changed.push_back(axes[i]);
    to.push_back(sizes[i].value());
  }
  return value_or_fail(op::resize_to(how, x, changed, to, policy));
}

/// A resize by scales or to sizes that are told later, or of dims that are.
void resize_later(NodeContext& c, const op::Resize& how, const Value& x, const Axes& axes,
                  const Value& lengths, ResizePolicy policy) {
  op::DynamicResize later{how};
  later.axes = axes;
  later.policy = policy;
  const Value result = c.add(std::move(later), {x, lengths});
  const auto sizes = c.known_shape(lengths);
  if (!sizes || sizes->size() != axes.size() || policy != ResizePolicy::stretch) {
    c.set(result);
    return;
  }
  Shape known = x.shape();
  for (std::size_t i = 0; i < axes.size(); ++i)
    known[static_cast<std::size_t>(axes[i])] = (*sizes)[i];
  c.set(with_known_dims(result, known));
}

void resize(NodeContext& c) {
  const Value x = c.in(0);
  op::Resize attributes;
  attributes.mode = mode_named(c.text("mode", "nearest"));
  attributes.coordinates =
      coordinates_named(c.text("coordinate_transformation_mode", "half_pixel"));
  attributes.nearest = nearest_named(c.text("nearest_mode", "round_prefer_floor"));
  attributes.cubic_coefficient = c.real("cubic_coeff_a", -0.75);
  attributes.exclude_outside = c.flag("exclude_outside");
  attributes.antialias = c.flag("antialias");
  attributes.extrapolation = c.real("extrapolation_value", 0);
  Axes axes = c.integers("axes");
  for (std::int64_t& axis : axes) axis = normal_axis(axis, x.rank());
  if (axes.empty()) {
    for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  const auto policy =
      named(c.text("keep_aspect_ratio_policy", "stretch"),
            {ResizePolicy::stretch, ResizePolicy::not_larger, ResizePolicy::not_smaller});
  if (attributes.coordinates == ResizeCoordinates::tf_crop_and_resize) {
    const auto given = reals_or_fail(c, 1, "region");
    if (given.size() != 2 * axes.size()) fail("The region has ({}) numbers.", given.size());
    const auto rank = static_cast<std::size_t>(x.rank());
    attributes.roi.assign(rank, 0);
    attributes.roi.resize(2 * rank, 1);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      attributes.roi[static_cast<std::size_t>(axes[i])] = given[i];
      attributes.roi[static_cast<std::size_t>(axes[i]) + rank] = given[i + axes.size()];
    }
  }
  const bool to_sizes = has_elements(c, 3);
  if (!to_sizes && !has_elements(c, 2)) fail("Neither sizes nor scales are given.");
  const Value lengths = c.in(to_sizes ? 3 : 2);
  std::optional<op::Resize> known;
  if (const auto sizes = to_sizes ? c.known_shape(lengths) : std::nullopt)
    known = sized(attributes, x.shape(), axes, *sizes, policy);
  if (const auto scales = to_sizes ? std::nullopt : c.known_reals(lengths))
    known = scaled(attributes, x.shape(), axes, *scales);
  if (known) {
    c.set(c.add(*std::move(known), {x}));
  } else {
    resize_later(c, attributes, x, axes, lengths, policy);
  }
}

// Resize-10 and Upsample: output pixel i is input pixel i / scale, rounded down.
void resize_asymmetric(NodeContext& c, const std::vector<double>& scales) {
  const Value x = c.in(0);
  op::Resize attributes;
  attributes.mode = mode_named(c.text("mode", "nearest"));
  attributes.coordinates = ResizeCoordinates::asymmetric;
  attributes.nearest = ResizeNearest::floor;
  Axes axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  if (auto known = scaled(attributes, x.shape(), axes, scales)) {
    c.set(c.add(*std::move(known), {x}));
    return;
  }
  const Value list = constant_of(c, f64, {static_cast<std::int64_t>(scales.size())}, scales);
  resize_later(c, attributes, x, axes, list, ResizePolicy::stretch);
}

void resize_by_input(NodeContext& c) { resize_asymmetric(c, reals_or_fail(c, 1, "scales")); }
void upsample_by_attribute(NodeContext& c) { resize_asymmetric(c, c.reals("scales")); }

void upsample_first(NodeContext& c) {
  resize_asymmetric(c, {1, 1, c.real("height_scale", 1), c.real("width_scale", 1)});
}

constexpr OpEntry entries[] = {{"Resize", 11, resize},
                               {"Resize", 10, resize_by_input},
                               {"Upsample", 9, resize_by_input},
                               {"Upsample", 7, upsample_by_attribute},
                               {"Upsample", 1, upsample_first}};

}  // namespace

OpEntries resize_entries() { return entries; }

}  // namespace rlx::onnx
