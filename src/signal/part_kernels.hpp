// Parts of complex numbers: real, imag, conj, make_complex as kernels.
#pragma once

#include <memory>

#include "rlx/graph.hpp"
#include "signal/transform.hpp"

namespace rlx::signal {

/// Whether part_kernel makes one for the op.
bool is_part(const Op& op);

/// The pieces that workers share of so many elements.
std::int64_t part_items(std::int64_t elements);

/// The kernel for dense operands; null for other ops. `input`: the type of the first operand.
std::unique_ptr<LineKernel> part_kernel(const Op& op, const Type& input);

}  // namespace rlx::signal
