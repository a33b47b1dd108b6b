// Rebuilds a graph node by node: a pass says what becomes of each node, the rest is copied.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "graph/value_map.hpp"
#include "rlx/graph.hpp"

namespace rlx::passes {

/// Copies nothing before something changes: until then the target is the source, value for value.
class Rewriter {
 public:
  explicit Rewriter(const Graph& source) : source_(source) {}

  const Graph& source() const { return source_; }
  /// The target to add to.
  Graph& target() {
    if (!mapped_) begin();
    return target_;
  }
  /// The target to look at.
  const Graph& so_far() const { return mapped_ ? target_ : source_; }
  /// Is the source all that there is?
  bool is_untouched() const { return !mapped_ && same_ == source_.nodes().size(); }

  /// Where a value of the source went.
  ValueId operator()(ValueId old) const { return mapped_ ? (*mapped_)(old) : old; }
  std::vector<ValueId> inputs_of(const Node& node) const {
    return mapped_ ? (*mapped_)(node.inputs) : node.inputs;
  }
  /// The rewritten inputs as handles of the target.
  Values values_of(const Node& node) {
    Values values;
    for (const ValueId input : node.inputs)
      values.push_back(input.node < 0 ? Value() : target().handle((*this)(input)));
    return values;
  }
  void replace(std::int32_t node, std::vector<ValueId> results) {
    if (!mapped_) begin();
    (*mapped_)[static_cast<std::size_t>(node)] = std::move(results);
  }
  void replace(std::int32_t node, const Values& results) {
    std::vector<ValueId> ids;
    for (const Value& result : results) ids.push_back(result.id());
    replace(node, std::move(ids));
  }
  /// What is added from now on comes from that node.
  void enter(std::int32_t index) {
    at_ = static_cast<std::size_t>(index);
    if (mapped_) target_.set_origin(source_.nodes()[at_].origin);
  }
  Status copy(std::int32_t index) {
    const auto at = static_cast<std::size_t>(index);
    if (!mapped_ && at == same_) {
      ++same_;
      return {};
    }
    return copy(index, inputs_of(source_.nodes()[at]));
  }
  Status add(std::int32_t index, Op op, std::vector<ValueId> inputs) {
    const Node& node = source_.nodes()[static_cast<std::size_t>(index)];
    if (op.attributes() == node.op.attributes())
      return inputs == inputs_of(node) ? copy(index) : copy(index, inputs);
    RLX_ASSIGN(auto results, target().try_add(std::move(op), inputs, node.name, node.origin));
    replace(index, std::move(results));
    return {};
  }
  Graph finish() {
    std::vector<GraphOutput> outputs;
    for (const GraphOutput& output : source_.outputs())
      outputs.push_back({output.name, (*this)(output.value)});
    target().set_outputs(std::move(outputs));
    return std::move(target_);
  }

 private:
  void begin() {
    target_.reserve(source_.nodes().size());
    mapped_.emplace(source_);
    for (std::size_t i = 0; i < same_; ++i) {
      const Node& node = source_.nodes()[i];
      (*mapped_)[i] = target_.try_copy(source_, node, node.inputs).value();
    }
    target_.set_origin(source_.nodes()[at_].origin);
  }
  Status copy(std::int32_t index, const std::vector<ValueId>& inputs) {
    const Node& node = source_.nodes()[static_cast<std::size_t>(index)];
    RLX_ASSIGN(auto results, target().try_copy(source_, node, inputs));
    replace(index, std::move(results));
    return {};
  }

  const Graph& source_;
  Graph target_;
  std::optional<ValueMap> mapped_;  ///< nothing: every value is where it was
  std::size_t same_ = 0;            ///< nodes that are copied as they are, before that
  std::size_t at_ = 0;
};

/// Rebuilds the graph; `visit(rewriter, index, node)` gives true where it replaced the node, false
/// to have it copied. A graph that is handed over comes back where nothing changed.
template <class Source, class Visit>
Result<Graph> rewrite(Source&& graph, Visit&& visit) {
  try {
    Rewriter rewriter(graph);
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const Node& node = graph.nodes()[i];
      rewriter.enter(index);
      RLX_ASSIGN(const bool replaced, visit(rewriter, index, node));
      if (!replaced) RLX_TRY(rewriter.copy(index));
    }
    if (rewriter.is_untouched()) return Graph(std::forward<Source>(graph));
    return rewriter.finish();
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
