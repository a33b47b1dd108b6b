// HIR to MIR: composites become their bodies, unless the device takes them whole.
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {

Result<Graph> lower(Graph graph, const Keep& keep) {
  bool again = false;  // bodies may hold composites
  auto lowered = rewrite(
      std::move(graph),
      [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        const OpInfo& info = node.op.info();
        if (!info.body || keep(graph, node)) return false;
        rewriter.replace(
            index, info.body(node.op.attributes(), rewriter.target(), rewriter.values_of(node)));
        again = true;
        return true;
      });
  if (!lowered.ok() || !again) return lowered;
  return lower(*std::move(lowered), keep);
}

}  // namespace rlx::passes
