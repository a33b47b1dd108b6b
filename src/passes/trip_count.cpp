// Evaluates the part of a body that its condition depends on, step by step.
#include "passes/trip_count.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "graph/op_info.hpp"

namespace rlx::passes {
namespace {

/// Of the operands of a host_loop and the inputs of its body: what stands before the carries.
constexpr std::size_t before_carries = 2;

using Count = std::optional<std::int64_t>;

bool is_true(const Tensor& condition) {
  return condition.elements() == 1 && condition.data()[0] != std::byte{0};
}

/// The part of a body that its condition depends on, in this and in earlier iterations.
class Control {
 public:
  Control(const op::HostLoop& loop, std::span<const Tensor* const> operands)
      : body_(*loop.body), carries_(static_cast<std::size_t>(loop.carries)), operands_(operands) {
    for (std::size_t i = 0; i < body_.nodes().size(); ++i) {
      if (body_.nodes()[i].op.is<op::Input>())
        input_number_.emplace(static_cast<std::int32_t>(i), input_number_.size());
    }
  }

  /// False where it reads what is not known, is random, or large.
  bool collect() {
    std::vector<ValueId> asked{body_.outputs()[0].value};
    while (!asked.empty()) {
      const ValueId id = asked.back();
      asked.pop_back();
      if (id.node < 0 || !nodes_.insert(id.node).second) continue;
      const Node& node = body_.node(id);
      if (const auto input = input_number_.find(id.node); input != input_number_.end()) {
        if (input->second < before_carries) continue;
        if (operands_[input->second] == nullptr) return false;
        if (is_carry(input->second)) asked.push_back(next_of(input->second));
        continue;
      }
      if (!is_simple(node)) return false;
      asked.insert(asked.end(), node.inputs.begin(), node.inputs.end());
    }
    return true;
  }

  /// Iterations until the condition is false or `most` are done; nothing where that takes too many.
  Result<Count> run(std::int64_t most) {
    constexpr std::int64_t limit = 16384;
    std::map<std::size_t, Tensor> inputs;  // by number
    bool changes = false;
    for (const std::int32_t index : nodes_) {
      const auto input = input_number_.find(index);
      if (input == input_number_.end()) continue;
      changes |= input->second == 0 || is_carry(input->second);
      if (input->second >= before_carries) inputs[input->second] = *operands_[input->second];
    }
    bool goes_on = true;
    std::int64_t step = 0;
    for (; goes_on && step < std::min(most, limit); ++step) {
      inputs[0] = Tensor::scalar(step);
      inputs[1] = Tensor::scalar(true);
      RLX_ASSIGN(const Results results, evaluated(inputs));
      goes_on = is_true(at(results, body_.outputs()[0].value));
      if (goes_on && !changes) {  // for ever
        step = most;
        break;
      }
      for (auto& [number, value] : inputs)
        if (is_carry(number)) value = at(results, next_of(number));
    }
    return goes_on && step < most ? Count() : Count(step);
  }

 private:
  using Results = std::map<std::int32_t, std::vector<Tensor>>;  ///< by node

  bool is_carry(std::size_t input) const {
    return input >= before_carries && input < before_carries + carries_;
  }
  /// What a carry is in the next iteration.
  ValueId next_of(std::size_t input) const {
    return body_.outputs()[1 + input - before_carries].value;
  }

  const Tensor* constant_of(std::int32_t index) const {
    const auto* constant = body_.nodes()[static_cast<std::size_t>(index)].op.as<op::Constant>();
    return constant ? &constant->value : nullptr;
  }

  static bool is_simple(const Node& node) {
    constexpr std::int64_t most_elements = 64;
    const OpTraits& traits = node.op.info().traits;
    if (traits.random || traits.stateful || traits.control_flow || node.op.is<op::Param>())
      return false;
    for (const Type& type : node.results)
      if (!type.is_static() || type.elements() > most_elements) return false;
    return true;
  }

  static const Tensor& at(const Results& results, ValueId id) {
    return results.at(id.node)[static_cast<std::size_t>(id.result)];
  }

  Result<Results> evaluated(const std::map<std::size_t, Tensor>& inputs) const {
    Results results;
    for (const std::int32_t index : nodes_) {
      const Node& node = body_.nodes()[static_cast<std::size_t>(index)];
      if (const auto input = input_number_.find(index); input != input_number_.end()) {
        results[index] = {inputs.at(input->second)};
      } else if (const Tensor* constant = constant_of(index)) {
        results[index] = {*constant};
      } else {
        std::vector<Tensor> operands;
        for (const ValueId id : node.inputs)
          operands.push_back(id.node < 0 ? Tensor() : at(results, id));
        RLX_ASSIGN(results[index], evaluate(node.op, operands));
      }
    }
    return results;
  }

  const Graph& body_;
  const std::size_t carries_;
  const std::span<const Tensor* const> operands_;
  std::map<std::int32_t, std::size_t> input_number_;  ///< by node
  std::set<std::int32_t> nodes_;                      ///< in the order in which they are evaluated
};

}  // namespace

Result<Count> trip_count(const op::HostLoop& loop, std::span<const Tensor* const> operands) {
  constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = no_end;
  if (operands[0]) most = std::max<std::int64_t>(operands[0]->as<std::int64_t>()[0], 0);
  if (operands[1] && !is_true(*operands[1])) return Count(0);
  Control control(loop, operands);
  if (!control.collect()) return Count();
  RLX_ASSIGN(const Count count, control.run(most));
  return count == no_end ? Count() : count;
}

}  // namespace rlx::passes
