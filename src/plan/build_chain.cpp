// Plan steps of chains: a contraction, its row epilogue, and the contraction that reads its rows.
#include <algorithm>
#include <set>

#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

/// Elements from row to row: whole cache lines, and no power of two, at which a block's rows would
/// share a set of the cache.
std::int64_t row_stride(std::int64_t columns, DType dtype) {
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t lines = (columns + line - 1) / line;
  return (lines % 4 == 0 ? lines + 1 : lines) * line;
}

View row_view(ValueId id, const Dims& dims, DType dtype) {
  View view = View::dense(id, dims);
  std::int64_t stride = row_stride(dims.back(), dtype);
  for (std::size_t i = dims.size() - 1; i-- > 0;) {
    view.strides[i] = stride;
    stride *= dims[i];
  }
  return view;
}

}  // namespace

/// Every value of the first contraction's region gets a place among the worker's rows; buffers are
/// made for those that a later node of the region, or the second contraction, must read.
void PlanBuilder::place_rows(const Region& first, ValueId rows) {
  worker_rows_.clear();
  const auto add = [&](ValueId id) {
    const Type& type = graph_.type(id);
    const View view = row_view(id, type.dims(), type.dtype);
    const std::int64_t elements = element_count(type.dims()) / type.dims().back() *
                                  row_stride(type.dims().back(), type.dtype);
    const std::int32_t buffer = add_buffer({type.dtype, {elements}}, Storage::worker, -1,
                                           "rows_" + std::to_string(id.node));
    worker_rows_[id] = {buffer, view};
  };
  std::set<ValueId> reduced;
  for (const std::int32_t index : first.nodes) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const bool reduces = node.op.is<op::Reduce>() || node.op.is<op::ArgReduce>();
    bool in_rows = reduces;
    for (const ValueId id : node.inputs) in_rows = in_rows || reduced.contains(id);
    if (!in_rows) continue;
    reduced.insert({index, 0});
    for (const ValueId id : node.inputs) {
      const bool tile =
          id.node >= 0 && !reduced.contains(id) &&
          std::find(first.nodes.begin(), first.nodes.end(), id.node) != first.nodes.end();
      if (tile && !worker_rows_.contains(id)) add(id);
    }
  }
  if (worker_rows_.contains(rows)) return;
  // The last value takes the place of one that it is made from, point by point.
  for (const auto& [id, place] : worker_rows_) {
    if (graph_.type(id) != graph_.type(rows)) continue;
    worker_rows_[rows] = place;
    return;
  }
  add(rows);
}

loop::Contraction PlanBuilder::chain_stage(const Region& region, KernelBuffers& buffers) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  loop::Contraction stage;
  Domain domain;
  describe_dot(root, *root.op.as<op::DotGeneral>(), region, stage, domain, buffers);
  stage.accumulator = root.results[0].dtype == f64 ? f64 : f32;
  add_epilogue(region, domain, stage, buffers);
  return stage;
}

Status PlanBuilder::add_chain(const Region& region) {
  const Region& first = region.before[0];
  place_rows(first, rows_of(region));
  KernelBuffers buffers(plan_.buffers);
  loop::Chain chain;
  chain.first = chain_stage(first, buffers);
  chain.second = chain_stage(region, buffers);
  worker_rows_.clear();
  double flops = 0;
  for (const loop::Contraction* stage : {&chain.first, &chain.second}) {
    const std::int64_t rows = element_count(stage->batch_extents) * element_count(stage->m_extents);
    flops += 2 * points_of(stage->k_extents) * static_cast<double>(rows * stage->n);
  }
  loop::Kernel kernel{buffers.declared, std::move(chain)};
  add_kernel(std::move(kernel), buffers.plan_buffers, "attention", flops, 0);
  return {};
}

}  // namespace rlx::plan
