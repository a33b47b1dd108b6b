// Concatenations that begin alike.
#include <map>
#include <utility>
#include <vector>

#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {

Result<Graph> nest_concats(Graph graph) {
  // What is joined along which axis, in the values of the graph before.
  std::map<std::pair<std::int64_t, std::vector<ValueId>>, ValueId> joined;
  return rewrite(std::move(graph),
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   const auto* concat = node.op.as<op::Concat>();
                   if (!concat) return false;
                   const std::int64_t axis =
                       concat->axis < 0 ? concat->axis + node.results[0].rank() : concat->axis;
                   const std::vector<ValueId>& parts = node.inputs;
                   joined.try_emplace({axis, parts}, ValueId{index, 0});
                   for (std::size_t count = parts.size(); count-- > 2;) {
                     const auto end = parts.begin() + static_cast<std::ptrdiff_t>(count);
                     const auto found = joined.find({axis, {parts.begin(), end}});
                     if (found == joined.end()) continue;
                     std::vector<ValueId> nested{rewriter(found->second)};
                     for (auto part = end; part != parts.end(); ++part)
                       nested.push_back(rewriter(*part));
                     RLX_TRY(rewriter.add(index, node.op, std::move(nested)));
                     return true;
                   }
                   return false;
                 });
}

}  // namespace rlx::passes
