// Small builders that several families of handlers share.
#pragma once

#include <optional>

#include "import/onnx/importer.hpp"
#include "import/onnx/node_context.hpp"

namespace rlx::onnx {

/// Product of dims, symbols included.
Dim product_of(const Shape& shape);

/// ONNX's reshape: 0 copies a dim unless `allow_zero`, one -1 is inferred.
Value reshape_to(NodeContext& c, const Value& x, const Value& target, bool allow_zero);

/// The integers of an input that must be known while importing.
Axes known_or_fail(NodeContext& c, int input, const char* what);

/// Adds axes of size 1; positions refer to the result and may be negative.
Value unsqueeze_axes(const Value& x, const Axes& axes);

/// Two-way broadcast of shapes; nothing where symbols leave it open.
std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b);

/// A value whose dims data decides, with those of them that are known, for what asks for them.
Value with_known_dims(const Value& x, const Shape& known);

/// x[start:limit] along one axis; all axes may be symbolic.
Value slice_axis(const Value& x, std::int64_t axis, std::int64_t start, std::int64_t limit);

/// [B, S, H*D] as [B, S, H, D].
Value with_heads(const Value& x, std::int64_t heads);

/// [B, S, H, D] as [B, H, S, D], or back.
Value swap_heads(const Value& x);

/// A mask of attention that lets keys through where `mask`, bool or additive, or nothing, does and
/// `allowed` is true.
Value mask_where(NodeContext& c, const Value& mask, const Value& allowed, DType dtype);

/// A value [1] as a scalar; others as they are.
Value scalar_if_single(const Value& x);

/// Operands of a product of integers: scales f32, zero points or nothing.
struct IntegerOperands {
  Value a, b, a_scale, b_scale, a_zero, b_zero;
};

/// (a - a_zero) (b - b_zero), scaled, f32.
Value integer_product(NodeContext& c, const IntegerOperands& operands);

/// A scalar of the dtype of `like`.
Value scalar_like(NodeContext& c, const Value& like, double value);

/// The scalar in the shape of `like`, whatever is known of it.
Value filled_like(NodeContext& c, const Value& scalar, const Value& like);

/// Values as a constant of that dtype.
Value constant_of(NodeContext& c, DType dtype, Dims dims, const std::vector<double>& values);

}  // namespace rlx::onnx
