// Values that depend on params and constants alone.
#include "graph/weight_only.hpp"

#include <algorithm>

#include "graph/op_info.hpp"

namespace rlx {

std::vector<bool> weight_only_nodes(const Graph& graph) {
  std::vector<bool> weight_only(graph.nodes().size(), false);
  for (std::size_t i = 0; i < weight_only.size(); ++i) {
    const Node& node = graph.nodes()[i];
    const OpTraits& traits = node.op.info().traits;
    if (node.op.is<op::Param>() || node.op.is<op::Constant>()) {
      weight_only[i] = true;
      continue;
    }
    const bool pure = !traits.stateful && !traits.random && !traits.control_flow &&
                      !traits.data_dependent && !traits.shape_operands;
    weight_only[i] = pure && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                       return id.node < 0 || weight_only[static_cast<std::size_t>(id.node)];
                     });
  }
  return weight_only;
}

}  // namespace rlx
