// Plan steps of grouped matmuls: kernels for a few rows, and where the matrices of experts lie.
#include <algorithm>

#include "base/error.hpp"
#include "codegen/machine.hpp"
#include "cost/kernel_cost.hpp"
#include "graph/op_info.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/experts.hpp"

namespace rlx::plan {
namespace {

/// The product of `rows` dense rows with one matrix; `c` says how the matrix lies.
loop::Kernel kernel_of(loop::Contraction c, const GroupedPlan& grouped, DType dtype,
                       std::int64_t rows, std::int64_t matrix_elements) {
  c.m_extents = {rows};
  loop::Kernel kernel;
  kernel.buffers = {{.dtype = dtype, .elements = rows * grouped.depth},
                    {.dtype = dtype, .elements = matrix_elements},
                    {.dtype = dtype, .elements = rows * grouped.columns, .written = true}};
  kernel.body = std::move(c);
  return kernel;
}

}  // namespace

bool suits_grouped_kernels(const Graph& graph, const Node& node) {
  if (!node.op.is<op::GroupedMatmul>()) return false;
  const DType dtype = node.results[0].dtype;
  return (dtype == f32 || dtype == f64 || dtype == f16 || dtype == bf16) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return graph.type(id).elements() > 0; });
}

void PlanBuilder::place_matrices(ValueId w, GroupedPlan& grouped, loop::Contraction& c) {
  if (!regions_.weight_only[static_cast<std::size_t>(w.node)]) {
    grouped.w = dense_buffer(w);
    c.b_k_strides = {grouped.columns};
    return;
  }
  const View& view = placement_.of(w);
  const DType dtype = graph_.type(w).dtype;
  WeightPlan weight{.view = view, .dtype = dtype, .packed = true};
  weight.layout =
      codegen::choose_packed_layout(grouped.columns, grouped.depth, dtype, options_.target);
  weight.batch_extents = {grouped.experts};
  weight.batch_strides = {view.strides[0]};
  weight.k_extents = {grouped.depth};
  weight.k_strides = {view.strides[1]};
  weight.n = grouped.columns;
  weight.n_stride = view.strides[2];
  weight.bytes = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, grouped.experts));
  weight.experts = grouped.experts;
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(weight.layout.panel_width);
  grouped.weight = static_cast<std::int32_t>(plan_.weights.size());
  const Type type{dtype, {weight.layout.elements() * grouped.experts}};
  grouped.w = add_weight(std::move(weight), type);
}

void PlanBuilder::set_layer(ValueId chosen, GroupedPlan& grouped) {
  const auto [layer, is_new] = layer_of_.try_emplace(placement_.of(chosen).base, plan_.layers);
  if (is_new) ++plan_.layers;
  grouped.layer = layer->second;
  grouped.is_first = is_new;
}

Status PlanBuilder::add_grouped(const Region& region) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]),
             &chosen = graph_.type(node.inputs[2]);
  GroupedPlan grouped{.experts = w.dims()[0],
                      .rows = chosen.elements(),
                      .depth = w.dims()[1],
                      .columns = w.dims()[2]};
  if (x.rank() == chosen.rank()) grouped.rows_per_source = chosen.dims().back();
  grouped.x = dense_buffer(node.inputs[0]);
  grouped.chosen = dense_buffer(node.inputs[2]);
  grouped.result = buffer_of({region.root, 0});
  set_layer(node.inputs[2], grouped);

  loop::Contraction c;
  c.a_m_strides = {grouped.depth};
  c.k_extents = {grouped.depth};
  c.a_k_strides = {1};
  c.n = grouped.columns;
  c.b_buffer = 1;
  c.accumulator = x.dtype == f64 ? f64 : f32;
  c.in_order = true;
  place_matrices(node.inputs[1], grouped, c);
  ScalarBuilder builder(c.nodes);
  const ScalarValue sum = builder.add({.op = ScalarOp::accumulator, .dtype = c.accumulator});
  const ScalarValue stored = builder.cast(sum, x.dtype);
  c.stores.push_back({{.buffer = 2, .strides = {grouped.columns, 1}}, stored.id()});

  const std::int64_t matrix_elements =
      grouped.weight >= 0
          ? plan_.weights[static_cast<std::size_t>(grouped.weight)].layout.elements()
          : grouped.depth * grouped.columns;
  for (const std::int64_t rows : {6, 4, 2, 1}) {
    if (rows > grouped.rows) continue;
    loop::Kernel kernel = kernel_of(c, grouped, x.dtype, rows, matrix_elements);
    const cost::ContractionCut cut = cost::cut_of(kernel, codegen::machine_of(options_.target));
    // Rows of one register block: then the work items are the blocks of columns.
    if (cut.row_blocks > 1) continue;
    grouped.column_blocks = cut.column_blocks;
    grouped.block_columns = cut.block_columns;
    grouped.heights.push_back({rows, static_cast<std::int32_t>(plan_.kernels.size())});
    plan_.kernels.push_back(std::move(kernel));
  }
  Step step{.kind = Step::Kind::experts,
            .index = static_cast<std::int32_t>(plan_.grouped.size()),
            .buffers = {grouped.x, grouped.w, grouped.chosen, grouped.result},
            .conditions = conditions(region),
            .name = "grouped_matmul",
            .region = region_text(region)};
  const std::vector<const Type*> types{&x, &w, &chosen};
  const OpCost cost = node.op.info().cost(node.op.attributes(), types, node.results);
  step.flops = cost.flops;
  step.bytes = cost.bytes;
  plan_.grouped.push_back(std::move(grouped));
  plan_.steps.push_back(std::move(step));
  return {};
}

}  // namespace rlx::plan
