// Plan steps of matmuls and convolutions: A, B and the epilogue behind them.
#include <algorithm>
#include <set>

#include "codegen/machine.hpp"
#include "graph/narrow_products.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

namespace {

/// The same product with no axis counted from the end.
op::DotGeneral counted_from_front(op::DotGeneral dot, const Node& node, const Graph& graph) {
  const auto normalise = [&](Axes& axes, std::size_t operand) {
    for (std::int64_t& axis : axes)
      if (axis < 0) axis += graph.type(node.inputs[operand]).rank();
  };
  normalise(dot.a_batch, 0), normalise(dot.a_contract, 0);
  normalise(dot.b_batch, 1), normalise(dot.b_contract, 1);
  return dot;
}

}  // namespace

Status PlanBuilder::add_contraction(const Region& region) {
  if (!region.before.empty()) return add_chain(region);
  if (add_weight_rows(region)) return {};
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  KernelBuffers buffers(plan_.buffers);
  loop::Contraction contraction;
  Domain domain;
  if (const auto* conv = root.op.as<op::Conv>()) {
    describe_conv(root, *conv, region, contraction, domain, buffers);
  } else {
    describe_dot(root, *root.op.as<op::DotGeneral>(), region, contraction, domain, buffers);
  }
  add_epilogue(region, domain, contraction, buffers);
  double flops =
      2 * points_of(contraction.k_extents) * static_cast<double>(element_count(region.dims));
  loop::Kernel kernel{{}, std::move(contraction)};
  kernel.buffers = buffers.declared;
  add_kernel(std::move(kernel), buffers.plan_buffers, root.op.is<op::Conv>() ? "conv" : "matmul",
             flops, 0);
  share_points(operand_read(graph_, regions_, root.inputs[0]));
  return {};
}

void PlanBuilder::set_domain(const loop::Contraction& c, Domain& domain) {
  domain.extents = c.batch_extents;
  domain.extents.insert(domain.extents.end(), c.m_extents.begin(), c.m_extents.end());
  domain.extents.push_back(c.n);
  domain.parallel_dims = static_cast<std::int32_t>(domain.extents.size()) - 1;
}

void PlanBuilder::describe_dot(const Node& root, const op::DotGeneral& as_written,
                               const Region& region, loop::Contraction& c, Domain& domain,
                               KernelBuffers& buffers) {
  const op::DotGeneral dot = counted_from_front(as_written, root, graph_);
  const Located a = locate(operand_read(graph_, regions_, root.inputs[0]));
  const auto in = [](const Axes& axes, std::size_t axis) {
    return std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) != axes.end();
  };
  const Operand stored = b_of(root);
  const View& b = stored.view;
  c.a_buffer = buffers.number(a.buffer, false);
  c.a_offset = a.view.offset;
  for (std::size_t i = 0; i < dot.a_batch.size(); ++i) {
    const auto axis = static_cast<std::size_t>(dot.a_batch[i]);
    c.batch_extents.push_back(a.view.dims[axis]);
    c.a_batch_strides.push_back(a.view.strides[axis]);
    c.b_batch_strides.push_back(b.strides[static_cast<std::size_t>(dot.b_batch[i])]);
  }
  for (std::size_t axis = 0; axis < a.view.dims.size(); ++axis) {
    if (in(dot.a_batch, axis) || in(dot.a_contract, axis)) continue;
    c.m_extents.push_back(a.view.dims[axis]);
    c.a_m_strides.push_back(a.view.strides[axis]);
  }
  if (c.m_extents.empty()) c.m_extents = {1}, c.a_m_strides = {0};
  for (std::size_t i = 0; i < dot.a_contract.size(); ++i) {
    const auto axis = static_cast<std::size_t>(dot.a_contract[i]);
    c.k_extents.push_back(a.view.dims[axis]);
    c.a_k_strides.push_back(a.view.strides[axis]);
    c.b_k_strides.push_back(b.strides[static_cast<std::size_t>(dot.b_contract[i])]);
  }
  if (c.k_extents.empty()) c.k_extents = {1}, c.a_k_strides = {0}, c.b_k_strides = {0};
  for (std::size_t axis = 0; axis < b.dims.size(); ++axis) {
    if (in(dot.b_batch, axis) || in(dot.b_contract, axis)) continue;
    c.n = b.dims[axis];
    c.b_n_stride = b.strides[axis];
  }
  const auto bytes = byte_weight(graph_, root, regions_.weight_only);
  if (bytes) {
    set_bytes(*bytes, c, buffers);
  } else {
    set_b(root.inputs[1], stored, c, buffers);
  }
  set_domain(c, domain);
  const bool scalar_row = region.dims.size() + 1 == domain.extents.size();  // no free axis of a
  const std::size_t batches = c.batch_extents.size();
  domain.map = [scalar_row, batches](const std::vector<std::int64_t>& strides) {
    std::vector<std::int64_t> mapped = strides;
    if (scalar_row) mapped.insert(mapped.begin() + static_cast<std::ptrdiff_t>(batches), 0);
    return mapped;
  };
}

PlanBuilder::Operand PlanBuilder::b_of(const Node& product) const {
  const ValueId value = product.inputs[1];
  const View& seen = placement_.of(value);
  Operand operand{seen, graph_.type(seen.base).dtype};
  if (!regions_.weight_only[static_cast<std::size_t>(value.node)]) return operand;
  // cast(cast(w, narrow), f32), or the inner one alone where the product reads through the outer.
  const auto is_cast = [&](ValueId id, bool to_f32) {
    const Node& node = graph_.node(id);
    return node.op.is<op::Cast>() && (node.results[0].dtype == f32) == to_f32;
  };
  const auto below = [&](ValueId source, DType dtype) {
    const View& before = placement_.of(source);
    if (seen.offset == 0 && seen.is_dense() && seen.dims == before.dims)
      return Operand{before, dtype};
    if (!before.is_dense()) return operand;
    return Operand{{before.base, before.offset + seen.offset, seen.dims, seen.strides}, dtype};
  };
  ValueId inner = seen.base;
  if (is_cast(inner, true)) inner = graph_.node(inner).inputs[0];
  if (!is_cast(inner, false)) {
    const DType stored = graph_.type(inner).dtype;
    if (inner == seen.base || (stored != f16 && stored != bf16)) return operand;
    return below(inner, waits_for_b(graph_, product) ? stored : f32);
  }
  const DType dtype = graph_.type(inner).dtype;
  const ValueId source = graph_.node(inner).inputs[0];
  const DType from = graph_.type(source).dtype;
  const bool rounds = from == f32 && (dtype == f16 || dtype == bf16);
  const bool widens = (from == u8 || from == i8) && dtype == i16;
  if (!rounds && !widens) return operand;
  return below(source, dtype);
}

std::int64_t PlanBuilder::k_group(const loop::Contraction& c, DType a, DType b) const {
  const codegen::Machine machine = codegen::machine_of(options_.target);
  const bool pairs = a == bf16 && b == bf16 && machine.bf16_dot;
  const bool quads = a == u8 && b == i8 && machine.vnni;
  const bool word_pairs = codegen::pairs_as_words(a, b) && !quads;
  // A run of one k in each of several taps would fill its groups with zeros.
  if ((quads || word_pairs) && !c.k_extents.empty() && c.k_extents.back() == 1) return 1;
  constexpr std::int64_t longest_guarded_run = 16384;  // what a line of zeros stands in for
  if (!(pairs || quads || word_pairs) || c.k_extents.empty() || c.a_k_strides.back() != 1) return 1;
  const std::size_t inner = c.batch_extents.size() + c.m_extents.size() + c.k_extents.size() - 1;
  for (const loop::Guard& guard : c.a_guards) {
    if (guard.coefficients[inner] != 0 || element_count(c.k_extents) > longest_guarded_run)
      return 1;
  }
  return quads ? 4 : 2;
}

void PlanBuilder::set_b(ValueId value, const Operand& b, loop::Contraction& c,
                        KernelBuffers& buffers) {
  const DType a_dtype = buffers.declared[static_cast<std::size_t>(c.a_buffer)].dtype;
  const DType wide = graph_.type(value).dtype == f64 ? f64 : f32;
  c.accumulator = codegen::pairs_as_words(a_dtype, b.dtype) ? i32 : wide;
  if (!regions_.weight_only[static_cast<std::size_t>(value.node)]) {
    c.b_buffer = buffers.number(buffer_of(b.view.base), false);
    c.b_offset = b.view.offset;
    return;
  }
  WeightPlan weight{.view = b.view, .dtype = b.dtype, .packed = true};
  if (const DType from = graph_.type(b.view.base).dtype; from != b.dtype) weight.from = from;
  weight.layout = codegen::choose_packed_layout(c.n, element_count(c.k_extents), b.dtype,
                                                options_.target, element_count(c.m_extents));
  weight.layout.group = k_group(c, a_dtype, b.dtype);
  weight.layout.inner = c.k_extents.empty() ? 1 : c.k_extents.back();
  c.k_group = static_cast<std::int32_t>(weight.layout.group);
  for (std::size_t i = 0; i < c.batch_extents.size(); ++i) {
    weight.batch_extents.push_back(c.b_batch_strides[i] == 0 ? 1 : c.batch_extents[i]);
    weight.batch_strides.push_back(c.b_batch_strides[i]);
  }
  weight.k_extents = c.k_extents;
  weight.k_strides = c.b_k_strides;
  weight.n = c.n;
  weight.n_stride = c.b_n_stride;
  const std::int64_t matrices = element_count(weight.batch_extents);
  weight.bytes = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, matrices));
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(weight.layout.panel_width);
  std::int64_t matrix_stride = 1;
  for (std::size_t i = c.batch_extents.size(); i-- > 0;) {
    const bool shared = c.b_batch_strides[i] == 0;
    c.b_batch_strides[i] = shared ? 0 : matrix_stride;
    matrix_stride *= weight.batch_extents[i];
  }
  c.b_k_strides.clear();
  c.b_n_stride = 1;
  c.b_offset = 0;
  const Type type{b.dtype, {weight.layout.elements() * matrices}};
  c.b_buffer = buffers.number(add_weight(std::move(weight), type), false);
}

std::int32_t PlanBuilder::packed_matrix(View view, DType dtype, bool nibbles, std::int64_t k,
                                        std::int64_t k_stride, std::int64_t n_stride,
                                        const loop::Contraction& c) {
  WeightPlan weight{.view = std::move(view), .dtype = dtype, .packed = true};
  weight.layout = codegen::choose_packed_layout(c.n, k, dtype, options_.target);
  weight.layout.nibbles = nibbles;
  weight.k_extents = {k};
  weight.k_strides = {k_stride};
  weight.n = c.n;
  weight.n_stride = n_stride;
  weight.bytes = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, 1));
  const Type type{dtype, {weight.layout.elements() / (nibbles ? 2 : 1)}};
  return add_weight(std::move(weight), type);
}

void PlanBuilder::set_bytes(const ByteWeight& b, loop::Contraction& c, KernelBuffers& buffers) {
  const auto dense = [&](ValueId id) { return View::dense(id, graph_.type(id).dims()); };
  const auto by_block = [&](ValueId id, DType dtype) {
    return buffers.number(
        packed_matrix(dense(id), dtype, false, b.blocks, b.block_step, b.column_step, c), false);
  };
  const DType stored = graph_.type(b.numbers).dtype;
  const DType dtype = is_unsigned_integer(stored) ? u8 : i8;
  const std::int64_t depth = c.k_extents[0], block = depth / b.blocks;
  c.b_nibbles = integer_bits(stored) == 4 && block % 2 == 0;
  c.b_buffer = buffers.number(
      packed_matrix(dense(b.numbers), dtype, c.b_nibbles, depth, c.b_k_strides[0], c.b_n_stride, c),
      false);
  c.b_scale_buffer = by_block(b.scale, f32);
  if (b.zero.node >= 0) c.b_zero_buffer = by_block(b.zero, dtype);
  c.b_blocks = b.blocks;
  if (b.blocks > 1) {
    c.k_extents = {b.blocks, block};
    c.a_k_strides = {c.a_k_strides[0] * block, c.a_k_strides[0]};
  }
  c.b_packed = true;
  c.panel_width = static_cast<std::int32_t>(
      codegen::choose_packed_layout(c.n, depth, dtype, options_.target).panel_width);
  c.b_k_strides.clear();
  c.b_n_stride = 1;
  c.b_offset = 0;
}

namespace {

/// One column of C whose products run along k: B is kept dense in the order of k then.
bool suits_products(const View& x, std::size_t spatial, const loop::Contraction& c) {
  constexpr std::int64_t shortest_run = 16, most_elements = 48 * 1024;
  if (c.n != 1 || c.m_extents.back() < shortest_run) return false;
  const std::int64_t channels = c.k_extents[spatial], taps = c.k_extents[spatial - 1];
  const bool lines = !c.a_guards.empty();
  std::int64_t run = channels == 1 ? taps : channels;
  if (c.a_k_strides[channels == 1 ? spatial - 1 : spatial] != 1) return false;
  if (channels > 1 && c.a_k_strides[spatial - 1] == channels) run *= taps;
  if (lines && (taps == 1 || x.strides[spatial] != channels)) return false;
  const std::int64_t count = element_count(c.k_extents) / (taps * channels);
  if (count * (x.dims[spatial] + 2 * taps) * channels > most_elements && lines) return false;
  return run >= shortest_run;
}

/// Few planes of an image (colours of a first layer): k runs over channels before the taps of
/// a row, so that these are one run of a line.
void order_planes(const View& x, std::size_t spatial, loop::Contraction& c) {
  constexpr std::int64_t most_elements = 48 * 1024;  // lines that a worker keeps at hand
  const std::int64_t column_stride = std::abs(x.strides[spatial]);
  const std::int64_t channels = c.k_extents.back(), taps = c.k_extents[spatial - 1];
  if (column_stride != 1 || x.strides.back() <= x.dims[spatial] || channels == 1) return;
  if (taps == 1 || c.m_extents.back() < 8) return;
  const std::int64_t lines = element_count(c.k_extents) / taps;
  if (lines * (x.dims[spatial] + 2 * taps) > most_elements) return;
  const auto to_place = [](std::vector<std::int64_t>& list, std::size_t first) {
    const auto begin = list.begin() + static_cast<std::ptrdiff_t>(first);
    std::rotate(begin, list.end() - 1, list.end());
  };
  const std::size_t row = spatial - 1;  // of the taps in a row
  to_place(c.k_extents, row);
  to_place(c.a_k_strides, row);
  to_place(c.b_k_strides, row);
  for (loop::Guard& guard : c.a_guards) to_place(guard.coefficients, c.m_extents.size() + row);
}

}  // namespace

void PlanBuilder::set_column(const View& w, loop::Contraction& c, KernelBuffers& buffers) {
  View column{w.base, w.offset, c.k_extents, c.b_k_strides};
  const Type type{f32, {element_count(c.k_extents)}};
  c.b_k_strides = View::dense(w.base, c.k_extents).strides;
  c.b_n_stride = 1;
  c.b_offset = 0;
  c.b_buffer = buffers.number(
      add_weight({.view = std::move(column), .dtype = f32, .bytes = type.bytes()}, type), false);
}

void PlanBuilder::describe_conv(const Node& root, const op::Conv& conv, const Region& region,
                                loop::Contraction& c, Domain& domain, KernelBuffers& buffers) {
  const Located x = locate(operand_read(graph_, regions_, root.inputs[0]));
  const Operand stored = b_of(root);
  const View& w = stored.view;
  const std::size_t spatial = region.dims.size() - 2;
  const Axes strides = filled(conv.strides, spatial, 1), pads = filled(conv.pad_low, spatial, 0),
             dilations = filled(conv.dilations, spatial, 1);
  const std::int64_t channels = w.dims[spatial], columns = w.dims[spatial + 1] / conv.groups;
  c.a_buffer = buffers.number(x.buffer, false);
  c.a_offset = x.view.offset;
  if (conv.groups > 1) {
    c.batch_extents = {conv.groups};
    c.a_batch_strides = {x.view.strides.back() * channels};
    c.b_batch_strides = {w.strides.back() * columns};
  }
  const std::size_t batches = c.batch_extents.size();
  c.m_extents.assign(region.dims.begin(), region.dims.end() - 1);
  c.a_m_strides = {x.view.strides[0]};
  for (std::size_t i = 0; i < spatial; ++i) {
    c.a_m_strides.push_back(x.view.strides[i + 1] * strides[i]);
    c.k_extents.push_back(w.dims[i]);
    c.a_k_strides.push_back(x.view.strides[i + 1] * dilations[i]);
    c.b_k_strides.push_back(w.strides[i]);
    c.a_offset -= pads[i] * x.view.strides[i + 1];
  }
  c.k_extents.push_back(channels);
  c.a_k_strides.push_back(x.view.strides.back());
  c.b_k_strides.push_back(w.strides[spatial]);
  c.n = columns;
  c.b_n_stride = w.strides.back();
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t last =
        (region.dims[i + 1] - 1) * strides[i] + (w.dims[i] - 1) * dilations[i] - pads[i];
    if (pads[i] == 0 && last < x.view.dims[i + 1]) continue;
    loop::Guard guard{
        -pads[i], x.view.dims[i + 1],
        std::vector<std::int64_t>(batches + c.m_extents.size() + c.k_extents.size(), 0)};
    guard.coefficients[batches + 1 + i] = strides[i];
    guard.coefficients[batches + c.m_extents.size() + i] = dilations[i];
    c.a_guards.push_back(std::move(guard));
  }
  if (conv.groups == 1) order_planes(x.view, spatial, c);
  if (conv.groups == 1 && regions_.weight_only[static_cast<std::size_t>(root.inputs[1].node)] &&
      stored.dtype == f32 && suits_products(x.view, spatial, c)) {
    set_column(w, c, buffers);
  } else {
    set_b(root.inputs[1], stored, c, buffers);
  }
  set_domain(c, domain);
  const bool grouped = conv.groups > 1;
  domain.map = [grouped, columns](const std::vector<std::int64_t>& axes) {
    std::vector<std::int64_t> mapped = axes;
    if (grouped) mapped.insert(mapped.begin(), axes.back() * columns);
    return mapped;
  };
}

void PlanBuilder::add_epilogue(const Region& region, const Domain& domain, loop::Contraction& c,
                               KernelBuffers& buffers) {
  const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const Locate locate_value = [this](ValueId id) { return locate_for_lanes(id); };
  ExpressionBuilder tile(graph_, region.dims, domain.map, locate_value, buffers, c.nodes,
                         c.accesses);
  tile.recompute(region.recomputed);
  const ScalarValue sum = tile.builder().add({.op = ScalarOp::accumulator, .dtype = c.accumulator});
  tile.set({region.root, 0}, tile.builder().cast(sum, root.results[0].dtype));
  std::set<ValueId> in_rows;
  std::vector<std::int32_t> row_nodes;
  for (const std::int32_t index : region.nodes) {
    if (index == region.root) continue;
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const bool reduces = node.op.is<op::Reduce>() || node.op.is<op::ArgReduce>();
    const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueId id) { return in_rows.contains(id); });
    if (reduces || follows) {
      in_rows.insert({index, 0});
      row_nodes.push_back(index);
    } else {
      tile.add(index);
    }
  }
  std::set<ValueId> read_by_rows;
  for (const std::int32_t index : row_nodes) {
    for (const ValueId id : graph_.nodes()[static_cast<std::size_t>(index)].inputs) {
      const bool is_own =
          std::find(region.nodes.begin(), region.nodes.end(), id.node) != region.nodes.end();
      if (is_own && tile.has(id) && !in_rows.contains(id)) read_by_rows.insert(id);
    }
  }
  for (const std::int32_t index : region.nodes) {
    const ValueId id{index, 0};
    if (!in_rows.contains(id) && (is_stored(index) || read_by_rows.contains(id)))
      c.stores.push_back(tile.store(id));
  }
  bool uses_indices = tile.uses_indices();
  if (!row_nodes.empty()) {
    loop::Nest& rows = c.row_epilogue;
    rows.extents = domain.extents;
    rows.parallel_dims = domain.parallel_dims;
    ExpressionBuilder row(graph_, region.dims, domain.map, locate_value, buffers, rows.nodes,
                          rows.accesses);
    row.recompute(region.recomputed);
    for (const std::int32_t index : row_nodes) row.add(index);
    for (const std::int32_t index : row_nodes) {
      if (is_stored(index)) rows.stores.push_back(row.store({index, 0}));
    }
    uses_indices = uses_indices || row.uses_indices();
  }
  if (uses_indices)
    c.row_epilogue.error_buffer = c.error_buffer = buffers.number(error_buffer(), true);
}

}  // namespace rlx::plan
