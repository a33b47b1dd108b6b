// Evaluates what weights are made of.
#include "plan/weight_values.hpp"

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

const std::vector<Tensor>* WeightValues::known(ValueId id) const {
  const auto found = values_.find(id.node);
  if (found != values_.end()) return &found->second;
  return common_ ? common_->known(id) : nullptr;
}

std::optional<Tensor> WeightValues::param_value(const op::Param& param) {
  const auto set = params_.find(param.name);
  if (set != params_.end()) return set->second;
  if (!param.data.empty()) return param.data;
  missing = param.name;
  return std::nullopt;
}

Result<std::optional<Tensor>> WeightValues::value(ValueId id) {
  if (const auto* results = known(id))
    return std::optional((*results)[static_cast<std::size_t>(id.result)]);
  const Node& node = graph_.node(id);
  if (const auto* param = node.op.as<op::Param>()) return param_value(*param);
  if (const auto* constant = node.op.as<op::Constant>()) return std::optional(constant->value);
  std::vector<Tensor> inputs;
  for (const ValueId input : node.inputs) {
    if (input.node < 0) {
      inputs.emplace_back();
      continue;
    }
    RLX_ASSIGN(auto operand, value(input));
    if (!operand) return std::optional<Tensor>();
    inputs.push_back(*std::move(operand));
  }
  auto results = evaluate(node.op, inputs);
  if (!results.ok())
    return std::move(results.error())
        .while_("preparing weights of " +
                (node.origin.empty() ? std::string(node.op.name()) : node.origin));
  for (const ValueId input : node.inputs) {
    if (input.node >= 0) release(input);
  }
  const Tensor result = (*results)[static_cast<std::size_t>(id.result)];
  values_[id.node] = *std::move(results);
  return std::optional(result);
}

Result<std::optional<Tensor>> WeightValues::take(ValueId id) {
  announce(id);
  RLX_ASSIGN(std::optional<Tensor> result, value(id));
  release(id);
  return result;
}

void WeightValues::announce(ValueId id) {
  if (uses_[id.node]++ > 0 || (common_ && common_->known(id))) return;
  for (const ValueId input : graph_.node(id).inputs) {
    if (input.node >= 0) announce(input);
  }
}

void WeightValues::release(ValueId id) {
  const auto left = uses_.find(id.node);
  if (left == uses_.end() || --left->second > 0) return;
  values_.erase(id.node);
  const Op& op = graph_.node(id).op;
  if (const auto* constant = op.as<op::Constant>()) forget_pages(constant->value);
  if (const auto* param = op.as<op::Param>()) forget_pages(param->data);
}

void Owners::mark(std::int32_t node, std::int32_t owner) {
  std::int32_t& known = owner_[static_cast<std::size_t>(node)];
  if (known == owner || known == many) return;
  known = known == nobody ? owner : many;
  for (const ValueId input : graph_.nodes()[static_cast<std::size_t>(node)].inputs) {
    if (input.node >= 0) mark(input.node, known);
  }
}

}  // namespace rlx::plan
