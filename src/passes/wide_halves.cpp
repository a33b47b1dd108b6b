// Casts stored halves up where they are computed with, and results down where they leave the graph.
#include "passes/wide_halves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/op_info.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"
#include "rlx/custom.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

class WideHalves {
 public:
  WideHalves(const Graph& graph, DType half) : graph_(graph), half_(half) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    if (is_half({index, 0}) && (node.op.is<op::Param>() || node.op.is<op::Constant>())) {
      // At once, that casts stand before all who may want to read them side by side.
      RLX_TRY(rewriter.copy(index));
      wide(rewriter, {index, 0});
      return true;
    }
    if (std::ranges::none_of(node.inputs, [&](ValueId id) { return is_half(id); })) return false;
    if (const auto* cast = node.op.as<op::Cast>(); cast && cast->dtype == f32) {
      rewriter.replace(index, Values{wide(rewriter, node.inputs[0])});
      return true;
    }
    if (!stays(rewriter, node)) {
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs)
        inputs.push_back(is_half(id) ? wide(rewriter, id).id() : target_of(rewriter, id));
      if (fits(rewriter.target(), node, inputs)) {
        RLX_TRY(rewriter.add(index, node.op, std::move(inputs)));
        ++widened;
        return true;
      }
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs)
      inputs.push_back(is_half(id) ? narrow(rewriter, id).id() : target_of(rewriter, id));
    RLX_TRY(rewriter.add(index, node.op, std::move(inputs)));
    return true;
  }

  int widened = 0;  ///< ops that compute in f32 instead

 private:
  bool is_half(ValueId id) const { return id.node >= 0 && graph_.type(id).dtype == half_; }
  static ValueId target_of(const Rewriter& rewriter, ValueId id) {
    return id.node < 0 ? id : rewriter(id);
  }

  /// The value in f32. Small constants become constants again, by which patterns are known.
  Value wide(Rewriter& rewriter, ValueId id) {
    Graph& graph = rewriter.target();
    const Value made = graph.handle(rewriter(id));
    if (made.dtype() == f32) return made;
    Value& known = wide_[made.id()];
    if (known) return known;
    constexpr std::int64_t small = 64;
    const auto* constant = graph.node(made.id()).op.as<op::Constant>();
    if (constant && constant->value.elements() <= small) {
      auto values = evaluate(Op(op::Cast{f32}), {&constant->value, 1});
      if (values.ok()) return known = graph.constant((*values)[0]);
    }
    return known = cast(made, f32);
  }

  Value narrow(Rewriter& rewriter, ValueId id) {
    const Value made = rewriter.target().handle(rewriter(id));
    if (made.dtype() == half_) return made;
    Value& known = narrow_[made.id()];
    if (!known) known = cast(made, half_);
    return known;
  }

  /// Is it left on halves: for what it is, or because it moves elements that are stored as such?
  bool stays(Rewriter& rewriter, const Node& node) const {
    const OpTraits& traits = node.op.info().traits;
    if (traits.stateful || traits.random || traits.control_flow || traits.data_dependent ||
        node.op.is<op::Custom>())
      return true;
    const bool moves = node.op.is<op::Reshape>() || node.op.is<op::Transpose>() ||
                       node.op.is<op::Slice>() || node.op.is<op::Broadcast>() ||
                       node.op.is<op::Gather>() || node.op.is<op::Concat>() ||
                       node.op.is<op::Pad>() || node.op.is<op::Reverse>();
    if (!moves) return false;
    return std::ranges::any_of(node.inputs, [&](ValueId id) {
      return is_half(id) && !graph_.node(id).op.is<op::Constant>() &&
             rewriter.target().type(rewriter(id)).dtype == half_;
    });
  }

  /// Does the op take f32, and give what it gave but f32 for halves?
  bool fits(const Graph& target, const Node& node, const std::vector<ValueId>& inputs) const {
    std::vector<const Type*> types;
    for (const ValueId id : inputs) types.push_back(id.node < 0 ? nullptr : &target.type(id));
    const auto results = node.op.info().infer(node.op.attributes(), InferArgs{types});
    if (!results.ok() || results->size() != node.results.size()) return false;
    for (std::size_t k = 0; k < node.results.size(); ++k) {
      const DType was = node.results[k].dtype, is = (*results)[k].dtype;
      if (is != (was == half_ ? f32 : was)) return false;
    }
    return true;
  }

  const Graph& graph_;
  const DType half_;
  std::map<ValueId, Value> wide_, narrow_;  ///< by value of the target
};

}  // namespace

Result<Graph> wide_halves(Graph graph, DType half, std::vector<Explanation::Claim>* claims) {
  const auto computes = [&](const Node& node) {
    return std::ranges::any_of(node.results, [&](const Type& type) { return type.dtype == half; });
  };
  if (std::ranges::none_of(graph.nodes(), computes)) return graph;
  WideHalves rules(graph, half);
  RLX_ASSIGN(
      Graph wide,
      rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        return rules.visit(rewriter, index, node);
      }));
  std::vector<GraphOutput> outputs = wide.outputs();
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const DType wanted = graph.type(graph.outputs()[k].value).dtype;
    const Value made = wide.handle(outputs[k].value);
    if (made.dtype() != wanted) outputs[k].value = cast(made, wanted).id();
  }
  wide.set_outputs(std::move(outputs));
  if (claims && rules.widened > 0) {
    claims->push_back({std::string(name_of(half)), "", true,
                       fmt::format("({}) ops on it compute in f32, and round where it is stored",
                                   rules.widened)});
  }
  return drop_dead(wide);
}

}  // namespace rlx::passes
