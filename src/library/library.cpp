// Which ops have a kernel in C++.
#include "library/library.hpp"

#include <algorithm>

#include "library/kernels.hpp"

namespace rlx::library {

KernelPtr make_kernel(const Op& op, std::span<const Type* const> inputs,
                      std::span<const Type> results) {
  constexpr KernelPtr (*makers[])(const Call&) = {order_kernel,          scatter_elements_kernel,
                                                  scatter_blocks_kernel, cumulative_kernel,
                                                  window_arg_max_kernel, pad_kernel,
                                                  determinant_kernel,    router_kernel};
  // Nothing to do for results without elements: their evaluation is a call.
  const bool is_empty = std::any_of(results.begin(), results.end(),
                                    [](const Type& type) { return type.elements() == 0; });
  if (is_empty || inputs.empty() || !inputs[0]) return nullptr;
  for (const auto maker : makers) {
    if (KernelPtr kernel = maker({op, inputs, results})) return kernel;
  }
  return nullptr;
}

codegen::StepWork work_of(const Op& op, std::span<const Type* const> inputs,
                          std::span<const Type> results) {
  const KernelPtr kernel = make_kernel(op, inputs, results);
  return kernel ? kernel->work() : codegen::StepWork{};
}

}  // namespace rlx::library
