// The op table, and what infer rules share.
#include "ops/families.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rlx {

std::span<const OpInfo* const> all_ops() {
  static const std::vector<const OpInfo*> table = [] {
    std::vector<const OpInfo*> ops;
    for (const OpList family :
         {leaf_ops(),    unary_ops(),     binary_ops(),        activation_ops(),    shape_ops(),
          slice_ops(),   pad_ops(),       dynamic_shape_ops(), dynamic_fill_ops(),  index_ops(),
          scatter_ops(), reduce_ops(),    order_ops(),         selection_ops(),     matmul_ops(),
          conv_ops(),    winograd_ops(),  line_point_ops(),    norm_ops(),          attention_ops(),
          expert_ops(),  recurrent_ops(), quantize_ops(),      resize_ops(),        signal_ops(),
          random_ops(),  control_ops(),   loop_ops(),          linear_algebra_ops()}) {
      ops.insert(ops.end(), family.begin(), family.end());
    }
    return ops;
  }();
  return table;
}

const OpInfo* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const OpInfo* info) { return info->name == name; });
  return found == ops.end() ? nullptr : *found;
}

Result<std::int64_t> normalize_axis(std::int64_t axis, int rank, const Type& type) {
  if (axis < -rank || axis >= rank) {
    return bad_input("Axis ({}) is outside the rank ({}) of {}.", axis, rank, type.text());
  }
  return axis < 0 ? axis + rank : axis;
}

Result<Axes> normalize_axes(const Axes& axes, int rank, const Type& type) {
  Axes result;
  for (const std::int64_t axis : axes) {
    RLX_ASSIGN(const std::int64_t normal, normalize_axis(axis, rank, type));
    result.push_back(normal);
  }
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) result.push_back(i);
  }
  std::sort(result.begin(), result.end());
  const auto twice = std::adjacent_find(result.begin(), result.end());
  if (twice != result.end())
    return bad_input("Axis ({}) of {} is named twice.", *twice, type.text());
  return result;
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result(rank, Dim(1));
  for (std::size_t i = 0; i < rank; ++i) {
    const Dim one(1);
    const Dim& x = i + a.size() < rank ? one : a[i + a.size() - rank];
    const Dim& y = i + b.size() < rank ? one : b[i + b.size() - rank];
    if (!(x == one) && !(y == one) && !compatible(x, y)) {
      return bad_input("Shapes {} and {} do not broadcast: dim ({}) against ({}).",
                       Type{DType::f32, a}.text().substr(3), Type{DType::f32, b}.text().substr(3),
                       x.text(), y.text());
    }
    result[i] = broadcast_dim(x, y);
  }
  return result;
}

bool is_negative(const Dim& dim) { return dim.value() < 0 && dim == Dim(dim.value()); }

Status require_dims(const Shape& shape) {
  for (const Dim& dim : shape) {
    if (is_negative(dim))
      return bad_input("A dim of a shape must not be negative ({}).", dim.value());
  }
  return {};
}

Status require(bool ok, std::string_view op, std::string_view what, const Type& type) {
  if (ok) return {};
  return bad_input("The op {} takes {}, not {}.", op, what, type.text());
}

}  // namespace rlx
