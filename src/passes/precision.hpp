// The precision policy: which matmuls and convolutions compute in less than f32, and why.
#pragma once

#include <functional>
#include <vector>

#include "graph/product_shape.hpp"
#include "rlx/cost.hpp"
#include "rlx/runtime.hpp"

namespace rlx::passes {

struct PrecisionPolicy {
  Precision asked = Precision::f32;
  bool bf16_dot = false, vnni = false;  ///< instructions that the machine has
  /// Predicted ns of a product with operands of these dtypes; `weight`: b is one.
  std::function<double(const ProductShape&, DType a, DType b, bool weight)> predicted_ns;
};

/// Operands of products are rounded where the policy asks for it, the machine has instructions for
/// it and a gain is predicted; sums, epilogues, norms and softmaxes stay f32. Wants canonical,
/// channels-last products. Appends a claim for every product of f32: taken where it is narrowed,
/// with what it computes in ("bf16", "int8", "bf16 weights", "f16 weights", "f32") and why.
Result<Graph> narrow_products(const Graph& graph, const PrecisionPolicy& policy,
                              std::vector<Explanation::Claim>& claims);

}  // namespace rlx::passes
