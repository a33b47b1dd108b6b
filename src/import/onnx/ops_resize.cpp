// Resize and Upsample.
#include <algorithm>
#include <cmath>
#include <optional>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

using op::ResizeCoordinates;
using op::ResizeMode;
using op::ResizeNearest;

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

std::int64_t scaled(std::int64_t size, double scale) {
  const double result = std::floor(static_cast<double>(size) * scale);
  if (!(result >= 0 && result < 1e12)) fail("The scale ({}) is wrong.", scale);
  return static_cast<std::int64_t>(result);
}

// Every axis keeps its size unless scales or sizes for it are given.
op::Resize same_size(const Value& x) {
  op::Resize attributes;
  for (int i = 0; i < x.rank(); ++i) attributes.sizes.push_back(static_dim(x, i));
  attributes.scales.assign(attributes.sizes.size(), 1);
  return attributes;
}

void apply_scales(op::Resize& attributes, const Axes& axes, const std::vector<double>& scales) {
  if (scales.size() != axes.size()) {
    fail("There are ({}) scales for ({}) axes.", scales.size(), axes.size());
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    attributes.scales[axis] = scales[i];
    attributes.sizes[axis] = scaled(attributes.sizes[axis], scales[i]);
  }
}

// `policy` decides between the scales of the axes where they are to be equal. Axes without elements
// have none, and keep their size.
void apply_sizes(op::Resize& attributes, const Axes& axes, Axes sizes, const std::string& policy) {
  if (sizes.size() != axes.size()) {
    fail("There are ({}) sizes for ({}) axes.", sizes.size(), axes.size());
  }
  std::optional<double> common;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto in = attributes.sizes[static_cast<std::size_t>(axes[i])];
    if (in == 0 && sizes[i] != 0) fail("An axis of 0 elements cannot be resized.");
    if (in == 0) continue;
    const double scale = static_cast<double>(sizes[i]) / static_cast<double>(in);
    if (!common || (policy == "not_larger" ? scale < *common : scale > *common)) common = scale;
  }
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller") {
    fail("The policy ({}) is unknown.", policy);
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    const auto in = static_cast<double>(attributes.sizes[axis]);
    if (in == 0) continue;
    if (policy == "stretch") {
      attributes.scales[axis] = static_cast<double>(sizes[i]) / in;
    } else {
      attributes.scales[axis] = *common;
      sizes[i] = static_cast<std::int64_t>(std::floor(in * *common + 0.5));
    }
    if (sizes[i] < 0) fail("A size ({}) is negative.", sizes[i]);
    attributes.sizes[axis] = sizes[i];
  }
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

void resize(NodeContext& c) {
  const Value x = c.in(0);
  op::Resize attributes = same_size(x);
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
  const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
  if (has_elements(c, 3)) {
    apply_sizes(attributes, axes, known_or_fail(c, 3, "sizes"), policy);
  } else if (has_elements(c, 2)) {
    apply_scales(attributes, axes, reals_or_fail(c, 2, "scales"));
  } else {
    fail("Neither sizes nor scales are given.");
  }
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
  c.set(c.add(attributes, {x}));
}

// Resize-10 and Upsample: output pixel i is input pixel i / scale, rounded down.
void resize_asymmetric(NodeContext& c, const std::vector<double>& scales) {
  const Value x = c.in(0);
  op::Resize attributes = same_size(x);
  attributes.mode = mode_named(c.text("mode", "nearest"));
  attributes.coordinates = ResizeCoordinates::asymmetric;
  attributes.nearest = ResizeNearest::floor;
  Axes axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  apply_scales(attributes, axes, scales);
  c.set(c.add(attributes, {x}));
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
