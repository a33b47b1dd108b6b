// Which ops have a kernel of lines, and making it.
#pragma once

#include <memory>
#include <span>

#include "rlx/graph.hpp"
#include "rlx/tensor.hpp"
#include "signal/transform.hpp"

namespace rlx::signal {

/// Whether line_kernel makes one for the op. Types are static.
bool has_line_kernel(const Op& op, const Type& input);

/// About how many pieces workers can share.
std::int64_t line_items(const Op& op, std::span<const Type* const> inputs);

/// The kernel of an op for dense inputs and a dense result; null where it has none.
std::unique_ptr<LineKernel> line_kernel(const Op& op, std::span<const Type> inputs,
                                        const Type& result, codegen::Isa isa);

}  // namespace rlx::signal
