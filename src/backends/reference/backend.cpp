// The reference backend: evaluates graphs node by node by the ops' own rules. Slow, obvious, right.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>

#include "backends/backend.hpp"
#include "base/cancel_scope.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "base/subnormal_scope.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx::reference {
namespace {

/// Inputs where the caller has them, outputs one after the other in the arena, no steps.
plan::Plan plan_of(const Graph& graph) {
  plan::Plan plan;
  for (const Node& node : graph.nodes()) {
    if (const auto* state = node.op.as<op::State>()) plan.states.push_back(*state);
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    const auto index = static_cast<std::int32_t>(plan.inputs.size());
    plan.inputs.push_back(static_cast<std::int32_t>(plan.buffers.size()));
    plan.buffers.push_back({.dtype = input->dtype,
                            .elements = node.results[0].elements(),
                            .storage = plan::Storage::input,
                            .index = index,
                            .name = input->name});
  }
  for (const GraphOutput& output : graph.outputs()) {
    const Type& type = graph.type(output.value);
    plan.outputs.push_back(static_cast<std::int32_t>(plan.buffers.size()));
    plan.output_types.push_back(type);
    plan.buffers.push_back({.dtype = type.dtype,
                            .elements = type.elements(),
                            .offset = plan.arena_bytes,
                            .first_step = 0,
                            .last_step = 0,
                            .name = output.name});
    plan.arena_bytes += (type.bytes() + 63) / 64 * 64;
  }
  plan.arena_lower_bound_bytes = plan.arena_bytes;
  return plan;
}

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(std::shared_ptr<const plan::FlatGraph> flat, bool flush_subnormals)
      : flat_(std::move(flat)),
        flush_subnormals_(flush_subnormals),
        plan_(plan_of(flat_->graph)),
        memory_(u8, {plan_.arena_bytes + 1}) {
    for (const op::State& state : plan_.states)
      states_.emplace(state.name, Tensor(state.dtype, state.dims));
  }

  const plan::Plan& plan() const override { return plan_; }
  const std::byte* arena() const override { return memory_.data(); }
  std::int64_t scratch_bytes() const override { return 0; }
  std::int64_t weights_bytes() const override {
    std::int64_t bytes = 0;
    for (const Node& node : graph().nodes()) {
      if (node.op.is<op::Param>() || node.op.is<op::Constant>()) bytes += node.results[0].bytes();
    }
    return bytes;
  }
  std::byte* state(std::string_view name) override {
    const auto found = states_.find(std::string(name));
    return found == states_.end() ? nullptr : const_cast<std::byte*>(found->second.data());
  }
  void set_output(std::size_t index, void* memory) override {
    targets_.resize(plan_.outputs.size());
    targets_[index] = static_cast<std::byte*>(memory);
  }
  void end_runs_when(std::shared_ptr<const std::atomic<bool>> flag) override {
    cancel_flag_ = std::move(flag);
  }
  Status set_param(std::string_view name, const Tensor& value) override {
    params_.insert_or_assign(std::string(name), value);
    return {};
  }
  Result<std::unique_ptr<Executable>> clone() const override {
    auto copy = std::make_unique<ReferenceExecutable>(flat_, flush_subnormals_);
    copy->params_ = params_;
    return std::unique_ptr<Executable>(std::move(copy));
  }
  Result<std::vector<double>> time_steps(std::span<const void* const>, int) override {
    return std::vector<double>();
  }

  Status run(std::span<const void* const> inputs) override {
    const CancelScope scope(cancel_flag_.get());
    const SubnormalScope subnormals(flush_subnormals_);
    values_.assign(graph().nodes().size(), {});
    updates_.clear();
    targets_.resize(plan_.outputs.size());
    std::size_t next_input = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Node& node = graph().nodes()[i];
      if (cancel_flag_ && *cancel_flag_) return run_was_cancelled();
      if (node.op.is<op::Input>()) {
        const Type& type = node.results[0];
        const auto* bytes = static_cast<const std::byte*>(inputs[next_input++]);
        values_[i] = {Tensor(type.dtype, type.dims(),
                             std::shared_ptr<const std::byte>(std::shared_ptr<void>(), bytes))};
      } else if (holds(i)) {
        RLX_ASSIGN(values_[i], value_of(node));
      }
    }
    const auto& outputs = graph().outputs();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& tensor = value(outputs[k].value);
      const auto buffer = static_cast<std::size_t>(plan_.outputs[k]);
      std::byte* const target =
          targets_[k] ? targets_[k] : memory_.mutable_data() + plan_.buffers[buffer].offset;
      std::memcpy(target, tensor.data(), tensor.bytes());
    }
    // Reads of a run see the values from before its updates.
    for (auto& [name, tensor] : updates_) std::memcpy(state(name), tensor.data(), tensor.bytes());
    return {};
  }

 private:
  const Graph& graph() const { return flat_->graph; }
  const Tensor& value(ValueId id) const {
    return values_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }
  bool was_evaluated(ValueId id) const {
    return id.node >= 0 && !values_[static_cast<std::size_t>(id.node)].empty();
  }

  /// Nodes of a branch that is not taken have no values.
  bool holds(std::size_t index) const {
    return std::all_of(flat_->predicates[index].begin(), flat_->predicates[index].end(),
                       [&](const plan::FlatGraph::Predicate& predicate) {
                         return was_evaluated(predicate.value) &&
                                (value(predicate.value).data()[0] != std::byte{0}) ==
                                    predicate.holds_if;
                       });
  }

  Result<std::vector<Tensor>> value_of(const Node& node) {
    if (const auto* constant = node.op.as<op::Constant>()) return std::vector{constant->value};
    if (const auto* param = node.op.as<op::Param>()) return param_value(*param);
    if (const auto* read = node.op.as<op::State>()) {
      Tensor copy(read->dtype, read->dims);
      std::memcpy(copy.mutable_data(), states_.at(read->name).data(), copy.bytes());
      return std::vector{copy};
    }
    if (node.op.is<op::Update>()) {
      const auto& target = graph().node(node.inputs[0]).op;
      updates_.emplace_back(target.as<op::State>()->name, value(node.inputs[1]));
      return std::vector{value(node.inputs[1])};
    }
    // Where branches meet, the one that was not taken is missing.
    if (node.op.is<op::Select>() && was_evaluated(node.inputs[1]) != was_evaluated(node.inputs[2]))
      return std::vector{value(node.inputs[was_evaluated(node.inputs[1]) ? 1 : 2])};
    std::vector<Tensor> operands;
    for (const ValueId id : node.inputs) operands.push_back(id.node < 0 ? Tensor() : value(id));
    return evaluate(node.op, operands);
  }

  Result<std::vector<Tensor>> param_value(const op::Param& param) const {
    const auto set = params_.find(param.name);
    if (set != params_.end()) return std::vector{set->second};
    if (!param.data.empty()) return std::vector{param.data};
    return bad_input("The param ({}) has no value: set_param gives it one.", param.name);
  }

  std::vector<std::byte*> targets_;  ///< by output; null: the arena
  std::shared_ptr<const std::atomic<bool>> cancel_flag_;
  std::shared_ptr<const plan::FlatGraph> flat_;
  const bool flush_subnormals_;
  plan::Plan plan_;
  Tensor memory_;  ///< the arena
  std::map<std::string, Tensor> params_, states_;
  std::vector<std::vector<Tensor>> values_;  ///< by node, of the run at work
  std::vector<std::pair<std::string, Tensor>> updates_;
};

class ReferenceBackend final : public Backend {
 public:
  Device device() const override { return Device::cpu; }
  DeviceInfo info() const override {
    return {.device = Device::cpu, .display_name = "CPU reference evaluation", .available = true};
  }
  Claim claim(const Graph&, const Node& node) const override {
    const OpInfo& info = node.op.info();
    if (info.eval || info.eval_dynamic) return {true, "its evaluation"};
    return {false, "only its body has a meaning"};
  }
  Result<std::unique_ptr<Executable>> compile(const CompileRequest& request) override {
    return std::unique_ptr<Executable>(
        std::make_unique<ReferenceExecutable>(request.graph, request.flush_subnormals));
  }
};

}  // namespace

Result<std::unique_ptr<Backend>> open(const BackendOptions&) {
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>());
}

DeviceInfo info() { return ReferenceBackend().info(); }

}  // namespace rlx::reference
