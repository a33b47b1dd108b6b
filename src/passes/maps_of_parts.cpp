// Maps of parts. As a concatenation they would be stored and read again; as maps of their own they
// are written where the result is.
#include "passes/maps_of_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// A concatenation along an axis of its result, and where its parts begin; the end is the last.
struct Parts {
  std::size_t axis = 0;
  std::vector<std::int64_t> starts;
  std::size_t count() const { return starts.size() - 1; }
  bool operator==(const Parts&) const = default;
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : pattern_(graph), readers_(readers_of(graph)) {}

  /// The concatenation as parts of one value, a map of all of it behind it.
  std::optional<Parts> parts(std::int32_t index) const {
    const Node& node = graph().nodes()[static_cast<std::size_t>(index)];
    const auto* concat = node.op.as<op::Concat>();
    if (!concat || node.inputs.size() < 2 || !node.results[0].is_static() || !is_mapped(index))
      return std::nullopt;
    const Dims dims = node.results[0].dims();
    Parts parts{.axis = static_cast<std::size_t>(concat->axis < 0 ? concat->axis + std::ssize(dims)
                                                                  : concat->axis),
                .starts = {0}};
    const ValueId source = source_of(node.inputs[0]);
    for (const ValueId part : node.inputs) {
      const Dims own = graph().type(part).dims();
      if (source_of(part) != source || points_from(own, parts.axis) < fewest_points)
        return std::nullopt;
      parts.starts.push_back(parts.starts.back() + own[parts.axis]);
    }
    if (is_weight(source)) return std::nullopt;
    return parts;
  }

  /// Is the node's result read once, by a map of the same shape?
  bool is_mapped(std::int32_t index) const {
    const auto& readers = readers_[static_cast<std::size_t>(index)];
    if (readers.size() != 1 || readers[0] < 0) return false;
    const Node& reader = graph().nodes()[static_cast<std::size_t>(readers[0])];
    const Node& node = graph().nodes()[static_cast<std::size_t>(index)];
    return is_map(reader) && reader.results[0].shape == node.results[0].shape;
  }

  /// May a map be computed by parts in the place of its reader's operand?
  bool moves_along(ValueId id) const {
    return id.node >= 0 && is_map(graph().node(id)) && pattern_.read_once(id);
  }

  /// Launches and bytes of parts that are stored, put together and read, beside those of maps of
  /// their own.
  FusionQuestion question(std::int32_t index, const IoFusionGate& gate,
                          const GivenAnswers& given) const {
    const Node& node = graph().nodes()[static_cast<std::size_t>(index)];
    const std::int64_t bytes = node.results[0].bytes();
    std::int64_t launches = 2, traffic = 4 * bytes;
    for (const ValueId part : node.inputs) {
      if (graph().node(part).op.is<op::Slice>()) continue;
      ++launches;
      traffic += 2 * graph().type(part).bytes();
    }
    FusionQuestion asked{
        .what = fmt::format("map the {} parts of concat %{}", node.inputs.size(), index),
        .kind = "parts",
        .before = {launches, 0, 0, traffic},
        .after = {std::ssize(node.inputs), 0, 0, 2 * bytes}};
    decide(asked, gate, given);
    return asked;
  }

 private:
  /// Of rows that are shorter, registers would be half empty.
  static constexpr std::int64_t fewest_points = 16;

  const Graph& graph() const { return pattern_.graph(); }
  static bool is_map(const Node& node) {
    return node.op.info().traits.elementwise && node.results.size() == 1 &&
           node.results[0].is_static();
  }
  bool is_weight(ValueId id) const {
    return pattern_.is<op::Param>(id) || pattern_.is<op::Constant>(id);
  }
  static std::int64_t points_from(const Dims& dims, std::size_t axis) {
    std::int64_t points = 1;
    for (std::size_t i = axis; i < dims.size(); ++i) points *= dims[i];
    return points;
  }

  /// What a part is a piece of, be it changed by maps of it alone.
  ValueId source_of(ValueId id) const {
    constexpr int most_maps = 8;
    for (int i = 0; i < most_maps; ++i) {
      const Node& node = graph().node(id);
      if (node.op.is<op::Slice>()) return node.inputs[0];
      ValueId only;
      for (const ValueId operand : node.inputs) {
        if (operand.node < 0 || is_weight(operand)) continue;
        if (only.node >= 0 && !(only == operand)) return id;
        only = operand;
      }
      if (only.node < 0 || !moves_along(id)) return id;
      id = only;
    }
    return id;
  }

  const Pattern pattern_;
  const std::vector<std::vector<std::int32_t>> readers_;
};

class Maps {
 public:
  Maps(const Finder& finder, Rewriter& rewriter) : finder_(finder), rewriter_(rewriter) {}

  void begin(std::int32_t index, const Parts& parts) {
    const Node& node = rewriter_.source().nodes()[static_cast<std::size_t>(index)];
    known_[{index, 0}] = {parts, rewriter_.values_of(node)};
  }

  /// Replaces a map of parts. False: it is none.
  bool continue_with(std::int32_t index) {
    const Node& node = rewriter_.source().nodes()[static_cast<std::size_t>(index)];
    const auto found = std::ranges::find_if(
        node.inputs, [&](ValueId operand) { return known_.contains(operand); });
    if (found == node.inputs.end()) return false;
    const Parts parts = known_.at(*found).first;
    Values values;
    for (std::size_t k = 0; k < parts.count(); ++k) values.push_back(mapped(node, parts, k));
    rewriter_.replace(index, Values{concat(values, static_cast<std::int64_t>(parts.axis))});
    if (finder_.is_mapped(index)) known_[{index, 0}] = {parts, std::move(values)};
    return true;
  }

 private:
  /// The map on part k of its operands, which are aligned from the right. `depth`: maps behind it
  /// that have been entered.
  Value mapped(const Node& node, const Parts& parts, std::size_t k, int depth = 0) {
    const std::size_t rank = node.results[0].shape.size();
    Values operands;
    for (const ValueId operand : node.inputs) {
      if (operand.node < 0) {
        operands.emplace_back();
        continue;
      }
      const std::size_t own = rewriter_.source().type(operand).shape.size(), missing = rank - own;
      Parts part = parts;
      const bool varies = parts.axis >= missing &&
                          !(rewriter_.source().type(operand).shape[parts.axis - missing] == Dim(1));
      part.axis -= varies ? missing : 0;
      operands.push_back(varies ? piece(operand, part, k, depth)
                                : rewriter_.target().handle(rewriter_(operand)));
    }
    return rewriter_.target().add(node.op, operands)[0];
  }

  Value piece(ValueId operand, const Parts& parts, std::size_t k, int depth) {
    constexpr int deepest = 32;
    const auto known = known_.find(operand);
    if (known != known_.end() && known->second.first == parts) return known->second.second[k];
    if (depth < deepest && finder_.moves_along(operand))
      return mapped(rewriter_.source().node(operand), parts, k, depth + 1);
    const Value whole = rewriter_.target().handle(rewriter_(operand));
    Axes starts(whole.rank(), 0), limits(whole.rank(), op::slice_end);
    starts[parts.axis] = parts.starts[k];
    limits[parts.axis] = parts.starts[k + 1];
    return slice(whole, std::move(starts), std::move(limits));
  }

  const Finder& finder_;
  Rewriter& rewriter_;
  std::map<ValueId, std::pair<Parts, Values>> known_;  ///< by value of the source
};

}  // namespace

Result<Graph> maps_of_parts(Graph graph, const IoFusionGate& gate,
                            std::vector<FusionQuestion>* questions, const GivenAnswers& given) {
  if (std::ranges::none_of(graph.nodes(), [](const Node& n) { return n.op.is<op::Concat>(); }))
    return graph;
  const Finder finder(graph);
  std::optional<Maps> maps;
  const auto visit = [&](Rewriter& rewriter, std::int32_t index, const Node&) -> Result<bool> {
    if (!maps) maps.emplace(finder, rewriter);
    if (maps->continue_with(index)) return true;
    const std::optional<Parts> parts = finder.parts(index);
    if (!parts) return false;
    FusionQuestion asked = finder.question(index, gate, given);
    if (asked.fused) maps->begin(index, *parts);
    if (questions) questions->push_back(std::move(asked));
    return false;
  };
  return rewrite(graph, visit);
}

}  // namespace rlx::passes
