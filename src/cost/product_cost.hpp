// What a matmul or convolution would take with operands of other dtypes.
#pragma once

#include "cost/machine_model.hpp"
#include "graph/product_shape.hpp"

namespace rlx::cost {

/// Predicted ns of a product of that shape on so many threads. `packed`: B is a weight. Operands
/// that are not f32 are also made from f32: B only where it is no weight.
double product_ns(const ProductShape& shape, DType a, DType b, bool packed,
                  const MachineModel& model, int threads);

}  // namespace rlx::cost
