// Products of one row with a large weight that lies in memory row by row along k, as those of
// linear layers do. The weight's rows are the kernel's rows then: it is read where it lies (the
// mapping of the model's file, say), nothing is packed, and no memory is touched for a second copy.
#include <algorithm>

#include "codegen/machine.hpp"
#include "cost/kernel_cost.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

namespace {

bool contains(const Axes& axes, std::size_t axis, std::size_t rank) {
  return std::ranges::any_of(axes, [&](std::int64_t named) {
    return static_cast<std::size_t>(named < 0 ? named + static_cast<std::int64_t>(rank) : named) ==
           axis;
  });
}

std::size_t position(std::int64_t axis, const View& view) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(view.dims.size())
                                           : axis);
}

/// Whether reading the weight's rows where they lie is as fast as reading panels: they must come
/// from memory in every run, as fast as it gives them to all workers together. What stays in the
/// cache is faster in panels, and so is what one core reads alone, which waits for the addresses of
/// a file's small pages as well.
bool waits_for_memory(std::int64_t bytes, const BuildOptions& options) {
  const cost::MachineModel& model = options.model;
  return bytes > model.cache_bytes.back() &&
         options.threads * model.read.back() >= model.memory_all;
}

/// Every axis of the view that no list names has extent 1.
bool one_row(const View& a, const op::DotGeneral& dot) {
  for (std::size_t axis = 0; axis < a.dims.size(); ++axis) {
    if (!contains(dot.a_contract, axis, a.dims.size()) && a.dims[axis] != 1) return false;
  }
  return true;
}

/// Fills k and the rows of `c`, whose A becomes `w` and whose B becomes `x`. False where w has not
/// one row of all k behind the other.
bool describe(const View& x, const View& w, const op::DotGeneral& dot, loop::Contraction& c) {
  for (std::size_t i = 0; i < dot.b_contract.size(); ++i) {
    const std::size_t of_x = position(dot.a_contract[i], x), of_w = position(dot.b_contract[i], w);
    c.k_extents.push_back(w.dims[of_w]);
    c.a_k_strides.push_back(w.strides[of_w]);
    c.b_k_strides.push_back(x.strides[of_x]);
  }
  std::int64_t row = 1;
  for (std::size_t i = c.k_extents.size(); i-- > 0; row *= c.k_extents[i]) {
    if (c.k_extents[i] != 1 && c.a_k_strides[i] != row) return false;
  }
  for (std::size_t axis = 0; axis < w.dims.size(); ++axis) {
    if (contains(dot.b_contract, axis, w.dims.size()) || w.dims[axis] == 1) continue;
    if (!c.m_extents.empty() || w.strides[axis] != row) return false;
    c.m_extents = {w.dims[axis]};
    c.a_m_strides = {row};
  }
  c.n = 1;
  c.b_offset = x.offset;
  return w.offset == 0 && !c.m_extents.empty();
}

}  // namespace

bool PlanBuilder::add_weight_rows(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const auto* dot = root.op.as<op::DotGeneral>();
  if (!dot || !regions_.weight_only[static_cast<std::size_t>(root.inputs[1].node)]) return false;
  const View& w = placement_.of(root.inputs[1]);
  const Node& base = graph_.node(w.base);
  const bool lies_somewhere = base.op.is<op::Param>() || base.op.is<op::Constant>();
  const Type& stored = graph_.type(w.base);
  if (!lies_somewhere || stored.dtype != f32 || b_of(root).dtype != f32 ||
      !waits_for_memory(stored.bytes(), options_) || w.elements() != stored.elements())
    return false;
  const Located x = locate(operand_read(graph_, regions_, root.inputs[0]));
  loop::Contraction c;
  if (!one_row(x.view, *dot) || !describe(x.view, w, *dot, c)) return false;

  KernelBuffers buffers(plan_.buffers);
  c.b_buffer = buffers.number(x.buffer, false);
  Domain domain;
  set_domain(c, domain);
  domain.map = [](const std::vector<std::int64_t>& strides) {
    return std::vector<std::int64_t>{strides.back(), 0};
  };
  add_epilogue(region, domain, c, buffers);
  const DType x_dtype = buffers.declared[static_cast<std::size_t>(c.b_buffer)].dtype;
  if (!cost::becomes_dots(c, f32, x_dtype, codegen::machine_of(options_.target))) return false;
  c.a_buffer = buffers.number(buffer_of(w.base), false);
  const double flops = 2 * static_cast<double>(stored.elements());
  loop::Kernel kernel{{}, std::move(c)};
  kernel.buffers = buffers.declared;
  add_kernel(std::move(kernel), buffers.plan_buffers, "matmul", flops, 0);
  return true;
}

}  // namespace rlx::plan
