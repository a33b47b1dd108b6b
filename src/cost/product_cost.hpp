// What a matmul or convolution would take with operands of other dtypes, or in whole rows.
#pragma once

#include <cstdint>

#include "cost/machine_model.hpp"
#include "graph/product_shape.hpp"

namespace rlx::cost {

/// Predicted ns of a product of that shape on so many threads. `packed`: B is a weight. Operands
/// that are not f32 are also made from f32: B only where it is no weight.
double product_ns(const ProductShape& shape, DType a, DType b, bool packed,
                  const MachineModel& model, int threads);

/// Rows that a worker has to make whole, group by group: workers then share rows out, of which
/// there may be few, and each group walks over all of B.
enum class WholeRows : std::uint8_t {
  results,   ///< something that follows in the same kernel reduces rows of the result
  operands,  ///< the kernel makes the rows of A itself
};

/// How many ns more that product takes by that, on the best number of threads up to `threads`, what
/// else the kernel does left out. At least 0; the operands are of these dtypes where they lie.
double whole_rows_ns(const ProductShape& shape, DType a, DType b, bool packed, WholeRows rows,
                     const MachineModel& model, int threads);

}  // namespace rlx::cost
