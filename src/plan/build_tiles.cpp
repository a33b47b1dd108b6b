// Plan steps of transforms of tiles: Winograd's, and those of lines.
#include <numeric>

#include "codegen/machine.hpp"
#include "graph/winograd.hpp"
#include "plan/plan_builder.hpp"
#include "plan/transforms.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

/// So many columns of tiles that points [n * n, tiles, C] and products [n * n, tiles, K] of a strip
/// stay in a core's L2 beside the weights; not so few that products run over short rows.
std::int64_t columns_of_strip(std::int64_t columns, const Dims& points, const Dims& products,
                              std::int64_t l2_bytes) {
  constexpr std::int64_t fewest = 14, element = sizeof(float);
  const std::int64_t planes = points[0] * element, tile = planes * (points[2] + products[2]),
                     weights = planes * points[2] * products[2],
                     most = std::max((l2_bytes * 3 / 5 - weights) / tile, fewest),
                     strips = (columns + most - 1) / most;
  return (columns + strips - 1) / strips;
}

/// Has the first half of the work items make the first half of the stores of the first of two
/// passes, and of the lines of the second; the other half the others. Not of an odd number of them,
/// and not where they do so already, for another reader.
void share_out_lines(loop::Strips& passes) {
  auto& first = std::get<loop::Nest>(passes.stages[0]);
  auto& nest = std::get<loop::Nest>(passes.stages[1]);
  const auto lines = static_cast<std::size_t>(nest.lead);
  if (first.parts > 1 || nest.extents[lines] % 2 != 0) return;
  first.parts = 2;
  nest.extents[lines] /= 2;
  const std::int64_t half = nest.extents[lines];
  const auto halve = [&](std::vector<std::int64_t>& strides) {
    strides.insert(strides.begin(), strides[lines] * half);
  };
  for (loop::Access& access : nest.accesses) halve(access.strides);
  for (loop::Store& store : nest.stores) halve(store.access.strides);
  nest.extents.insert(nest.extents.begin(), 2);
  ++nest.parallel_dims;
  ++nest.lead;
}

}  // namespace

void PlanBuilder::add_passes(const Region& region, const Located& source,
                             std::int64_t strip_columns, KernelBuffers& buffers,
                             loop::Strips& strips) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const Transform transform =
      transform_of(root.op, source.view.dims, region.dims, strip_columns, options_);
  Located halves;
  if (transform.passes.size() > 1)
    halves = worker_planes(transform.halves, root.results[0].dtype,
                           "halves_" + std::to_string(region.root));
  for (const Pass& pass : transform.passes) {
    const bool is_first = &pass == &transform.passes.front();
    const bool is_last = &pass == &transform.passes.back();
    const Domain domain{pass.extents, static_cast<std::int32_t>(pass.extents.size()), pass.to.over};
    loop::Nest nest;
    nest.extents = domain.extents;
    nest.parallel_dims = domain.parallel_dims;
    nest.lead = transform.lead;
    ExpressionBuilder expression = expression_of(region, domain, buffers, nest);
    const auto access_of = [&](const Side& side, const Located& value, std::size_t k,
                               bool is_written) {
      const Dims place = side.place(k);
      const std::vector<std::int64_t>& strides = value.view.strides;
      return loop::Access{.buffer = buffers.number(value.buffer, is_written),
                          .offset = std::inner_product(place.begin(), place.end(), strides.begin(),
                                                       value.view.offset),
                          .strides = side.over(strides),
                          .indirect = {},
                          .guards = side.guards(k)};
    };
    Pass::Values values;
    for (std::size_t k = 0; k < pass.count; ++k)
      values.push_back(expression.load(access_of(pass.from, is_first ? source : halves, k, false),
                                       root.results[0].dtype));
    values = pass.transform(values);
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!is_last) {
        nest.stores.push_back({access_of(pass.to, halves, k, true), values[k].id()});
        continue;
      }
      expression.move_to(pass.to.place(k), pass.to.guards(k));
      add_behind_root(region, values[k], expression, nest);
    }
    if (expression.uses_indices()) nest.error_buffer = buffers.number(error_buffer(), true);
    strips.stages.emplace_back(std::move(nest));
  }
}

Located PlanBuilder::pixels_or_products(const Region& region) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  return reads_pixels(root.op) ? channels_side_by_side(root.inputs[0]) : locate(root.inputs[0]);
}

void PlanBuilder::add_tiles(const Region& region) {
  if (!region.before.empty()) return add_tile_strips(region);
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const Located source = pixels_or_products(region);
  KernelBuffers buffers(plan_.buffers);
  loop::Strips strips;
  add_passes(region, source, 0, buffers, strips);
  loop::Kernel kernel{buffers.declared, {}};
  if (strips.stages.size() == 1) {
    kernel.body = std::get<loop::Nest>(std::move(strips.stages[0]));
  } else {
    kernel.body = std::move(strips);
  }
  add_kernel(std::move(kernel), buffers.plan_buffers, "tiles", node_cost(graph_, root).flops, 0);
  if (root.op.is<op::WinogradImage>()) images_[region.root] = plan_.kernels.size() - 1;
}

// Rows are whole lines, in which no register lies across two. Planes lie an odd number of lines
// apart: the values of a tile, which are written and read one after the other, then fall into all
// sets of the caches.
Located PlanBuilder::worker_planes(const Dims& dims, DType dtype, std::string name) {
  const std::int64_t line = 64 / static_cast<std::int64_t>(size_of(dtype)),
                     row = (dims[2] + line - 1) / line * line,
                     plane = (dims[1] * row / line | 1) * line;
  const std::int32_t buffer =
      add_buffer({dtype, {dims[0] * plane}}, Storage::worker, -1, std::move(name));
  return {buffer, {{-1, 0}, 0, dims, {plane, row, 1}}};
}

void PlanBuilder::place_strip(ValueId id, std::int64_t columns) {
  const Type& type = graph_.type(id);
  const Dims dims = type.dims();
  Located planes =
      worker_planes({dims[0], columns, dims[2]}, type.dtype, "strip_" + std::to_string(id.node));
  planes.view.base = id;
  planes.view.dims = dims;
  worker_rows_[id] = std::move(planes);
}

void PlanBuilder::add_tile_strips(const Region& region) {
  const Region& image = region.before[0];
  const Region& product = region.before[1];
  const auto root_of = [&](const Region& of) -> const Node& {
    return graph_.nodes()[static_cast<std::size_t>(of.root)];
  };
  const auto& outputs = *root_of(region).op.as<op::WinogradOutputs>();
  const Located pixels = pixels_or_products(image);
  const std::int64_t columns =
      columns_of_strip(outputs.columns, graph_.type({image.root, 0}).dims(),
                       graph_.type({product.root, 0}).dims(), options_.model.cache_bytes[1]);
  worker_rows_.clear();
  for (const Region* stage : {&image, &product}) place_strip({stage->root, 0}, columns);
  KernelBuffers buffers(plan_.buffers);
  loop::Strips strips;
  add_passes(image, pixels, columns, buffers, strips);
  loop::Contraction products;
  Domain domain;
  describe_dot(root_of(product), *root_of(product).op.as<op::DotGeneral>(), product, products,
               domain, buffers);
  products.m_extents = {columns};
  set_domain(products, domain);
  add_epilogue(product, domain, products, buffers);
  strips.stages.emplace_back(std::move(products));
  add_passes(region, pixels_or_products(region), columns, buffers, strips);
  worker_rows_.clear();
  double flops = 0;
  for (const Region* stage : {&image, &product, &region})
    flops += node_cost(graph_, root_of(*stage)).flops;
  loop::Kernel kernel{buffers.declared, std::move(strips)};
  add_kernel(std::move(kernel), buffers.plan_buffers, "winograd", flops, 0);
}

// What a worker makes it then finds in its own caches, and it takes nothing from those of the
// others when the next layer writes there. The pixels, which all read then, are fewer than the
// points. Where no cache of a core holds its points they come from farther away anyway.
void PlanBuilder::share_points(ValueId points) {
  const auto image = images_.find(points.node);
  if (image == images_.end() || options_.threads == 1) return;
  const auto bytes = static_cast<std::int64_t>(graph_.type(points).bytes());
  if (bytes > options_.threads * options_.model.cache_bytes[1]) return;
  const codegen::Machine machine = codegen::machine_of(options_.target);
  if (!cost::cut_of(plan_.kernels.back(), machine).by_batch) return;
  auto& body = plan_.kernels[image->second].body;
  if (auto* nest = std::get_if<loop::Nest>(&body)) nest->parts = 2;
  if (auto* passes = std::get_if<loop::Strips>(&body)) share_out_lines(*passes);
}

}  // namespace rlx::plan
