// Plan steps that move or hand over values: copies, concatenations, host calls, outputs.
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

void PlanBuilder::add_copy(const Located& from, std::int32_t to, const View& target,
                           const std::string& name) {
  Region points;
  points.dims = from.view.dims;
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest;
  loop::Access source{.buffer = buffers.number(from.buffer, false),
                      .offset = from.view.offset,
                      .strides = from.view.strides},
      sink{.buffer = buffers.number(to, true), .offset = target.offset, .strides = target.strides};
  DType dtype = plan_.buffers[static_cast<std::size_t>(to)].dtype;
  if (is_complex(dtype)) {
    // Kernels know no complex numbers: their two parts are copied.
    dtype = dtype == c64 ? f32 : f64;
    points.dims.push_back(2);
    for (loop::Access* access : {&source, &sink}) {
      access->offset *= 2;
      for (std::int64_t& stride : access->strides) stride *= 2;
      access->strides.push_back(1);
    }
    for (loop::Buffer& buffer : buffers.declared) {
      buffer.dtype = dtype;
      buffer.elements *= 2;
    }
  } else if (!is_generated(dtype)) {
    dtype = u8;
    for (loop::Buffer& buffer : buffers.declared) buffer.dtype = dtype;
  }
  const Domain domain = nest_domain(points, {});
  nest.accesses.push_back(std::move(source));
  nest.nodes.push_back({.op = ScalarOp::load, .dtype = dtype, .index = 0});
  nest.stores.push_back({std::move(sink), 0});
  finish_nest(std::move(nest), domain, buffers, false, name, 0, points_of(domain.extents));
}

void PlanBuilder::add_concat(const Region& region) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const View whole = placement_.of({region.root, 0});
  const std::int64_t named = node.op.as<op::Concat>()->axis;
  const auto axis = static_cast<std::size_t>(
      named < 0 ? named + static_cast<std::int64_t>(whole.dims.size()) : named);
  std::int64_t start = 0;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Dims dims = graph_.type(node.inputs[k]).dims();
    View part{whole.base, whole.offset + start * whole.strides[axis], dims, whole.strides};
    start += dims[axis];
    if (placement_.in_place(region.root, k) || element_count(dims) == 0) continue;
    add_copy(locate(node.inputs[k]), buffer_of(whole.base), part, "copy");
  }
}

std::int32_t PlanBuilder::dense_weight(ValueId id) {
  const View& view = placement_.of(id);
  if (view.offset == 0 && view.is_dense() && graph_.type(view.base).elements() == view.elements())
    return buffer_of(view.base);
  const auto known = dense_of_.find(id);
  if (known != dense_of_.end()) return known->second;
  const Type& type = graph_.type(id);
  return dense_of_[id] =
             add_weight({.view = view, .dtype = type.dtype, .bytes = type.bytes()}, type);
}

std::int32_t PlanBuilder::dense_buffer(ValueId id) {
  if (regions_.weight_only[static_cast<std::size_t>(id.node)]) return dense_weight(id);
  const Located located = locate(id);
  const BufferPlan& buffer = plan_.buffers[static_cast<std::size_t>(located.buffer)];
  if (located.view.offset == 0 && located.view.is_dense() &&
      buffer.elements == located.view.elements())
    return located.buffer;
  const auto known = dense_of_.find(id);
  if (known != dense_of_.end()) return known->second;
  const Type& type = graph_.type(id);
  const std::int32_t copy = add_buffer(type, Storage::arena, -1, "copy_" + std::to_string(id.node));
  add_copy(located, copy, View::dense(id, type.dims()), "copy");
  if (!current_ || conditions(*current_).empty()) dense_of_[id] = copy;
  return copy;
}

Located PlanBuilder::channels_side_by_side(ValueId id) {
  const Located located = locate(id);
  if (located.view.strides.back() == 1 || located.view.dims.back() == 1) return located;
  return {dense_buffer(id), View::dense(id, located.view.dims)};
}

Located PlanBuilder::locate_for_lanes(ValueId id) {
  constexpr std::int64_t small_bytes = 1 << 20;
  const Type& type = graph_.type(id);
  if (!regions_.weight_only[static_cast<std::size_t>(id.node)] || type.bytes() > small_bytes ||
      !placement_.of(id).is_turned())
    return locate(id);
  return {dense_weight(id), View::dense(id, type.dims())};
}

Status PlanBuilder::add_host(const Region& region) {
  if (const FlatGraph* body = flat_.body_of(region.root)) return add_loop(region, *body);
  const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
  if (suits_grouped_kernels(graph_, node)) return add_grouped(region);
  return add_call(region);
}

Status PlanBuilder::add_call(const Region& region) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const OpInfo& info = node.op.info();
  HostCall call{.op = node.op};
  std::vector<const Type*> types;
  for (const ValueId id : node.inputs) types.push_back(id.node < 0 ? nullptr : &graph_.type(id));
  if (options_.step_work) call.work = options_.step_work(node.op, types, node.results);
  if (call.work.items == 0 && !info.eval)
    return unsupported("The op {} ({}) has no kernel on this device.", info.name,
                       node.results[0].text());
  Step step{.kind = Step::Kind::host,
            .index = static_cast<std::int32_t>(plan_.host_calls.size()),
            .name = "host",
            .region = region_text(region)};
  for (const ValueId id : node.inputs) {
    call.inputs.push_back(id.node < 0 ? -1 : dense_buffer(id));
    call.input_dims.push_back(id.node < 0 ? Dims{} : graph_.type(id).dims());
  }
  for (std::size_t k = 0; k < node.results.size(); ++k) {
    call.outputs.push_back(buffer_of({region.root, static_cast<std::int32_t>(k)}));
    call.output_dims.push_back(node.results[k].dims());
  }
  if (call.work.items > 0) {
    step.name = node.op.name();
    // Kernels that only move numbers tell no cost.
    if (info.cost) step.flops = info.cost(node.op.attributes(), types, node.results).flops;
  }
  step.conditions = conditions(region);
  for (const std::int32_t buffer : call.inputs)
    if (buffer >= 0) step.buffers.push_back(buffer);
  step.buffers.insert(step.buffers.end(), call.outputs.begin(), call.outputs.end());
  plan_.host_calls.push_back(std::move(call));
  plan_.steps.push_back(std::move(step));
  return {};
}

void PlanBuilder::add_outputs() {
  std::set<std::int32_t> taken;
  for (const GraphOutput& output : graph_.outputs()) {
    const Type& type = graph_.type(output.value);
    const Located located = locate(output.value);
    const BufferPlan& buffer = plan_.buffers[static_cast<std::size_t>(located.buffer)];
    const bool own = buffer.storage == Storage::arena && located.view.offset == 0 &&
                     located.view.is_dense() && buffer.elements == located.view.elements() &&
                     !taken.contains(located.buffer);
    std::int32_t target = located.buffer;
    if (!own) {
      target = add_buffer(type, Storage::arena, -1, output.name);
      add_output_copy(output.value, located, target);
    }
    plan_.buffers[static_cast<std::size_t>(target)].name = output.name;
    taken.insert(target);
    plan_.outputs.push_back(target);
    plan_.output_types.push_back(type);
  }
  if (!options_.is_body) return;
  // The loop says where each iteration writes.
  for (const std::int32_t output : plan_.outputs)
    plan_.buffers[static_cast<std::size_t>(output)].storage = Storage::slot;
}

void PlanBuilder::add_output_copy(ValueId value, const Located& located, std::int32_t target) {
  add_copy(located, target, View::dense(value, graph_.type(value).dims()), "output");
}

}  // namespace rlx::plan
