// Gathers by constant places, of several axes at once.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "graph/known_places.hpp"
#include "passes/passes.hpp"
#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// A gather along one axis by a constant list of places, all of them there.
struct Picked {
  std::int32_t node = -1;
  std::size_t axis = 0;
  std::int64_t extent = 0;
  std::vector<std::int64_t> places;

  /// So many times each element in turn; 0: it is something else.
  std::int64_t times() const {
    const auto count = static_cast<std::int64_t>(places.size());
    const std::int64_t times = extent == 0 ? 0 : count / extent;
    if (times < 2 || times * extent != count) return 0;
    for (std::int64_t i = 0; i < count; ++i)
      if (places[static_cast<std::size_t>(i)] != i / times) return 0;
    return times;
  }
};

class KnownGathers {
 public:
  explicit KnownGathers(const Graph& graph) : readers_(readers_of(graph)) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index) const {
    const auto found = picked(rewriter.source(), index);
    if (!found) return false;
    return repeat(rewriter, *found) || merge(rewriter, *found);
  }

 private:
  static std::optional<Picked> picked(const Graph& graph, std::int32_t index) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
    const auto* gather = node.op.as<op::Gather>();
    if (gather == nullptr) return std::nullopt;
    const Type& x = graph.type(node.inputs[0]);
    if (!x.is_static() || graph.type(node.inputs[1]).rank() != 1) return std::nullopt;
    Picked result{.node = index};
    result.axis =
        static_cast<std::size_t>(gather->axis < 0 ? gather->axis + x.rank() : gather->axis);
    result.extent = x.dims()[result.axis];
    result.places = known_places(graph.node(node.inputs[1]), result.extent).places;
    if (result.places.empty()) return std::nullopt;
    return result;
  }

  /// The gather that this one alone reads.
  std::optional<Picked> below(const Graph& graph, const Picked& outer) const {
    const ValueId x = graph.nodes()[static_cast<std::size_t>(outer.node)].inputs[0];
    if (readers_[static_cast<std::size_t>(x.node)].size() != 1) return std::nullopt;
    return picked(graph, x.node);
  }

  // gather(gather(x, each i times), each j times) = reshape(broadcast(x [.., n, 1, ..], [.., n, i,
  // ..])): a map without lists, as upsampling to the nearest element is.
  bool repeat(Rewriter& rewriter, const Picked& last) const {
    const Graph& source = rewriter.source();
    std::map<std::size_t, std::int64_t> times;
    ValueId x;
    for (std::optional<Picked> next = last;
         next && next->times() > 0 && !times.contains(next->axis); next = below(source, *next)) {
      times[next->axis] = next->times();
      x = source.nodes()[static_cast<std::size_t>(next->node)].inputs[0];
    }
    if (times.empty()) return false;
    Shape apart, repeated;
    const Dims dims = source.type(x).dims();
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      apart.emplace_back(dims[axis]), repeated.emplace_back(dims[axis]);
      const auto found = times.find(axis);
      if (found != times.end()) apart.emplace_back(1), repeated.emplace_back(found->second);
    }
    const Value rows = broadcast(reshape(rewriter.target().handle(rewriter(x)), apart), repeated);
    const Node& node = source.nodes()[static_cast<std::size_t>(last.node)];
    rewriter.replace(last.node, Values{reshape(rows, node.results[0].shape)});
    return true;
  }

  // gather(gather(x, i, a), j, a + 1) = reshape(gather(flat x, i * n + j, a)), where flat x has
  // both axes, the second of n elements, as one.
  bool merge(Rewriter& rewriter, const Picked& outer) const {
    // The list of all places is longer than two: each of its entries must be used often.
    constexpr std::int64_t least_uses = 8, most_places = 1 << 20, most_extent = 1 << 30;
    const Graph& source = rewriter.source();
    const auto inner = below(source, outer);
    if (!inner) return false;
    const auto& [first, second] =
        inner->axis < outer.axis ? std::tie(*inner, outer) : std::tie(outer, *inner);
    const auto count = static_cast<std::int64_t>(first.places.size() * second.places.size());
    const Type& result = source.nodes()[static_cast<std::size_t>(outer.node)].results[0];
    if (second.axis != first.axis + 1 || result.elements() < least_uses * count ||
        count > most_places || first.extent * second.extent > most_extent)
      return false;
    std::vector<std::int32_t> places;
    for (const std::int64_t i : first.places) {
      for (const std::int64_t j : second.places)
        places.push_back(static_cast<std::int32_t>(i * second.extent + j));
    }
    const ValueId x = source.nodes()[static_cast<std::size_t>(inner->node)].inputs[0];
    Shape flat = source.type(x).shape;
    flat[first.axis] = Dim(first.extent * second.extent);
    flat.erase(flat.begin() + static_cast<std::ptrdiff_t>(second.axis));
    const Value list = rewriter.target().constant(
        Tensor::of<std::int32_t>({count}, std::span<const std::int32_t>(places)));
    const Value rows = gather(reshape(rewriter.target().handle(rewriter(x)), flat), list,
                              static_cast<std::int64_t>(first.axis));
    rewriter.replace(outer.node, Values{reshape(rows, result.shape)});
    return true;
  }

  const std::vector<std::vector<std::int32_t>> readers_;
};

}  // namespace

Result<Graph> known_gathers(Graph graph) {
  const KnownGathers gathers(graph);
  return rewrite(std::move(graph), [&](Rewriter& rewriter, std::int32_t index, const Node&) {
    return gathers.visit(rewriter, index);
  });
}

}  // namespace rlx::passes
