// Plan steps of chains: a contraction, its row epilogue, and the contraction that reads its rows;
// or a nest over rows and the contraction that reads them.
#include <algorithm>
#include <set>

#include "plan/plan_builder.hpp"
#include "plan/row_factor.hpp"
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

/// What makes the rows of A as a contraction that has no k: its row epilogue is the nest, over the
/// rows of `second` and the axis that they have in common.
loop::Contraction rows_stage(const loop::Contraction& second, std::int64_t columns) {
  loop::Contraction stage;
  stage.batch_extents = second.batch_extents;
  stage.m_extents = second.m_extents;
  stage.k_extents = {0};
  stage.n = columns;
  stage.a_buffer = stage.b_buffer = second.a_buffer;
  stage.a_batch_strides = stage.b_batch_strides =
      std::vector<std::int64_t>(second.batch_extents.size(), 0);
  stage.a_m_strides = std::vector<std::int64_t>(second.m_extents.size(), 0);
  stage.a_k_strides = stage.b_k_strides = {0};
  stage.accumulator = second.accumulator;
  loop::Nest& rows = stage.row_epilogue;
  rows.extents = stage.batch_extents;
  rows.extents.insert(rows.extents.end(), stage.m_extents.begin(), stage.m_extents.end());
  rows.parallel_dims = static_cast<std::int32_t>(rows.extents.size());
  rows.extents.push_back(columns);
  return stage;
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
  // A nest keeps what it makes the rows from in registers or in scratch of its own.
  if (first.kind == Region::Kind::nest) return add(rows);
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
  if (const auto* conv = root.op.as<op::Conv>()) {
    describe_conv(root, *conv, region, stage, domain, buffers);
  } else {
    describe_dot(root, *root.op.as<op::DotGeneral>(), region, stage, domain, buffers);
  }
  add_epilogue(region, domain, stage, buffers);
  return stage;
}

Status PlanBuilder::add_chain(const Region& region) {
  const Region& first = region.before[0];
  const bool has_products = first.kind == Region::Kind::contraction;
  place_rows(first, rows_of(region));
  KernelBuffers buffers(plan_.buffers);
  loop::Chain chain;
  if (has_products) chain.first = chain_stage(first, buffers);
  chain.second = chain_stage(region, buffers);
  if (!has_products) {
    chain.first = rows_stage(chain.second, first.dims.back());
    loop::Nest& rows = chain.first.row_epilogue;
    const std::size_t missing = rows.extents.size() - first.dims.size();  // of no free axis of A
    const MapStrides map = [missing](const std::vector<std::int64_t>& strides) {
      std::vector<std::int64_t> mapped(missing, 0);
      mapped.insert(mapped.end(), strides.begin(), strides.end());
      return mapped;
    };
    ExpressionBuilder expression(
        graph_, first.dims, map, [this](ValueId id) { return locate_for_lanes(id); }, buffers,
        rows.nodes, rows.accesses);
    expression.recompute(first.recomputed);
    for (const std::int32_t index : first.nodes) expression.add(index);
    for (const std::int32_t index : first.nodes) {
      if (is_stored(index)) rows.stores.push_back(expression.store({index, 0}));
    }
    if (expression.uses_indices()) rows.error_buffer = buffers.number(error_buffer(), true);
  }
  worker_rows_.clear();
  if (const auto factor = find_row_factor(chain, options_.fusion.exact)) {
    const std::int64_t rows =
        element_count(chain.second.batch_extents) * element_count(chain.second.m_extents);
    const std::int32_t factors = add_buffer({DType::f32, {rows}}, Storage::worker, -1,
                                            "factors_" + std::to_string(rows_of(region).node));
    take_out_row_factor(chain, *factor, buffers.number(factors, true));
  }
  double flops = 0;
  for (const loop::Contraction* stage : {&chain.first, &chain.second}) {
    const std::int64_t rows = element_count(stage->batch_extents) * element_count(stage->m_extents);
    flops += 2 * points_of(stage->k_extents) * static_cast<double>(rows * stage->n);
  }
  loop::Kernel kernel{buffers.declared, std::move(chain)};
  const bool conv = graph_.nodes()[static_cast<std::size_t>(region.root)].op.is<op::Conv>();
  add_kernel(std::move(kernel), buffers.plan_buffers,
             has_products ? "attention"
             : conv       ? "conv"
                          : "matmul",
             flops, 0);
  return {};
}

}  // namespace rlx::plan
