// Plan steps of maps, reductions and windows (pools, depthwise convolutions).
#include "plan/cache_sets.hpp"
#include "plan/plan_builder.hpp"
#include "plan/windows.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

void PlanBuilder::finish_nest(loop::Nest nest, const Domain& domain, KernelBuffers& buffers,
                              bool uses_indices, std::string name, double flops, double points) {
  nest.extents = domain.extents;
  nest.parallel_dims = domain.parallel_dims;
  if (uses_indices) nest.error_buffer = buffers.number(error_buffer(), true);
  loop::Kernel kernel{buffers.declared, std::move(nest)};
  add_kernel(std::move(kernel), buffers.plan_buffers, std::move(name), flops, points);
}

ExpressionBuilder PlanBuilder::expression_of(const Region& region, const Domain& domain,
                                             KernelBuffers& buffers, loop::Nest& nest) {
  ExpressionBuilder expression(
      graph_, region.dims, domain.map, [this](ValueId id) { return locate_for_lanes(id); }, buffers,
      nest.nodes, nest.accesses);
  expression.recompute(region.recomputed);
  return expression;
}

void PlanBuilder::add_behind_root(const Region& region, ScalarValue root,
                                  ExpressionBuilder& expression, loop::Nest& nest) {
  expression.set({region.root, 0}, root);
  for (const std::int32_t index : region.nodes) {
    if (index != region.root) expression.add(index);
  }
  for (const std::int32_t index : region.nodes) {
    if (is_stored(index)) nest.stores.push_back(expression.store({index, 0}));
  }
}

Status PlanBuilder::add_nest(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  if (placement_.in_place(region.root, 0))
    return {};  // a copy whose source was written in its order
  if (region.nodes.size() == 1 && region.recomputed.empty() && is_view_op(root.op)) {
    const Located from = locate(root.inputs[0]);
    const View target = reshaped(placement_.of({region.root, 0}), region.dims).value();
    add_copy(from, buffer_of(target.base), target, "map");
    return {};
  }
  const Domain domain = nest_domain(region, {});
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest;
  ExpressionBuilder expression = expression_of(region, domain, buffers, nest);
  for (const std::int32_t index : region.nodes) expression.add(index);
  for (const std::int32_t index : region.nodes) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    if (node.op.is<op::Update>()) {
      const Located state = locate(node.inputs[0]);
      nest.stores.push_back({{.buffer = buffers.number(state.buffer, true),
                              .offset = state.view.offset,
                              .strides = domain.map(broadcast_strides(state.view, region.dims))},
                             expression.operand({index, 0}).id()});
    } else if (is_view_op(node.op)) {
      nest.stores.push_back(store_of_copy(index, region, domain, buffers, expression));
    } else if (is_stored(index)) {
      nest.stores.push_back(expression.store({index, 0}));
    }
  }
  finish_nest(std::move(nest), domain, buffers, expression.uses_indices(),
              region.reduced.empty() ? "map" : "rows", 0, points_of(domain.extents));
  return {};
}

loop::Store PlanBuilder::store_of_copy(std::int32_t index, const Region& region,
                                       const Domain& domain, KernelBuffers& buffers,
                                       ExpressionBuilder& expression) {
  const View& target = placement_.of({index, 0});
  const View points = reshaped(target, region.dims).value();
  return {{.buffer = buffers.number(buffer_of(target.base), true),
           .offset = points.offset,
           .strides = domain.map(points.strides)},
          expression.operand({index, 0}).id()};
}

Status PlanBuilder::add_window(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const auto* conv = root.op.as<op::Conv>();
  const auto* pool = root.op.as<op::WindowReduce>();
  const Window window = window_of(graph_, root);
  const Domain domain = nest_domain(region, window.extents);
  KernelBuffers buffers(plan_.buffers);
  loop::Nest nest;
  ExpressionBuilder expression = expression_of(region, domain, buffers, nest);
  const DType dtype = root.results[0].dtype;
  const bool narrow = dtype == f16 || dtype == bf16;
  const bool sums = conv || pool->kind == Reduction::sum || pool->kind == Reduction::prod;
  const double fill = conv ? 0 : reduction_identity(pool->kind, dtype);
  const bool stays =
      placement_.of({region.nodes.back(), 0}).is_turned() &&
      stays_channels_first(graph_, region, placement_.of(root.inputs[0]), options_.threads);
  const bool turns = !stays && turns_image(graph_, region);
  const Located image = turns ? channels_side_by_side(root.inputs[0]) : locate(root.inputs[0]);
  ScalarValue x =
      expression.load(window_access(image, window, region, domain, buffers, fill), dtype);
  if (narrow && sums) x = expression.builder().cast(x, f32);
  if (conv) x = x * depthwise_weight(root, region, domain, buffers, expression, narrow);
  ScalarValue sum =
      expression.builder().reduce(conv ? ReduceKind::sum : reduce_kind_of(pool->kind), x);
  if (narrow && sums) sum = expression.builder().cast(sum, dtype);
  add_behind_root(region, sum, expression, nest);
  const double points = points_of(domain.extents);
  finish_nest(std::move(nest), domain, buffers, expression.uses_indices(),
              conv ? "depthwise" : "pool", conv ? 2 * points : points, points);
  return {};
}

ScalarValue PlanBuilder::depthwise_weight(const Node& root, const Region& region,
                                          const Domain& domain, KernelBuffers& buffers,
                                          ExpressionBuilder& expression, bool narrow) {
  const ValueId id = root.inputs[1];
  const bool constant = regions_.weight_only[static_cast<std::size_t>(id.node)];
  const Located w = constant ? taps_of_channels(id) : locate(id);
  const std::size_t rank = region.dims.size();
  loop::Access access{.buffer = buffers.number(w.buffer, false),
                      .offset = w.view.offset,
                      .strides = std::vector<std::int64_t>(domain.extents.size(), 0)};
  access.strides[rank - 1] = w.view.strides.back();
  for (std::size_t i = 0; i + 2 < w.view.dims.size(); ++i)
    access.strides[rank + i] = w.view.strides[i];
  const ScalarValue value = expression.load(std::move(access), graph_.type(id).dtype);
  return narrow ? expression.builder().cast(value, f32) : value;
}

Located PlanBuilder::taps_of_channels(ValueId id) {
  const Type& type = graph_.type(id);
  const Dims dims = type.dims();
  View view = View::dense(id, dims);
  const std::int64_t channels = dims.back(),
                     taps = view.elements() / std::max<std::int64_t>(1, channels);
  if (!crowd_sets(taps, channels * static_cast<std::int64_t>(size_of(type.dtype))))
    return {dense_weight(id), std::move(view)};
  const View& kept = placement_.of(id);
  WeightPlan weight{.view = kept, .dtype = type.dtype, .packed = true};
  if (const DType from = graph_.type(kept.base).dtype; from != type.dtype) weight.from = from;
  weight.layout = {.n = channels,
                   .k = taps,
                   .panel_width = channels + line_elements(type.dtype),
                   .dtype = type.dtype};
  weight.k_extents.assign(dims.begin(), dims.end() - 1);
  weight.k_strides.assign(kept.strides.begin(), kept.strides.end() - 1);
  weight.n = channels;
  weight.n_stride = kept.strides.back();
  weight.bytes = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, 1));
  for (std::size_t i = 0; i + 1 < dims.size(); ++i)
    view.strides[i] = view.strides[i] / channels * weight.layout.panel_width;
  const Type spread{type.dtype, {weight.layout.elements()}};
  return {add_weight(std::move(weight), spread), std::move(view)};
}

}  // namespace rlx::plan
