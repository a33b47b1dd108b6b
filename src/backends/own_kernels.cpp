// Kernels of rlx's own: of the library, and of Fourier transforms.
#include "backends/own_kernels.hpp"

#include <algorithm>

#include "library/library.hpp"
#include "signal/kernels.hpp"

namespace rlx {

codegen::StepWork own_kernel_work(const Op& op, std::span<const Type* const> inputs,
                                  std::span<const Type> results) {
  const codegen::StepWork work = library::work_of(op, inputs, results);
  if (work.items > 0) return work;
  // Lines are shared in groups of the widest vectors' lanes; an estimate will do for predictions.
  if (inputs.empty() || !inputs[0] || !signal::has_line_kernel(op, *inputs[0])) return {};
  return {.items = signal::line_items(op, inputs)};
}

bool has_own_kernel(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs[0].node < 0) return false;
  if (signal::has_line_kernel(node.op, graph.type(node.inputs[0]))) return true;
  std::vector<const Type*> inputs;
  bool is_static = true;
  for (const ValueId id : node.inputs) {
    inputs.push_back(id.node < 0 ? nullptr : &graph.type(id));
    is_static = is_static && (id.node < 0 || inputs.back()->is_static());
  }
  for (const Type& type : node.results) is_static = is_static && type.is_static();
  return is_static && library::work_of(node.op, inputs, node.results).items > 0;
}

std::unique_ptr<codegen::StepKernel> own_kernel(const Op& op, std::span<const Type* const> inputs,
                                                std::span<const Type> results, codegen::Isa isa) {
  if (auto kernel = library::make_kernel(op, inputs, results)) return kernel;
  std::vector<Type> types;
  for (const Type* type : inputs) types.push_back(type ? *type : Type());
  return signal::line_kernel(op, types, results[0], isa);
}

}  // namespace rlx
