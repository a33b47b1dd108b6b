// Builds the plan: one step for each region in order, buffers for what must be stored, weights in
// their layouts.
#include "plan/build.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "plan/build_recurrence.hpp"
#include "plan/domain.hpp"
#include "plan/kernel_builder.hpp"
#include "plan/layout_arena.hpp"
#include "plan/placement.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

class PlanBuilder {
 public:
  PlanBuilder(const FlatGraph& flat, const BuildOptions& options)
      : flat_(flat),
        graph_(flat.graph),
        options_(options),
        regions_(form_regions(flat, options.fusion)),
        placement_(flat, regions_) {}

  Result<Plan> run() {
    collect_users();
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) add_leaf(static_cast<std::int32_t>(i));
    for (const Region& region : regions_.list) {
      current_ = &region;
      switch (region.kind) {
        case Region::Kind::nest: RLX_TRY(add_nest(region)); break;
        case Region::Kind::window: RLX_TRY(add_window(region)); break;
        case Region::Kind::contraction: RLX_TRY(add_contraction(region)); break;
        case Region::Kind::recurrence: add_recurrence(region); break;
        case Region::Kind::concat: add_concat(region); break;
        case Region::Kind::host: RLX_TRY(add_host(region)); break;
      }
    }
    current_ = nullptr;
    add_outputs();
    lay_out_arena(plan_);
    return std::move(plan_);
  }

 private:
  // ---- values and buffers ---------------------------------------------------------------------

  void collect_users() {
    read_outside_.assign(graph_.nodes().size(), false);
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const std::int32_t own = regions_.region_of[i];
      for (const ValueId id : graph_.nodes()[i].inputs) {
        if (id.node < 0) continue;
        const auto source = static_cast<std::size_t>(id.node);
        if (regions_.region_of[source] != own || own < 0) read_outside_[source] = true;
      }
      for (const FlatGraph::Predicate& predicate : flat_.predicates[i])
        read_outside_[static_cast<std::size_t>(predicate.value.node)] = true;
    }
    for (const GraphOutput& output : graph_.outputs())
      read_outside_[static_cast<std::size_t>(output.value.node)] = true;
  }

  void add_leaf(std::int32_t index) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    if (const auto* input = node.op.as<op::Input>()) {
      const std::int32_t buffer =
          add_buffer(node.results[0], Storage::input,
                     static_cast<std::int32_t>(plan_.inputs.size()), input->name);
      plan_.inputs.push_back(buffer);
      buffer_of_[{index, 0}] = buffer;
    }
    if (const auto* state = node.op.as<op::State>()) {
      buffer_of_[{index, 0}] =
          add_buffer(node.results[0], Storage::state,
                     static_cast<std::int32_t>(plan_.states.size()), state->name);
      plan_.states.push_back(*state);
    }
  }

  std::int32_t add_buffer(const Type& type, Storage storage, std::int32_t index, std::string name) {
    plan_.buffers.push_back({.dtype = type.dtype,
                             .elements = type.elements(),
                             .storage = storage,
                             .index = index,
                             .name = std::move(name)});
    return static_cast<std::int32_t>(plan_.buffers.size() - 1);
  }

  /// The buffer that holds the base of a view; made on first use.
  std::int32_t buffer_of(ValueId base) {
    const auto known = buffer_of_.find(base);
    if (known != buffer_of_.end()) return known->second;
    const Type& type = graph_.type(base);
    if (regions_.weight_only[static_cast<std::size_t>(base.node)]) {
      WeightPlan weight{
          .view = View::dense(base, type.dims()), .dtype = type.dtype, .bytes = type.bytes()};
      return buffer_of_[base] = add_weight(std::move(weight), type);
    }
    const Node& node = graph_.node(base);
    return buffer_of_[base] =
               add_buffer(type, Storage::arena, -1,
                          std::string(node.op.name()) + "_" + std::to_string(base.node));
  }

  std::int32_t add_weight(WeightPlan weight, const Type& type) {
    const std::int32_t buffer =
        add_buffer(type, Storage::weight, static_cast<std::int32_t>(plan_.weights.size()),
                   "weight_" + std::to_string(weight.view.base.node));
    plan_.weights.push_back(std::move(weight));
    return buffer;
  }

  Located locate(ValueId id) {
    const View& view = placement_.of(id);
    return {buffer_of(view.base), view};
  }

  std::int32_t error_buffer() {
    if (plan_.error_buffer < 0)
      plan_.error_buffer = add_buffer({i32, {1}}, Storage::arena, -1, "error");
    return plan_.error_buffer;
  }

  // ---- steps ------------------------------------------------------------------------------------

  std::string region_text(const Region& region) const {
    std::string text;
    for (const std::int32_t index : region.nodes) {
      if (!text.empty()) text += '+';
      text += graph_.nodes()[static_cast<std::size_t>(index)].op.name();
    }
    return text;
  }

  std::vector<Condition> conditions(const Region& region) {
    std::vector<Condition> list;
    for (const FlatGraph::Predicate& predicate :
         flat_.predicates[static_cast<std::size_t>(region.root)]) {
      list.push_back({locate(predicate.value).buffer, predicate.holds_if});
    }
    return list;
  }

  /// Threads that pay: a few microseconds of work each at least. The cost model decides here in a
  /// later issue.
  std::int32_t threads_for(double flops, double bytes) const {
    constexpr double flops_per_us = 6e4, bytes_per_us = 1.5e4, worthwhile_us = 8;
    const double microseconds = std::max(flops / flops_per_us, bytes / bytes_per_us);
    return microseconds < worthwhile_us ? 1 : options_.threads;
  }

  /// A map touches no more elements of a buffer than it has points; 0 points: all of the buffer.
  static double bytes_touched(const BufferPlan& buffer, double points) {
    const auto bytes = static_cast<double>(buffer.bytes());
    return points == 0 ? bytes
                       : std::min(bytes, points * static_cast<double>(size_of(buffer.dtype)));
  }

  /// `points`: of the domain of a nest, 0 for a contraction. `work`: scalar operations besides
  /// `flops`.
  void add_kernel(loop::Kernel kernel, std::vector<std::int32_t> buffers, std::string name,
                  double flops, double points, double work) {
    Step step{.kind = Step::Kind::kernel,
              .index = static_cast<std::int32_t>(plan_.kernels.size()),
              .buffers = std::move(buffers)};
    for (const std::int32_t buffer : step.buffers)
      step.bytes += bytes_touched(plan_.buffers[static_cast<std::size_t>(buffer)], points);
    step.flops = flops;
    step.threads = threads_for(flops + work, step.bytes);
    step.name = std::move(name);
    if (current_) {
      step.region = region_text(*current_);
      step.conditions = conditions(*current_);
    }
    plan_.kernels.push_back(std::move(kernel));
    plan_.steps.push_back(std::move(step));
  }

  /// Values of the region that other steps read.
  bool is_stored(std::int32_t index) const {
    return read_outside_[static_cast<std::size_t>(index)];
  }

  // ---- nests
  // ----------------------------------------------------------------------------------------

  /// Finishes a nest whose expression is in `nest`.
  void finish_nest(loop::Nest nest, const Domain& domain, KernelBuffers& buffers, bool uses_indices,
                   std::string name, double flops) {
    nest.extents = domain.extents;
    nest.parallel_dims = domain.parallel_dims;
    if (uses_indices) nest.error_buffer = buffers.number(error_buffer(), true);
    const double points = points_of(domain.extents);
    const double work = points * static_cast<double>(nest.nodes.size()) / 2;
    loop::Kernel kernel{buffers.declared, std::move(nest)};
    add_kernel(std::move(kernel), buffers.plan_buffers, std::move(name), flops, points, work);
  }

  Status add_nest(const Region& region) {
    if (placement_.in_place(region.root, 0))
      return {};  // a copy whose source was written in its order
    const Domain domain = nest_domain(region, {});
    KernelBuffers buffers(plan_.buffers);
    loop::Nest nest;
    ExpressionBuilder expression(
        graph_, region.dims, domain.map, [this](ValueId id) { return locate(id); }, buffers,
        nest.nodes, nest.accesses);
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
                region.reduced.empty() ? "map" : "rows", 0);
    return {};
  }

  /// A reshape that copies: the operand's points in row-major order are the result's.
  loop::Store store_of_copy(std::int32_t index, const Region& region, const Domain& domain,
                            KernelBuffers& buffers, ExpressionBuilder& expression) {
    const View target = placement_.of({index, 0});
    const View linear = View::dense(target.base, region.dims);
    return {{.buffer = buffers.number(buffer_of(target.base), true),
             .offset = 0,
             .strides = domain.map(linear.strides)},
            expression.operand({index, 0}).id()};
  }

  // ---- windows: pools, depthwise convolutions
  // -----------------------------------------------------------

  Status add_window(const Region& region) {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    const std::size_t spatial = region.dims.size() - 2;
    const auto* conv = root.op.as<op::Conv>();
    const auto* pool = root.op.as<op::WindowReduce>();
    Window window;
    if (conv) {
      const Dims w = graph_.type(root.inputs[1]).dims();
      window = {{w.begin(), w.end() - 2},
                filled(conv->strides, spatial, 1),
                filled(conv->pad_low, spatial, 0),
                filled(conv->dilations, spatial, 1)};
    } else {
      window = {pool->window, filled(pool->strides, spatial, 1), filled(pool->pad_low, spatial, 0),
                filled(pool->dilations, spatial, 1)};
    }
    const Domain domain = nest_domain(region, window.extents);
    KernelBuffers buffers(plan_.buffers);
    loop::Nest nest;
    ExpressionBuilder expression(
        graph_, region.dims, domain.map, [this](ValueId id) { return locate(id); }, buffers,
        nest.nodes, nest.accesses);
    const DType dtype = root.results[0].dtype;
    const bool narrow = dtype == f16 || dtype == bf16;
    const bool sums = conv || pool->kind == Reduction::sum || pool->kind == Reduction::prod;
    const double fill = conv ? 0 : reduction_identity(pool->kind, dtype);
    ScalarValue x = expression.load(
        window_access(locate(root.inputs[0]), window, region, domain, buffers, fill), dtype);
    if (narrow && sums) x = expression.builder().cast(x, f32);
    if (conv) x = x * depthwise_weight(root, region, domain, buffers, expression, narrow);
    ScalarValue sum =
        expression.builder().reduce(conv ? ReduceKind::sum : reduce_kind_of(pool->kind), x);
    if (narrow && sums) sum = expression.builder().cast(sum, dtype);
    expression.set({region.root, 0}, sum);
    for (const std::int32_t index : region.nodes) {
      if (index != region.root) expression.add(index);
    }
    for (const std::int32_t index : region.nodes) {
      if (is_stored(index)) nest.stores.push_back(expression.store({index, 0}));
    }
    const double points = points_of(domain.extents);
    finish_nest(std::move(nest), domain, buffers, expression.uses_indices(),
                conv ? "depthwise" : "pool", conv ? 2 * points : points);
    return {};
  }

  /// w [spatial..., 1, C] read at (c | k...).
  ScalarValue depthwise_weight(const Node& root, const Region& region, const Domain& domain,
                               KernelBuffers& buffers, ExpressionBuilder& expression, bool narrow) {
    const Located w = locate(root.inputs[1]);
    const std::size_t rank = region.dims.size();
    loop::Access access{.buffer = buffers.number(w.buffer, false),
                        .offset = w.view.offset,
                        .strides = std::vector<std::int64_t>(domain.extents.size(), 0)};
    access.strides[rank - 1] = w.view.strides.back();
    for (std::size_t i = 0; i + 2 < w.view.dims.size(); ++i)
      access.strides[rank + i] = w.view.strides[i];
    const ScalarValue value = expression.load(std::move(access), graph_.type(root.inputs[1]).dtype);
    return narrow ? expression.builder().cast(value, f32) : value;
  }

  // ---- contractions
  // -----------------------------------------------------------------------------------------

  Status add_contraction(const Region& region) {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    KernelBuffers buffers(plan_.buffers);
    loop::Contraction contraction;
    Domain domain;
    if (const auto* conv = root.op.as<op::Conv>()) {
      describe_conv(root, *conv, region, contraction, domain, buffers);
    } else {
      describe_dot(root, *root.op.as<op::DotGeneral>(), region, contraction, domain, buffers);
    }
    const DType dtype = root.results[0].dtype;
    contraction.accumulator = dtype == f64 ? f64 : f32;
    add_epilogue(region, domain, contraction, buffers);
    double flops =
        2 * points_of(contraction.k_extents) * static_cast<double>(element_count(region.dims));
    loop::Kernel kernel{{}, std::move(contraction)};
    kernel.buffers = buffers.declared;
    add_kernel(std::move(kernel), buffers.plan_buffers, root.op.is<op::Conv>() ? "conv" : "matmul",
               flops, 0, 0);
    return {};
  }

  static void set_domain(const loop::Contraction& c, Domain& domain) {
    domain.extents = c.batch_extents;
    domain.extents.insert(domain.extents.end(), c.m_extents.begin(), c.m_extents.end());
    domain.extents.push_back(c.n);
    domain.parallel_dims = static_cast<std::int32_t>(domain.extents.size()) - 1;
  }

  void describe_dot(const Node& root, const op::DotGeneral& dot, const Region& region,
                    loop::Contraction& c, Domain& domain, KernelBuffers& buffers) {
    const Located a = locate(root.inputs[0]);
    const View b = placement_.of(root.inputs[1]);
    const auto in = [](const Axes& axes, std::size_t axis) {
      return std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) != axes.end();
    };
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
    set_b(root.inputs[1], b, c, buffers);
    set_domain(c, domain);
    const bool scalar_row = region.dims.size() + 1 == domain.extents.size();  // no free axis of a
    const std::size_t batches = c.batch_extents.size();
    domain.map = [scalar_row, batches](const std::vector<std::int64_t>& strides) {
      std::vector<std::int64_t> mapped = strides;
      if (scalar_row) mapped.insert(mapped.begin() + static_cast<std::ptrdiff_t>(batches), 0);
      return mapped;
    };
  }

  /// B packed once where it is a weight, else read where it lies.
  void set_b(ValueId value, const View& b, loop::Contraction& c, KernelBuffers& buffers) {
    if (!regions_.weight_only[static_cast<std::size_t>(value.node)]) {
      c.b_buffer = buffers.number(buffer_of(b.base), false);
      c.b_offset = b.offset;
      return;
    }
    const DType dtype = graph_.type(value).dtype;
    WeightPlan weight{.view = b, .dtype = dtype, .packed = true};
    weight.layout =
        codegen::choose_packed_layout(c.n, element_count(c.k_extents), dtype, options_.target);
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
    const Type type{dtype, {weight.layout.elements() * matrices}};
    c.b_buffer = buffers.number(add_weight(std::move(weight), type), false);
  }

  void describe_conv(const Node& root, const op::Conv& conv, const Region& region,
                     loop::Contraction& c, Domain& domain, KernelBuffers& buffers) {
    const Located x = locate(root.inputs[0]);
    const View w = placement_.of(root.inputs[1]);
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
    set_b(root.inputs[1], w, c, buffers);
    set_domain(c, domain);
    const bool grouped = conv.groups > 1;
    domain.map = [grouped, columns](const std::vector<std::int64_t>& axes) {
      std::vector<std::int64_t> mapped = axes;
      if (grouped) mapped.insert(mapped.begin(), axes.back() * columns);
      return mapped;
    };
  }

  /// The nodes behind a contraction: maps on its tiles; from the first reduction on, a nest over
  /// whole rows.
  void add_epilogue(const Region& region, const Domain& domain, loop::Contraction& c,
                    KernelBuffers& buffers) {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    const Locate locate_value = [this](ValueId id) { return locate(id); };
    ExpressionBuilder tile(graph_, region.dims, domain.map, locate_value, buffers, c.nodes,
                           c.accesses);
    const ScalarValue sum =
        tile.builder().add({.op = ScalarOp::accumulator, .dtype = c.accumulator});
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
        if (id.node >= 0 && tile.has(id) && !in_rows.contains(id)) read_by_rows.insert(id);
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
      for (const std::int32_t index : row_nodes) row.add(index);
      for (const std::int32_t index : row_nodes) {
        if (is_stored(index)) rows.stores.push_back(row.store({index, 0}));
      }
      uses_indices = uses_indices || row.uses_indices();
    }
    if (uses_indices)
      c.row_epilogue.error_buffer = c.error_buffer = buffers.number(error_buffer(), true);
  }

  // ---- recurrent layers
  // ---------------------------------------------------------------------------------------

  /// x * W for all steps at once, then the walk over the steps.
  void add_recurrence(const Region& region) {
    const Node& root = graph_.nodes()[static_cast<std::size_t>(region.root)];
    const RecurrentLayout layout = *recurrent_layout(graph_, root, regions_.weight_only);
    const Locate locate_value = [this](ValueId id) { return locate(id); };
    const Type projected{f32, {layout.directions, layout.steps, layout.batch, layout.columns()}};
    const std::int32_t target =
        add_buffer(projected, Storage::arena, -1, "gates_" + std::to_string(region.root));
    add_projection(root, layout, target);

    const View r = placement_.of(root.inputs[2]);
    WeightPlan packed = packed_recurrence(layout, r, options_.target);
    const auto width = static_cast<std::int32_t>(packed.layout.panel_width);
    const Type packed_type{f32, {packed.bytes / static_cast<std::int64_t>(sizeof(float))}};
    const std::int32_t weights = add_weight(std::move(packed), packed_type);
    std::vector<std::int32_t> results;
    for (std::size_t k = 0; k < root.results.size(); ++k)
      results.push_back(buffer_of({region.root, static_cast<std::int32_t>(k)}));
    KernelBuffers buffers(plan_.buffers);
    loop::Recurrence walk =
        describe_recurrence(layout, root, locate_value, target, weights, results, buffers);
    walk.panel_width = width;
    const double cells = points_of(projected.dims());
    loop::Kernel kernel{buffers.declared, std::move(walk)};
    add_kernel(std::move(kernel), buffers.plan_buffers, "recurrence",
               2 * cells * static_cast<double>(layout.units), 0, 8 * cells);
    // A direction of a batch row walks alone.
    Step& step = plan_.steps.back();
    step.threads = static_cast<std::int32_t>(
        std::min<std::int64_t>(step.threads, layout.directions * layout.batch));
  }

  void add_projection(const Node& root, const RecurrentLayout& layout, std::int32_t target) {
    const Located x = locate(root.inputs[0]);
    const View w = placement_.of(root.inputs[1]);
    KernelBuffers buffers(plan_.buffers);
    loop::Contraction c;
    c.batch_extents = {layout.directions};
    c.a_buffer = buffers.number(x.buffer, false);
    c.a_offset = x.view.offset;
    c.a_batch_strides = {0};
    c.m_extents = {layout.steps, layout.batch};
    c.a_m_strides = {x.view.strides[0], x.view.strides[1]};
    c.k_extents = {layout.inputs};
    c.a_k_strides = {x.view.strides[2]};
    c.n = layout.columns();
    c.b_batch_strides = {w.strides[0]};
    c.b_k_strides = {w.strides[2]};
    c.b_n_stride = w.strides[1];
    set_b(root.inputs[1], w, c, buffers);
    add_projection_epilogue(
        layout, root, [this](ValueId id) { return locate(id); }, target, c, buffers);
    const double flops = 2 * points_of({layout.directions, layout.steps, layout.batch,
                                        layout.columns(), layout.inputs});
    loop::Kernel kernel{buffers.declared, std::move(c)};
    add_kernel(std::move(kernel), buffers.plan_buffers, "matmul", flops, 0, 0);
  }

  // ---- copies, host calls, outputs
  // -----------------------------------------------------------------------------

  /// Copies `from` (a view of some buffer) to a view of the same dims in the buffer `to`.
  void add_copy(const Located& from, std::int32_t to, const View& target, const std::string& name) {
    Region points;
    points.dims = from.view.dims;
    const Domain domain = nest_domain(points, {});
    KernelBuffers buffers(plan_.buffers);
    loop::Nest nest;
    const DType dtype = plan_.buffers[static_cast<std::size_t>(to)].dtype;
    nest.accesses.push_back({.buffer = buffers.number(from.buffer, false),
                             .offset = from.view.offset,
                             .strides = from.view.strides});
    nest.nodes.push_back({.op = ScalarOp::load, .dtype = dtype, .index = 0});
    nest.stores.push_back(
        {{.buffer = buffers.number(to, true), .offset = target.offset, .strides = target.strides},
         0});
    finish_nest(std::move(nest), domain, buffers, false, name, 0);
  }

  void add_concat(const Region& region) {
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

  /// A buffer that holds the value densely from its first byte on.
  std::int32_t dense_buffer(ValueId id) {
    const Located located = locate(id);
    const BufferPlan& buffer = plan_.buffers[static_cast<std::size_t>(located.buffer)];
    if (located.view.offset == 0 && located.view.is_dense() &&
        buffer.elements == located.view.elements())
      return located.buffer;
    const auto known = dense_of_.find(id);
    if (known != dense_of_.end()) return known->second;
    const Type& type = graph_.type(id);
    if (regions_.weight_only[static_cast<std::size_t>(id.node)]) {
      return dense_of_[id] = add_weight(
                 {.view = placement_.of(id), .dtype = type.dtype, .bytes = type.bytes()}, type);
    }
    const std::int32_t copy =
        add_buffer(type, Storage::arena, -1, "copy_" + std::to_string(id.node));
    add_copy(located, copy, View::dense(id, type.dims()), "copy");
    if (!current_ || conditions(*current_).empty()) dense_of_[id] = copy;
    return copy;
  }

  Status add_host(const Region& region) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
    const OpInfo& info = node.op.info();
    if (!info.eval)
      return unsupported("The op {} ({}) has no kernel on this device.", info.name,
                         node.results[0].text());
    HostCall call{.op = node.op};
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
    step.conditions = conditions(region);
    for (const std::int32_t buffer : call.inputs)
      if (buffer >= 0) step.buffers.push_back(buffer);
    step.buffers.insert(step.buffers.end(), call.outputs.begin(), call.outputs.end());
    plan_.host_calls.push_back(std::move(call));
    plan_.steps.push_back(std::move(step));
    return {};
  }

  /// Every output has a dense buffer of its own in the arena.
  void add_outputs() {
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
      taken.insert(target);
      plan_.outputs.push_back(target);
      plan_.output_types.push_back(type);
    }
  }

  void add_output_copy(ValueId value, const Located& located, std::int32_t target) {
    const Type& type = graph_.type(value);
    if (is_generated(type.dtype))
      return add_copy(located, target, View::dense(value, type.dims()), "output");
    HostCall call{.op = op::Reshape{type.shape},
                  .inputs = {dense_buffer(value)},
                  .input_dims = {type.dims()},
                  .outputs = {target},
                  .output_dims = {type.dims()}};
    plan_.steps.push_back({.kind = Step::Kind::host,
                           .index = static_cast<std::int32_t>(plan_.host_calls.size()),
                           .buffers = {call.inputs[0], target},
                           .name = "host",
                           .region = "output"});
    plan_.host_calls.push_back(std::move(call));
  }

  const FlatGraph& flat_;
  const Graph& graph_;
  const BuildOptions& options_;
  const Regions regions_;
  const Placement placement_;
  Plan plan_;
  const Region* current_ = nullptr;
  std::map<ValueId, std::int32_t> buffer_of_, dense_of_;
  std::vector<bool> read_outside_;
};

}  // namespace

Result<Plan> build_plan(const FlatGraph& graph, const BuildOptions& options) {
  try {
    return PlanBuilder(graph, options).run();
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::plan
