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

/// The kernel of fft, rfft, irfft, block_fft for a dense input and result; null where it
/// has none.
std::unique_ptr<LineKernel> line_kernel(const Op& op, const Type& input, const Type& result,
                                        codegen::Isa isa);

}  // namespace rlx::signal
