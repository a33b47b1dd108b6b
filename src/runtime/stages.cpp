// Splitting programs where data decides shapes.
#include "runtime/stages.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/cancel_scope.hpp"
#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "cost/machine_model.hpp"
#include "graph/op_info.hpp"
#include "graph/value_map.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

bool is_unresolved(const Node& node) {
  const OpTraits& traits = node.op.info().traits;
  return (traits.data_dependent && !traits.control_flow) || traits.shape_operands ||
         std::any_of(node.results.begin(), node.results.end(),
                     [](const Type& type) { return !type.is_static(); });
}

bool is_source(const Op& op) {
  return op.is<op::Constant>() || op.is<op::Param>() || op.is<op::Input>();
}

/// Does what the node gives hang on weights alone, run after run? Parts compute such values for
/// themselves, once.
bool is_fixed(const Node& node, const std::vector<bool>& fixed) {
  const OpTraits& traits = node.op.info().traits;
  if (node.op.is<op::Param>()) return true;
  if (node.op.is<op::Input>() || traits.random || traits.stateful || traits.control_flow)
    return false;
  return std::ranges::all_of(node.inputs, [&](ValueId id) {
    return id.node < 0 || fixed[static_cast<std::size_t>(id.node)];
  });
}

/// "carried_", with as many underscores as it takes that no input or param has a name that starts
/// so: what the stages before handed over has one.
std::string unused_prefix(const Graph& graph) {
  std::string prefix = "carried_";
  const auto takes = [&](const Node& node) {
    const std::string* name = leaf_name(node.op);
    return name && name->starts_with(prefix);
  };
  while (std::any_of(graph.nodes().begin(), graph.nodes().end(), takes)) prefix += "_";
  return prefix;
}

/// Parts made for values seen lately that are kept: data may tell new ones in every run.
constexpr std::size_t next_kept = 16;

/// Keeps the last stage's outputs apart from inputs of the same name.
const std::string output_prefix = "output:";

}  // namespace

Result<std::unique_ptr<Stage>> Stage::make(Backend& backend, Graph graph,
                                           const CompileOptions& options, const Named& params,
                                           std::shared_ptr<const std::atomic<bool>> cancel_flag) {
  auto stage = std::make_unique<Stage>();
  stage->backend_ = &backend;
  stage->cancel_flag_ = std::move(cancel_flag);
  stage->options_ = options;
  stage->params_ = params;
  stage->graph_ = std::move(graph);
  if (!is_static(stage->graph_)) stage->find_split();
  Graph part = stage->graph_;
  if (!stage->reason_.empty()) {
    RLX_ASSIGN(part, stage->part_before());
  }
  RLX_ASSIGN(const Graph live, passes::drop_dead(std::move(part)));
  RLX_ASSIGN(stage->program_, compile_static(backend, live, options));
  stage->program_.executable->end_runs_when(stage->cancel_flag_);
  for (const auto& [name, value] : params)
    RLX_TRY(stage->program_.executable->set_param(name, value));
  return stage;
}

std::string Stage::carried_name(ValueId id) const {
  return fmt::format("{}{}_{}", carried_, id.node, id.result);
}

void Stage::find_split() {
  carried_ = unused_prefix(graph_);
  const auto& nodes = graph_.nodes();
  waits_.assign(nodes.size(), false);
  fixed_.assign(nodes.size(), false);
  const auto waits = [&](ValueId id) {
    return id.node >= 0 && waits_[static_cast<std::size_t>(id.node)];
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const bool after = std::any_of(node.inputs.begin(), node.inputs.end(), waits);
    waits_[i] = after || is_unresolved(node);
    fixed_[i] = !waits_[i] && is_fixed(node, fixed_);
    if (!waits_[i]) continue;
    const OpTraits& traits = node.op.info().traits;
    if (!after && reason_.empty()) {
      reason_ = fmt::format("data decides the dims of {}{}", node.op.name(),
                            node.origin.empty() ? "" : " (" + node.origin.text() + ")");
    }
    const bool on_host = !after && node.op.info().eval_dynamic;
    if (on_host) host_nodes_.push_back(static_cast<std::int32_t>(i));
    for (const ValueId id : node.inputs) {
      if (id.node < 0 || waits(id)) continue;
      const Type& type = graph_.type(id);
      const bool may_decide =
          !is_float(type.dtype) && !is_complex(type.dtype) && type.elements() <= 64;
      const bool decides = may_decide && (traits.shape_operands || traits.control_flow) &&
                           !node.op.info().eval_dynamic;
      if (decides || on_host || !fixed_[static_cast<std::size_t>(id.node)])
        handed_over_[id] = handed_over_[id] || decides;
    }
  }
  for (const GraphOutput& output : graph_.outputs()) {
    const auto node = static_cast<std::size_t>(output.value.node);
    if (!waits_[node] && !fixed_[node]) handed_over_.try_emplace(output.value, false);
  }
}

Result<Graph> Stage::part_before() const {
  Graph part;
  ValueMap mapped(graph_);
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    if (waits_[i] && !is_source(node.op)) continue;
    RLX_ASSIGN(mapped[i], part.try_copy(graph_, node, mapped(node.inputs)));
  }
  std::vector<GraphOutput> outputs;
  for (const auto& [id, decides] : handed_over_) {
    if (!is_source(graph_.node(id).op)) outputs.push_back({carried_name(id), mapped(id)});
  }
  part.set_outputs(std::move(outputs));
  return part;
}

std::vector<const void*> Stage::slots_of(const Named& inputs) const {
  std::vector<const void*> slots;
  for (const IoInfo& input : program_.inputs) slots.push_back(inputs.at(input.name).data());
  return slots;
}

Result<Stage::Named> Stage::run_program(const Named& inputs) {
  RLX_TRY(program_.executable->run(slots_of(inputs)));
  const plan::Plan& plan = program_.executable->plan();
  Named values = inputs;
  kept_.resize(plan.outputs.size());
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    const Type& type = plan.output_types[i];
    Tensor& tensor = kept_[i];
    if (tensor.shared_data().use_count() != 1) tensor = Tensor(type.dtype, type.dims());
    const std::int64_t offset = plan.buffers[static_cast<std::size_t>(plan.outputs[i])].offset;
    std::memcpy(tensor.mutable_data(), program_.executable->arena() + offset, tensor.bytes());
    values[(reason_.empty() ? output_prefix : "") + program_.outputs[i].name] = tensor;
  }
  return values;
}

Result<Tensor> Stage::value_of(ValueId id, const Named& values) const {
  const Op& op = graph_.node(id).op;
  if (const auto* constant = op.as<op::Constant>()) return constant->value;
  if (const auto* input = op.as<op::Input>()) return values.at(input->name);
  if (const auto* param = op.as<op::Param>()) {
    const auto set = params_.find(param->name);
    if (set != params_.end()) return set->second;
    if (param->data.empty())
      return bad_input("The param ({}) has no value: set_param gives it one.", param->name);
    return param->data;
  }
  return values.at(carried_name(id));
}

Result<std::vector<Tensor>> Stage::evaluate_host_node(std::int32_t index,
                                                      const Named& values) const {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
  std::vector<Tensor> inputs;
  for (const ValueId id : node.inputs) {
    if (id.node < 0) {
      inputs.emplace_back();
      continue;
    }
    RLX_ASSIGN(Tensor input, value_of(id, values));
    inputs.push_back(std::move(input));
  }
  return evaluate(node.op, inputs);
}

Result<Stage::Named> Stage::evaluate_host_nodes(const Named& values) const {
  Named results = values;
  const CancelScope scope(cancel_flag_.get());
  for (const std::int32_t index : host_nodes_) {
    RLX_ASSIGN(const std::vector<Tensor> tensors, evaluate_host_node(index, values));
    for (std::size_t k = 0; k < tensors.size(); ++k)
      results[carried_name({index, static_cast<std::int32_t>(k)})] = tensors[k];
  }
  return results;
}

bool Stage::decides_anything() const {
  return std::any_of(handed_over_.begin(), handed_over_.end(), [&](const auto& entry) {
    return entry.second && !graph_.node(entry.first).op.template is<op::Constant>();
  });
}

std::string Stage::key_of(const Named& values) const {
  std::string key;
  for (const std::int32_t index : host_nodes_) {
    for (std::size_t k = 0; k < graph_.nodes()[static_cast<std::size_t>(index)].results.size();
         ++k) {
      key += fmt::format(
          "[{}]",
          fmt::join(values.at(carried_name({index, static_cast<std::int32_t>(k)})).dims(), ","));
    }
  }
  for (const auto& [id, decides] : handed_over_) {
    if (!decides) continue;
    const Op& op = graph_.node(id).op;
    const auto* input = op.as<op::Input>();
    if (!input && is_source(op)) continue;
    const Tensor& value = values.at(input ? input->name : carried_name(id));
    key.append(reinterpret_cast<const char*>(value.data()), value.bytes());
  }
  return key;
}

Result<Graph> Stage::part_after(const Named& values) const {
  Graph next;
  ValueMap mapped(graph_);
  const auto carried = [&](ValueId id, bool constant) {
    const Tensor& value = values.at(carried_name(id));
    return constant ? next.constant(value).id()
                    : next.input(carried_name(id), value.dtype(), to_shape(value.dims())).id();
  };
  for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const Node& node = graph_.nodes()[i];
    const auto decided = handed_over_.find({index, 0});
    if (const auto* input = node.op.as<op::Input>();
        input && decided != handed_over_.end() && decided->second) {
      next.input(input->name, input->dtype, node.results[0].shape);
      mapped[i] = {next.constant(values.at(input->name)).id()};
    } else if (is_source(node.op)) {
      RLX_ASSIGN(mapped[i], next.try_add(node.op, {}, node.name, node.origin));
    } else if (std::find(host_nodes_.begin(), host_nodes_.end(), index) != host_nodes_.end()) {
      for (std::size_t k = 0; k < node.results.size(); ++k)
        mapped[i].push_back(carried({index, static_cast<std::int32_t>(k)}, false));
    } else if (!waits_[i]) {
      mapped[i].resize(node.results.size());
      if (fixed_[i]) {
        RLX_ASSIGN(mapped[i], next.try_copy(graph_, node, mapped(node.inputs)));
      }
      for (std::size_t k = 0; k < node.results.size(); ++k) {
        const auto found = handed_over_.find({index, static_cast<std::int32_t>(k)});
        if (found != handed_over_.end()) mapped[i][k] = carried(found->first, found->second);
      }
    } else {
      RLX_ASSIGN(mapped[i], next.try_add(node.op, mapped(node.inputs), node.name, node.origin));
    }
  }
  std::vector<GraphOutput> outputs;
  for (const GraphOutput& output : graph_.outputs())
    outputs.push_back({output.name, mapped(output.value)});
  next.set_outputs(std::move(outputs));
  return next;
}

Result<std::vector<Tensor>> Stage::run(const Named& inputs) {
  RLX_ASSIGN(const Named computed, run_program(inputs));
  if (reason_.empty()) {
    std::vector<Tensor> outputs;
    for (const IoInfo& output : program_.outputs)
      outputs.push_back(computed.at(output_prefix + output.name));
    return outputs;
  }
  RLX_ASSIGN(const Named values, evaluate_host_nodes(computed));
  if (*cancel_flag_) return run_was_cancelled();
  RLX_ASSIGN(Stage* const next, next_for(values));
  return next->run(values);
}

Result<std::vector<double>> Stage::time_steps(const Named& inputs, int runs) {
  RLX_ASSIGN(const Named computed, run_program(inputs));
  RLX_ASSIGN(std::vector<double> times, program_.executable->time_steps(slots_of(inputs), runs));
  if (reason_.empty()) return times;
  for (const std::int32_t index : host_nodes_) {
    std::vector<double> own(static_cast<std::size_t>(std::max(runs, 1)));
    for (double& us : own) {
      const auto start = std::chrono::steady_clock::now();
      RLX_TRY(evaluate_host_node(index, computed));
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      us = time.count();
    }
    std::ranges::nth_element(own, own.begin() + std::ssize(own) / 2);
    times.push_back(own[own.size() / 2]);
  }
  RLX_ASSIGN(const Named values, evaluate_host_nodes(computed));
  RLX_ASSIGN(Stage* const next, next_for(values));
  RLX_ASSIGN(const std::vector<double> behind, next->time_steps(values, runs));
  times.insert(times.end(), behind.begin(), behind.end());
  return times;
}

Result<Stage*> Stage::next_for(const Named& values) {
  std::string key = key_of(values);
  for (auto it = next_.begin(); it != next_.end(); ++it) {
    if (it->first != key) continue;
    next_.splice(next_.begin(), next_, it);
    return next_.front().second.get();
  }
  RLX_ASSIGN(const Graph after, part_after(values));
  RLX_ASSIGN(Graph graph, specialised(after, {}, {}));
  // Without a node evaluated or a value that decides dims, the next stage would stand where this
  // one does.
  if (host_nodes_.empty() && !decides_anything())
    return unsupported("The program cannot go on: {}.", reason_);
  RLX_ASSIGN(auto next, make(*backend_, std::move(graph), options_, params_, cancel_flag_));
  next_.emplace_front(std::move(key), std::move(next));
  if (next_.size() > next_kept) next_.pop_back();
  return next_.front().second.get();
}

std::vector<const Stage*> Stage::parts() const {
  std::vector<const Stage*> list{this};
  while (!list.back()->next_.empty())
    list.push_back(list.back()->next_.front().second.get());  // of the last run
  return list;
}

std::vector<Stage::HostNode> Stage::host_nodes() const {
  const cost::MachineModel* const model = backend_->model();
  std::vector<HostNode> nodes;
  for (const std::int32_t index : host_nodes_) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    HostNode host{std::string(node.op.name())};
    double elements = 0;
    for (const ValueId id : node.inputs) {
      if (id.node < 0) continue;
      elements += static_cast<double>(graph_.type(id).elements());
      host.bytes += static_cast<double>(graph_.type(id).bytes());
    }
    if (model) host.predicted_ns = model->host_call + elements * model->host_element;
    nodes.push_back(std::move(host));
  }
  return nodes;
}

Status Stage::set_param(const std::string& name, const Tensor& value) {
  params_[name] = value;
  RLX_TRY(program_.executable->set_param(name, value));
  for (const auto& [key, stage] : next_) RLX_TRY(stage->set_param(name, value));
  return {};
}

}  // namespace rlx
