// What a matmul or convolution would take with operands of other dtypes, or in whole rows.
#pragma once

#include "cost/machine_model.hpp"
#include "graph/product_shape.hpp"

namespace rlx::cost {

/// Predicted ns of a product of that shape on so many threads. `packed`: B is a weight. Operands
/// that are not f32 are also made from f32: B only where it is no weight.
double product_ns(const ProductShape& shape, DType a, DType b, bool packed,
                  const MachineModel& model, int threads);

/// How many ns more that product takes, on the best number of threads up to `threads`, where the
/// worker that makes a row makes all of it, since something that follows in the same kernel reduces
/// the row: workers then share rows out, of which there may be few, and each group of them walks
/// over all of B. At least 0; the operands are of the dtypes as they are.
double whole_rows_ns(const ProductShape& shape, DType a, DType b, bool packed,
                     const MachineModel& model, int threads);

}  // namespace rlx::cost
