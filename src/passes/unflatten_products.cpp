// Products in the shape of their result: reshape(f(x w), d x n) = f(reshape(x, d x k) w).
#include <algorithm>

#include "passes/channel_maps.hpp"
#include "passes/passes.hpp"
#include "passes/pattern.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// A product of flattened rows; the maps behind it; and the reshape that alone reads the last.
struct FlatProduct : FoundProduct {
  Shape shape;  ///< of the reshape
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph) {}

  std::vector<FlatProduct> found() const {
    const auto& nodes = graph_.nodes();
    if (std::ranges::none_of(nodes, [](const Node& node) { return node.op.is<op::Reshape>(); }))
      return {};
    const ChannelMaps maps(graph_);
    const auto readers = readers_of(graph_);
    std::vector<FlatProduct> list;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!multiplies_rows(nodes[i])) continue;
      const auto index = static_cast<std::int32_t>(i);
      FlatProduct product{{index, maps.behind(index, 1)}, {}};
      const auto& behind = readers[static_cast<std::size_t>(product.last())];
      if (behind.size() != 1 || behind[0] < 0) continue;
      const Node& reshape = nodes[static_cast<std::size_t>(behind[0])];
      if (!takes_rows_apart(reshape, nodes[i].results[0])) continue;
      product.maps.push_back(behind[0]);
      product.shape = reshape.results[0].shape;
      list.push_back(std::move(product));
    }
    return list;
  }

 private:
  /// A matrix by a matrix.
  bool multiplies_rows(const Node& node) const {
    const auto* dot = node.op.as<op::DotGeneral>();
    return dot && dot->a_batch.empty() && node.results[0].is_static() &&
           node.results[0].rank() == 2 && graph_.type(node.inputs[0]).is_static() &&
           graph_.type(node.inputs[0]).rank() == 2 &&
           (dot->a_contract == Axes{1} || dot->a_contract == Axes{-1});
  }

  static bool takes_rows_apart(const Node& node, const Type& rows) {
    return node.op.is<op::Reshape>() && node.results[0].is_static() && node.results[0].rank() > 2 &&
           node.results[0].shape.back() == rows.shape.back() && rows.elements() > 0;
  }

  const Graph& graph_;
};

/// The operand with those rows, in its own shape where that is what was flattened.
Value with_rows(Value a, Shape shape) {
  shape.back() = a.shape().back();
  const Node& node = a.graph().node(a.id());
  if (node.op.is<op::Reshape>() && a.graph().type(node.inputs[0]).shape == shape)
    return a.graph().handle(node.inputs[0]);
  return reshape(a, shape);
}

Result<Value> rewritten(Rewriter& rewriter, const FlatProduct& found) {
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(found.product)];
  const Values inputs = rewriter.values_of(node);
  op::DotGeneral dot = *node.op.as<op::DotGeneral>();
  dot.a_contract = {std::ssize(found.shape) - 1};
  const Value y = rewriter.target().add_one(dot, {with_rows(inputs[0], found.shape), inputs[1]});
  const std::vector<std::int32_t> maps(found.maps.begin(), found.maps.end() - 1);
  return add_maps(rewriter, found.product, maps, y, [](Value operand) { return operand; });
}

}  // namespace

Result<Graph> unflatten_products(Graph graph) {
  try {
    const auto found = Finder(graph).found();
    return replace_found(std::move(graph), found, rewritten);
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
