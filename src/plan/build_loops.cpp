// Loops: the body becomes a plan of its own, whose buffers, weights and kernels the plan around it
// takes over; each iteration runs its steps.
#include <algorithm>

#include "base/error.hpp"
#include "plan/plan_builder.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

/// What scans and host loops have in common, and where they differ.
struct LoopOp {
  std::size_t carries = 0, scanned = 0;
  std::size_t operands_before = 0;  ///< before the carries: trip count and condition
  std::size_t inputs_before = 1;    ///< of the body: step, condition
  std::size_t outputs_before = 0;   ///< of the body: condition
  std::int64_t trips = -1;
  bool reverse = false;
};

LoopOp loop_op(const Op& op) {
  if (const auto* scan = op.as<op::Scan>()) {
    return {.carries = static_cast<std::size_t>(scan->carries),
            .scanned = static_cast<std::size_t>(scan->scanned),
            .trips = scan->length,
            .reverse = scan->reverse};
  }
  return {.carries = static_cast<std::size_t>(op.as<op::HostLoop>()->carries),
          .operands_before = 2,
          .inputs_before = 2,
          .outputs_before = 1};
}

/// Moves what a body's plan names into the numbering of the plan around it.
class Renaming {
 public:
  Renaming(const std::vector<std::int32_t>& buffers, const Plan& outer)
      : buffers_(buffers),
        kernels_(static_cast<std::int32_t>(outer.kernels.size())),
        calls_(static_cast<std::int32_t>(outer.host_calls.size())),
        loops_(static_cast<std::int32_t>(outer.loops.size())),
        grouped_(static_cast<std::int32_t>(outer.grouped.size())),
        weights_(static_cast<std::int32_t>(outer.weights.size())),
        layers_(outer.layers),
        slots_(outer.slots) {}

  void buffer(std::int32_t& index) const {
    if (index >= 0) index = buffers_[static_cast<std::size_t>(index)];
  }
  void call(HostCall& call) const {
    for (std::int32_t& index : call.inputs) buffer(index);
    for (std::int32_t& index : call.outputs) buffer(index);
  }
  void grouped(GroupedPlan& grouped) const {
    for (GroupedPlan::Height& height : grouped.heights) height.kernel += kernels_;
    for (std::int32_t* index : {&grouped.x, &grouped.w, &grouped.chosen, &grouped.result})
      buffer(*index);
    if (grouped.weight >= 0) grouped.weight += weights_;
    grouped.layer += layers_;
  }
  std::int32_t first_of(Step::Kind kind) const {
    switch (kind) {
      case Step::Kind::kernel: return kernels_;
      case Step::Kind::host: return calls_;
      case Step::Kind::loop: return loops_;
      case Step::Kind::experts: return grouped_;
    }
    return 0;
  }
  void step(Step& step) const {
    step.index += first_of(step.kind);
    for (std::int32_t& index : step.buffers) buffer(index);
    for (Condition& condition : step.conditions) buffer(condition.buffer);
  }
  void loop(LoopPlan& loop) const {
    for (Step& inner : loop.steps) step(inner);
    for (std::int32_t* index :
         {&loop.trip_count, &loop.start, &loop.condition, &loop.counter, &loop.going_on})
      buffer(*index);
    for (LoopPlan::Carry& carry : loop.carries) {
      for (std::int32_t* index : {&carry.initial, &carry.result, &carry.spare}) buffer(*index);
      carry.read_slot += slots_;
      carry.write_slot += slots_;
    }
    for (LoopPlan::Slice& slice : loop.slices) {
      buffer(slice.whole);
      slice.slot += slots_;
    }
  }

 private:
  const std::vector<std::int32_t>& buffers_;
  const std::int32_t kernels_, calls_, loops_, grouped_, weights_, layers_, slots_;
};

}  // namespace

std::int32_t PlanBuilder::add_slot(const Type& type, const char* name) {
  return add_buffer(type, Storage::slot, plan_.slots++, name);
}

std::vector<std::int32_t> PlanBuilder::bind_body(const Region& region, const Plan& body,
                                                 LoopPlan& loop,
                                                 std::vector<std::int32_t>& touched) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(region.root)];
  const LoopOp op = loop_op(node.op);
  std::vector<std::int32_t> renamed(body.buffers.size(), -1);
  std::size_t next_input = 0, next_output = 0;
  const auto give_input = [&](std::int32_t buffer) {
    renamed[static_cast<std::size_t>(body.inputs[next_input++])] = buffer;
  };
  const auto give_output = [&](std::int32_t buffer) {
    renamed[static_cast<std::size_t>(body.outputs[next_output++])] = buffer;
  };
  const auto slot_of = [&](std::int32_t buffer) {
    return plan_.buffers[static_cast<std::size_t>(buffer)].index;
  };
  const auto operand_at = [&](std::size_t i) {
    return node.inputs[i].node < 0 ? -1 : touched.emplace_back(dense_buffer(node.inputs[i]));
  };
  const auto result_at = [&](std::size_t k) {
    return touched.emplace_back(buffer_of({region.root, static_cast<std::int32_t>(k)}));
  };
  const auto own = [&](const Type& type, const char* name) {
    return touched.emplace_back(add_buffer(type, Storage::arena, -1, name));
  };
  loop.trips = op.trips;
  loop.counter = own({i64, {}}, "step");
  give_input(loop.counter);
  if (op.outputs_before > 0) {
    loop.trip_count = operand_at(0);
    loop.start = operand_at(1);
    loop.going_on = own({boolean, {}}, "going_on");
    give_input(loop.going_on);
    loop.condition = own({boolean, {}}, "condition");
    give_output(loop.condition);
  }
  for (std::size_t i = op.operands_before; i < node.inputs.size(); ++i) {
    const std::size_t k = i - op.operands_before;
    const std::int32_t operand = operand_at(i);
    const Type& type = graph_.type(node.inputs[i]);
    if (k < op.carries) {
      const std::int32_t read = add_slot(type, "carry"), written = add_slot(type, "next");
      give_input(read);
      give_output(written);
      loop.carries.push_back({.initial = operand,
                              .result = result_at(k),
                              .spare = own(type, "spare"),
                              .read_slot = slot_of(read),
                              .write_slot = slot_of(written)});
    } else if (k < op.carries + op.scanned) {
      Type slice = type;
      slice.shape.erase(slice.shape.begin());
      const std::int32_t read = add_slot(slice, "slice");
      give_input(read);
      loop.slices.push_back({operand, slot_of(read), slice.bytes(), op.reverse});
    } else {
      give_input(operand);
    }
  }
  for (std::size_t k = op.carries; k < node.results.size(); ++k) {
    Type slice = node.results[k];
    slice.shape.erase(slice.shape.begin());
    const std::int32_t written = add_slot(slice, "emitted");
    give_output(written);
    loop.slices.push_back({result_at(k), slot_of(written), slice.bytes(), op.reverse, true});
  }
  return renamed;
}

std::int32_t PlanBuilder::merge_body(const Region& region, Plan body,
                                     std::vector<std::int32_t> renamed, LoopPlan& loop) {
  const std::int32_t memory =
      add_buffer({u8, {body.arena_bytes}}, Storage::arena, -1, "body_of_loop");
  if (body.error_buffer >= 0) renamed[static_cast<std::size_t>(body.error_buffer)] = error_buffer();
  const auto weights = static_cast<std::int32_t>(plan_.weights.size());
  for (std::size_t i = 0; i < body.buffers.size(); ++i) {
    if (renamed[i] >= 0) continue;
    BufferPlan buffer = body.buffers[i];
    buffer.first_step = buffer.last_step = -1;
    if (buffer.storage == Storage::arena) buffer.within = memory;
    if (buffer.storage == Storage::weight) buffer.index += weights;
    if (buffer.storage == Storage::slot) buffer.index += plan_.slots;
    renamed[i] = static_cast<std::int32_t>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(buffer));
  }
  std::int32_t graph = 1;
  for (const FlatGraph::Body& each : flat_.bodies) {
    if (each.node == region.root) break;
    graph += static_cast<std::int32_t>(graphs_of(*each.graph).size());
  }
  const Renaming renaming(renamed, plan_);
  for (WeightPlan& weight : body.weights) {
    weight.graph += graph;
    plan_.weights.push_back(std::move(weight));
  }
  for (GroupedPlan& grouped : body.grouped) {
    renaming.grouped(grouped);
    plan_.grouped.push_back(std::move(grouped));
  }
  plan_.layers += body.layers;
  for (loop::Kernel& kernel : body.kernels) plan_.kernels.push_back(std::move(kernel));
  for (HostCall& call : body.host_calls) {
    renaming.call(call);
    plan_.host_calls.push_back(std::move(call));
  }
  for (LoopPlan& inner : body.loops) {
    renaming.loop(inner);
    plan_.loops.push_back(std::move(inner));
  }
  for (Step& step : body.steps) {
    renaming.step(step);
    loop.steps.push_back(std::move(step));
  }
  plan_.questions.insert(plan_.questions.end(), body.questions.begin(), body.questions.end());
  plan_.planning_ms += body.planning_ms;
  plan_.slots += body.slots;
  return memory;
}

Status PlanBuilder::add_loop(const Region& region, const FlatGraph& body) {
  BuildOptions options = options_;
  options.is_body = true;
  auto built = build_plan(body, options);
  // What no kernel can do inside is evaluated, the loop around it too.
  if (!built.ok() && built.error().kind == ErrorKind::unsupported) return add_call(region);
  RLX_ASSIGN(Plan plan, std::move(built));
  LoopPlan loop;
  Step step{.kind = Step::Kind::loop, .name = "loop", .region = region_text(region)};
  std::vector<std::int32_t> renamed = bind_body(region, plan, loop, step.buffers);
  step.buffers.push_back(merge_body(region, std::move(plan), std::move(renamed), loop));
  step.index = static_cast<std::int32_t>(plan_.loops.size());
  const auto trips = static_cast<double>(iterations_of(loop));
  for (const Step& inner : loop.steps) {
    step.threads = std::max(step.threads, inner.threads);
    step.flops += trips * inner.flops;
    step.bytes += trips * inner.bytes;
  }
  step.conditions = conditions(region);
  plan_.loops.push_back(std::move(loop));
  plan_.steps.push_back(std::move(step));
  return {};
}

}  // namespace rlx::plan
