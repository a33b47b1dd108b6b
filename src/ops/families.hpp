// The table of contents of the ops: one line a family, and what infer rules share.
#pragma once

#include <span>

#include "graph/op_info.hpp"

namespace rlx {

using OpList = std::span<const OpInfo* const>;

OpList leaf_ops();
OpList unary_ops();
OpList binary_ops();
OpList activation_ops();
OpList shape_ops();
OpList slice_ops();
OpList pad_ops();
OpList dynamic_shape_ops();
OpList dynamic_fill_ops();
OpList index_ops();
OpList scatter_ops();
OpList reduce_ops();
OpList order_ops();
OpList selection_ops();
OpList matmul_ops();
OpList conv_ops();
OpList winograd_ops();
OpList line_point_ops();
OpList norm_ops();
OpList attention_ops();
OpList expert_ops();
OpList recurrent_ops();
OpList quantize_ops();
OpList resize_ops();
OpList signal_ops();
OpList random_ops();
OpList control_ops();
OpList loop_ops();
OpList linear_algebra_ops();

/// The axis in [0, rank), or an error that names it.
Result<std::int64_t> normalize_axis(std::int64_t axis, int rank, const Type& type);
/// All of them, sorted; empty means every axis. Duplicates are errors.
Result<Axes> normalize_axes(const Axes& axes, int rank, const Type& type);
/// NumPy's broadcasting of two shapes.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);
/// A number below 0: no dim of a value, though attributes may say -1.
bool is_negative(const Dim& dim);
/// An error where a dim is negative.
Status require_dims(const Shape& shape);
/// The rule (if ok) or an error: "The op X takes floats, not i32[2]."
Status require(bool ok, std::string_view op, std::string_view what, const Type& type);

}  // namespace rlx
