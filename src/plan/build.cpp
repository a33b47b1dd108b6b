// Builds the plan: one step for each region in order, buffers for what must be stored, weights in
// their layouts.
#include "plan/build.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "plan/layout_arena.hpp"
#include "plan/plan_builder.hpp"
#include "plan/predict.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

Result<Plan> PlanBuilder::run() {
  collect_users();
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) add_leaf(static_cast<std::int32_t>(i));
  for (const Region& region : regions_.list) {
    current_ = &region;
    switch (region.kind) {
      case Region::Kind::nest: RLX_TRY(add_nest(region)); break;
      case Region::Kind::window: RLX_TRY(add_window(region)); break;
      case Region::Kind::tiles: add_tiles(region); break;
      case Region::Kind::contraction: RLX_TRY(add_contraction(region)); break;
      case Region::Kind::recurrence: add_recurrence(region); break;
      case Region::Kind::concat: add_concat(region); break;
      case Region::Kind::host: RLX_TRY(add_host(region)); break;
    }
  }
  current_ = nullptr;
  add_outputs();
  if (!options_.fusion.exact) let_drop_negligible();
  // Bodies of loops have asked theirs already.
  plan_.questions.insert(plan_.questions.begin(), regions_.questions.begin(),
                         regions_.questions.end());
  plan_.planning_ms += regions_.planning_ms;
  lay_out_arena(plan_, options_.threads);
  choose_threads(plan_, options_.model, options_.threads, options_.elsewhere);
  return std::move(plan_);
}

void PlanBuilder::collect_users() {
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
  for (const Region& region : regions_.list) {
    if (region.before.empty()) continue;
    read_outside_[static_cast<std::size_t>(rows_of(region).node)] = true;
    if (region.kind == Region::Kind::tiles)
      read_outside_[static_cast<std::size_t>(region.before[0].root)] = true;
  }
  for (const GraphOutput& output : graph_.outputs())
    read_outside_[static_cast<std::size_t>(output.value.node)] = true;
}

void PlanBuilder::add_leaf(std::int32_t index) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
  if (const auto* input = node.op.as<op::Input>()) {
    const std::int32_t buffer =
        add_buffer(node.results[0], Storage::input, static_cast<std::int32_t>(plan_.inputs.size()),
                   input->name);
    plan_.inputs.push_back(buffer);
    buffer_of_[{index, 0}] = buffer;
  }
  if (const auto* state = node.op.as<op::State>()) {
    buffer_of_[{index, 0}] =
        add_buffer(node.results[0], Storage::state, static_cast<std::int32_t>(plan_.states.size()),
                   state->name);
    plan_.states.push_back(*state);
  }
}

std::int32_t PlanBuilder::add_buffer(const Type& type, Storage storage, std::int32_t index,
                                     std::string name) {
  plan_.buffers.push_back({.dtype = type.dtype,
                           .elements = type.elements(),
                           .storage = storage,
                           .index = index,
                           .name = std::move(name)});
  return static_cast<std::int32_t>(plan_.buffers.size() - 1);
}

std::int32_t PlanBuilder::buffer_of(ValueId base) {
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
             add_buffer({type.dtype, {placement_.elements(base)}}, Storage::arena, -1,
                        std::string(node.op.name()) + "_" + std::to_string(base.node));
}

std::int32_t PlanBuilder::add_weight(WeightPlan weight, const Type& type) {
  const auto is_same = [&](const BufferPlan& buffer) {
    return buffer.storage == Storage::weight && buffer.dtype == type.dtype &&
           plan_.weights[static_cast<std::size_t>(buffer.index)] == weight;
  };
  const auto same = std::ranges::find_if(plan_.buffers, is_same);
  if (same != plan_.buffers.end() && weight.experts == 0)
    return static_cast<std::int32_t>(same - plan_.buffers.begin());
  const std::int32_t buffer =
      add_buffer(type, Storage::weight, static_cast<std::int32_t>(plan_.weights.size()),
                 "weight_" + std::to_string(weight.view.base.node));
  plan_.weights.push_back(std::move(weight));
  return buffer;
}

void PlanBuilder::let_drop_negligible() {
  std::set<std::int32_t> multiplied, kept;
  for (const Step& step : plan_.steps) {
    const bool multiplies = step.kind == Step::Kind::kernel && products_.contains(step.index);
    (multiplies ? multiplied : kept).insert(step.buffers.begin(), step.buffers.end());
  }
  for (const HostCall& call : plan_.host_calls) kept.insert(call.inputs.begin(), call.inputs.end());
  for (const std::int32_t index : multiplied) {
    const BufferPlan& buffer = plan_.buffers[static_cast<std::size_t>(index)];
    if (buffer.storage == Storage::weight && buffer.dtype == f32 && !kept.contains(index))
      plan_.weights[static_cast<std::size_t>(buffer.index)].drops_negligible = true;
  }
}

Located PlanBuilder::locate(ValueId id) {
  if (const auto rows = worker_rows_.find(id); rows != worker_rows_.end()) return rows->second;
  const View& view = placement_.of(id);
  return {buffer_of(view.base), view};
}

std::int32_t PlanBuilder::error_buffer() {
  if (plan_.error_buffer < 0)
    plan_.error_buffer = add_buffer({i32, {1}}, Storage::arena, -1, "error");
  return plan_.error_buffer;
}

std::string PlanBuilder::region_text(const Region& region) const {
  std::string text;
  for (const Region& before : region.before)
    text += (text.empty() ? "" : "+") + region_text(before);
  std::vector<std::int32_t> nodes = region.recomputed;
  nodes.insert(nodes.end(), region.nodes.begin(), region.nodes.end());
  std::sort(nodes.begin(), nodes.end());
  for (const std::int32_t index : nodes) {
    if (!text.empty()) text += '+';
    text += graph_.nodes()[static_cast<std::size_t>(index)].op.name();
  }
  return text;
}

std::vector<Condition> PlanBuilder::conditions(const Region& region) {
  std::vector<Condition> list;
  for (const FlatGraph::Predicate& predicate :
       flat_.predicates[static_cast<std::size_t>(region.root)]) {
    list.push_back({locate(predicate.value).buffer, predicate.holds_if});
  }
  return list;
}

double PlanBuilder::bytes_touched(const BufferPlan& buffer, double points) {
  if (buffer.storage == Storage::worker) return 0;
  const auto bytes = static_cast<double>(buffer.bytes());
  return points == 0 ? bytes : std::min(bytes, points * static_cast<double>(size_of(buffer.dtype)));
}

void PlanBuilder::add_kernel(loop::Kernel kernel, std::vector<std::int32_t> buffers,
                             std::string name, double flops, double points) {
  Step step{.kind = Step::Kind::kernel,
            .index = static_cast<std::int32_t>(plan_.kernels.size()),
            .buffers = std::move(buffers)};
  for (const std::int32_t buffer : step.buffers)
    step.bytes += bytes_touched(plan_.buffers[static_cast<std::size_t>(buffer)], points);
  step.flops = flops;
  step.name = std::move(name);
  if (current_) {
    step.region = region_text(*current_);
    step.conditions = conditions(*current_);
  }
  const bool multiplies =
      !std::holds_alternative<loop::Nest>(kernel.body) ||
      (current_ && graph_.nodes()[static_cast<std::size_t>(current_->root)].op.is<op::Conv>());
  if (multiplies) products_.insert(step.index);
  plan_.kernels.push_back(std::move(kernel));
  plan_.steps.push_back(std::move(step));
}

bool PlanBuilder::is_stored(std::int32_t index) const {
  return read_outside_[static_cast<std::size_t>(index)];
}

Result<Plan> build_plan(const FlatGraph& graph, const BuildOptions& options) {
  try {
    return PlanBuilder(graph, options).run();
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::plan
