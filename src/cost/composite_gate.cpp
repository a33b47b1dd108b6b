// The gate's answer to whether a device's own kernel of a composite pays.
#include "cost/composite_gate.hpp"

#include "base/error.hpp"
#include "cost/op_cost.hpp"
#include "cost/saturating.hpp"

namespace rlx::cost {

FusionQuestion ask_composite(const Graph& graph, const Node& node, const IoFusionGate& gate,
                             const GivenAnswers& given) {
  Graph body;
  Values values;
  for (const ValueId id : node.inputs) {
    if (id.node < 0) {
      values.emplace_back();
      continue;
    }
    const Type& type = graph.type(id);
    values.push_back(body.input(std::to_string(values.size()), type.dtype, type.shape));
  }
  node.op.info().body(node.op.attributes(), body, values);
  FusionQuestion question;
  question.what = fmt::format("keep {} as one kernel", node.op.name());
  question.kind = "composite";
  question.before = profile_graph_io(body);
  question.after = {1, 0, 0, saturating_add(operand_bytes(graph, node), result_bytes(node))};
  decide(question, gate, given);
  return question;
}

}  // namespace rlx::cost
