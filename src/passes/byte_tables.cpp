// Lookups in quantised tables (embeddings): rows are made real once they are looked up, so that no
// table of real numbers is in memory.
#include <algorithm>
#include <optional>

#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// dequantize(numbers, scale, zero) of a table whose rows are looked up.
struct Table {
  Value numbers, scale, zero;
  bool by_row = false;       ///< scales and zeros [rows, blocks of a row]; else they serve all rows
  op::Dequantize of_rows{};  ///< what makes rows real, scales being along their last axis
};

class ByteTables {
 public:
  explicit ByteTables(const Graph& graph) : graph_(graph), weight_only_(weight_only_nodes(graph)) {}

  /// The dequantize of a table of rows that the node looks up, or null.
  const Node* table_of(const Node& node) const {
    const auto* gather = node.op.as<op::Gather>();
    if (!gather || gather->axis != 0 || !graph_.type(node.inputs[0]).is_static()) return nullptr;
    const Node& made = graph_.node(node.inputs[0]);
    const auto* dequantize = made.op.as<op::Dequantize>();
    const bool known = dequantize && std::ranges::all_of(made.inputs, [&](ValueId id) {
                         return id.node < 0 || weight_only_[static_cast<std::size_t>(id.node)];
                       });
    const Type& table = graph_.type(node.inputs[0]);
    return known && table.rank() == 2 && table.elements() > 0 ? &made : nullptr;
  }

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    const Node* made = table_of(node);
    const auto table = made ? describe(rewriter, *made) : std::nullopt;
    if (!table) return false;
    Graph& target = rewriter.target();
    const Value places = target.handle(rewriter(node.inputs[1]));
    const auto looked_up = [&](const Value& x) {
      return target.add_one(op::Gather{0}, {x, places});
    };
    const auto of_rows = [&](const Value& x) { return x && table->by_row ? looked_up(x) : x; };
    const Value rows = looked_up(table->numbers);
    op::Dequantize dequantize = table->of_rows;
    dequantize.axis = rows.rank() - 1;
    const Value scale = of_rows(table->scale), zero = of_rows(table->zero);
    rewriter.replace(index, Values{zero ? target.add_one(dequantize, {rows, scale, zero})
                                        : target.add_one(dequantize, {rows, scale})});
    return true;
  }

 private:
  std::optional<Table> describe(Rewriter& rewriter, const Node& made) const {
    op::Dequantize dequantize = *made.op.as<op::Dequantize>();
    const Dims dims = graph_.type(made.inputs[0]).dims();
    Graph& target = rewriter.target();
    const auto at = [&](std::size_t i) {
      const bool there = i < made.inputs.size() && made.inputs[i].node >= 0;
      return there ? target.handle(rewriter(made.inputs[i])) : Value();
    };
    Table table{at(0), at(1), at(2), false, dequantize};
    if (graph_.type(made.inputs[1]).elements() == 1 && dequantize.block == 0) return table;
    const bool along_rows = dequantize.axis == 0 || dequantize.axis == -2;
    if (dequantize.block == 0 && !along_rows) return table;
    table.by_row = true;
    if (dequantize.block > 0)
      return along_rows || dims[1] % dequantize.block != 0 ? std::nullopt : std::optional(table);
    const Shape column{Dim(dims[0]), Dim(1)};  // all of a row is one block
    table.scale = reshape(table.scale, column);
    if (table.zero) table.zero = reshape(table.zero, column);
    table.of_rows.block = dims[1];
    return table;
  }

  const Graph& graph_;
  const std::vector<bool> weight_only_;
};

}  // namespace

Result<Graph> byte_tables(Graph graph) {
  ByteTables tables(graph);
  if (std::ranges::none_of(graph.nodes(), [&](const Node& n) { return tables.table_of(n); }))
    return graph;
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   return tables.visit(rewriter, index, node);
                 });
}

}  // namespace rlx::passes
