// Kernels that calibration times, each with one question in mind.
#pragma once

#include "codegen/loop.hpp"
#include "codegen/machine.hpp"

namespace rlx::cost {

/// `elements` of x become x + c0, and `count` times op(x + c) summed up: twice the count less the
/// count is what `count` of the op cost.
loop::Kernel op_kernel(ScalarOp op, int count, std::int64_t elements);

/// Sums of rows of `row` elements: reads `rows` * `row` elements of f32, stores one for each row.
loop::Kernel read_kernel(std::int64_t rows, std::int64_t row);

/// Stores one value `elements` times.
loop::Kernel write_kernel(std::int64_t elements);

/// y = x + 1 on rows of `row` elements that lie `row` + 16 apart, so that no two rows merge.
loop::Kernel rows_kernel(std::int64_t rows, std::int64_t row, DType dtype);

/// y = x[3 * i].
loop::Kernel gather_kernel(std::int64_t elements);

/// C = A * B, B packed. f32 is f32 alone; bf16 and f16 are both operands'.
loop::Kernel gemm_kernel(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype,
                         const codegen::Target& target);

}  // namespace rlx::cost
