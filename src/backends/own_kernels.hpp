// Kernels of rlx's own for steps that are not generated: which there are, and making them.
#pragma once

#include <memory>

#include "codegen/host_target.hpp"
#include "codegen/step_kernel.hpp"
#include "rlx/graph.hpp"

namespace rlx {

/// What the kernel of an op tells; no items where there is none. Types are static; a null input is
/// left out.
codegen::StepWork own_kernel_work(const Op& op, std::span<const Type* const> inputs,
                                  std::span<const Type> results);

/// Whether a composite has a kernel as it is.
bool has_own_kernel(const Graph& graph, const Node& node);

/// The kernel of an op whose work has items.
std::unique_ptr<codegen::StepKernel> own_kernel(const Op& op, std::span<const Type* const> inputs,
                                                std::span<const Type> results, codegen::Isa isa);

}  // namespace rlx
