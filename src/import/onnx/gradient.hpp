// Derivatives of values in a graph, for ai.onnx.preview.training's Gradient.
#pragma once

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::onnx {

/// `y` made once more with given[i] in the place of named[i]; `y` itself where these are the same.
Value with_values(const Value& y, const Values& named, const Values& given);

/// The derivatives of the sum of y by each of xs, in their shapes; zeros where y does not depend on
/// one. Throws Exception (unsupported) where an op on the way has no rule.
Values gradients(const Value& y, const Values& xs);

}  // namespace rlx::onnx
