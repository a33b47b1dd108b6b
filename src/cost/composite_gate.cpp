// The gate's answer to whether a device's own kernel of a composite pays.
#include "cost/composite_gate.hpp"

#include "base/error.hpp"
#include "cost/op_cost.hpp"
#include "cost/saturating.hpp"

namespace rlx::cost {

namespace {

/// The node by itself: as it is, or as its body.
Graph alone(const Graph& graph, const Node& node, bool as_body) {
  Graph result;
  Values values;
  for (const ValueId id : node.inputs) {
    if (id.node < 0) {
      values.emplace_back();
      continue;
    }
    const Type& type = graph.type(id);
    values.push_back(result.input(std::to_string(values.size()), type.dtype, type.shape));
  }
  const Values results = as_body ? node.op.info().body(node.op.attributes(), result, values)
                                 : result.add(node.op, values);
  for (const Value& value : results) result.output(std::to_string(result.outputs().size()), value);
  return result;
}

}  // namespace

FusionQuestion ask_composite(const Graph& graph, const Node& node, const IoFusionGate& gate,
                             const Profiler& planned, const GivenAnswers& given) {
  const Graph body = alone(graph, node, true);
  FusionQuestion question;
  question.what = fmt::format("keep {} as one kernel", node.op.name());
  question.kind = "composite";
  const auto before = planned(body), after = planned(alone(graph, node, false));
  if (before.ok() && after.ok()) {
    question.before = *before;
    question.after = *after;
  } else {
    question.before = profile_graph_io(body);
    question.after = {1, 0, 0, saturating_add(operand_bytes(graph, node), result_bytes(node))};
  }
  decide(question, gate, given);
  return question;
}

}  // namespace rlx::cost
