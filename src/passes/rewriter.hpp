// Rebuilds a graph node by node: a pass says what becomes of each node, the rest is copied.
#pragma once

#include <vector>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "graph/value_map.hpp"
#include "rlx/graph.hpp"

namespace rlx::passes {

class Rewriter {
 public:
  explicit Rewriter(const Graph& source) : source_(source), mapped_(source) {
    target_.reserve(source.nodes().size());
  }

  const Graph& source() const { return source_; }
  Graph& target() { return target_; }

  /// Where a value of the source went.
  ValueId operator()(ValueId old) const { return mapped_(old); }
  std::vector<ValueId> inputs_of(const Node& node) const { return mapped_(node.inputs); }
  /// The rewritten inputs as handles of the target.
  Values values_of(const Node& node) {
    Values values;
    for (const ValueId input : node.inputs)
      values.push_back(input.node < 0 ? Value() : target_.handle((*this)(input)));
    return values;
  }
  void replace(std::int32_t node, std::vector<ValueId> results) {
    mapped_[static_cast<std::size_t>(node)] = std::move(results);
  }
  void replace(std::int32_t node, const Values& results) {
    std::vector<ValueId> ids;
    for (const Value& result : results) ids.push_back(result.id());
    replace(node, std::move(ids));
  }
  Status copy(std::int32_t index) {
    const Node& node = source_.nodes()[static_cast<std::size_t>(index)];
    return copy(index, inputs_of(node));
  }
  Status add(std::int32_t index, Op op, std::vector<ValueId> inputs) {
    const Node& node = source_.nodes()[static_cast<std::size_t>(index)];
    if (op.attributes() == node.op.attributes()) return copy(index, inputs);
    RLX_ASSIGN(auto results, target_.try_add(std::move(op), inputs, node.name, node.origin));
    replace(index, std::move(results));
    return {};
  }
  Graph finish() {
    std::vector<GraphOutput> outputs;
    for (const GraphOutput& output : source_.outputs())
      outputs.push_back({output.name, (*this)(output.value)});
    target_.set_outputs(std::move(outputs));
    return std::move(target_);
  }

 private:
  Status copy(std::int32_t index, const std::vector<ValueId>& inputs) {
    const Node& node = source_.nodes()[static_cast<std::size_t>(index)];
    RLX_ASSIGN(auto results, target_.try_copy(source_, node, inputs));
    replace(index, std::move(results));
    return {};
  }

  const Graph& source_;
  Graph target_;
  ValueMap mapped_;
};

/// Rebuilds `graph`; `visit(rewriter, index, node)` gives true where it replaced the node, false to
/// have it copied.
template <class Visit>
Result<Graph> rewrite(const Graph& graph, Visit&& visit) {
  try {
    Rewriter rewriter(graph);
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const Node& node = graph.nodes()[i];
      rewriter.target().set_origin(node.origin);
      RLX_ASSIGN(const bool replaced, visit(rewriter, index, node));
      if (!replaced) RLX_TRY(rewriter.copy(index));
    }
    return rewriter.finish();
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
