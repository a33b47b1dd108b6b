// Evaluates what weights are made of.
#include "plan/weight_values.hpp"

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "rlx/mapped.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {

std::string preparing(const Node& node) {
  return "preparing weights of " +
         (node.origin.empty() ? std::string(node.op.name()) : node.origin.text());
}

const std::vector<Tensor>* WeightValues::known(ValueId id) const {
  const auto found = values_.find(id.node);
  if (found != values_.end()) return &found->second;
  return common_ ? common_->known(id) : nullptr;
}

std::optional<Tensor> WeightValues::ready(ValueId id) const {
  if (const auto* results = known(id)) return (*results)[static_cast<std::size_t>(id.result)];
  const Op& op = graph_.node(id).op;
  if (const auto* constant = op.as<op::Constant>()) return constant->value;
  const auto* param = op.as<op::Param>();
  if (!param) return std::nullopt;
  const auto set = params_.find(param->name);
  if (set != params_.end()) return set->second;
  return param->data.empty() ? std::nullopt : std::optional(param->data);
}

Result<std::optional<Tensor>> WeightValues::value(ValueId id) {
  if (auto there = ready(id)) return there;
  const Node& node = graph_.node(id);
  if (const auto* param = node.op.as<op::Param>()) {
    missing = param->name;
    return std::optional<Tensor>();
  }
  if (const auto sum = byte_sum(graph_, id); sum && is_for_one(sum->wide)) return summed(id, *sum);
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
  if (!results.ok()) return std::move(results.error()).while_(preparing(node));
  for (const ValueId input : node.inputs) {
    if (input.node >= 0) release(input);
  }
  const Tensor result = (*results)[static_cast<std::size_t>(id.result)];
  values_[id.node] = *std::move(results);
  return std::optional(result);
}

// The cast of the bytes would be four times as large as they are.
bool WeightValues::is_for_one(ValueId id) const {
  const auto uses = uses_.find(id.node);
  return !known(id) && (uses == uses_.end() || uses->second <= 1);
}

Result<std::optional<Tensor>> WeightValues::summed(ValueId id, const ByteSum& sum) {
  RLX_ASSIGN(const std::optional<Tensor> bytes, value(sum.bytes));
  if (!bytes) return std::optional<Tensor>();
  Tensor result(i32, graph_.type(id).dims());
  sum_bytes(sum, *bytes, reinterpret_cast<std::int32_t*>(result.mutable_data()));
  release(sum.wide);
  release(sum.bytes);
  values_[id.node] = {result};
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

bool WeightValues::is_for_many(ValueId id) const {
  const auto uses = uses_.find(id.node);
  return uses != uses_.end() && uses->second > 1;
}

void WeightValues::release(ValueId id) {
  const auto left = uses_.find(id.node);
  if (left == uses_.end() || --left->second > 0) return;
  values_.erase(id.node);
  if (common_ && common_->is_for_many(id)) return;
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
