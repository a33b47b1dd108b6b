// Kernels in C++ for ops that no loop nest expresses: orders, scatters, sums along lines.
#pragma once

#include <memory>
#include <span>

#include "codegen/step_kernel.hpp"
#include "rlx/graph.hpp"

namespace rlx::library {

/// A kernel that is cheap to make and tells its own cost.
class Kernel : public codegen::StepKernel {
 public:
  virtual codegen::StepWork work() const = 0;
  std::int64_t work_items() const override { return work().items; }
};

/// The kernel of an op on dense operands and results; null where there is none. Types are static; a
/// null input is left out.
std::unique_ptr<Kernel> make_kernel(const Op& op, std::span<const Type* const> inputs,
                                    std::span<const Type> results);

/// The work of that kernel; no items where there is none.
codegen::StepWork work_of(const Op& op, std::span<const Type* const> inputs,
                          std::span<const Type> results);

}  // namespace rlx::library
