// Finds norms whose shape serves kernels badly, and computes them in another.
#include "passes/recast_norms.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// The kernels that it takes show beside smaller values.
constexpr std::int64_t fewest_grouped = 1024, fewest_apart = 32768;

/// A value and the maps behind it that have its shape, `seen`, and are computed in another.
class Recast {
 public:
  /// [..., groups, channels of a group] as [..., channels].
  static Recast together(Dims seen) { return {std::move(seen), 0}; }
  /// The last axis but one in so many parts.
  static Recast apart(Dims seen, std::int64_t parts) { return {std::move(seen), parts}; }

  const Dims& seen() const { return seen_; }
  bool is_apart() const { return parts_ > 0; }
  Shape computed() const { return to_shape(changed(seen_)); }
  /// Does something reduce it that is worth it?
  bool reduced = false;

  /// Is the operand of a map little beside the value in that shape, too?
  bool suits(const Dims& operand) const {
    constexpr std::int64_t fewest_points_each = 8;
    return fewest_points_each * element_count(changed(repeated(operand))) <= element_count(seen_);
  }

  /// Such an operand for the map in that shape.
  Value operand(const Value& value) const {
    if (value.type().elements() == 1) return reshape(value, Shape{});
    const Dims dims = repeated(value.type().dims());
    const Value each = is_apart() ? value : broadcast(value, to_shape(dims));
    return reshape(each, to_shape(changed(dims)));
  }

  /// The axes of the computed shape that a reduction over `axes` of the seen one, its last
  /// dimension kept, runs over first; nothing where it is no reduction of a norm.
  std::optional<Axes> first_axes(const Axes& axes) const {
    const std::int64_t last = std::ssize(seen_) - 1;
    if (is_apart())
      return axes == Axes{last - 1} ? std::optional(Axes{last - 1, last}) : std::nullopt;
    Axes outer;
    std::int64_t rows = 1;
    for (const std::int64_t axis : axes) {
      if (axis == last - 1) return std::nullopt;
      if (axis == last) continue;
      outer.push_back(axis);
      rows *= seen_[static_cast<std::size_t>(axis)];
    }
    return rows > 1 && outer.size() + 1 == axes.size() ? std::optional(outer) : std::nullopt;
  }

  /// The result of the reduction, of what the first axes gave.
  Value reduced_result(const Value& first, Reduction kind) const {
    Dims dims = first.type().dims();
    if (is_apart()) {
      dims.erase(dims.end() - 2);
      return reshape(first, to_shape(dims));
    }
    dims.pop_back();
    dims.insert(dims.end(), seen_.end() - 2, seen_.end());
    return reduce(reshape(first, to_shape(dims)), kind, {std::ssize(dims) - 1}, true);
  }

 private:
  Recast(Dims seen, std::int64_t parts) : seen_(std::move(seen)), parts_(parts) {}

  /// The operand's dims, as many as the value's, with all channels of the groups.
  Dims repeated(Dims operand) const {
    operand.insert(operand.begin(), seen_.size() - operand.size(), 1);
    if (!is_apart()) std::copy(seen_.end() - 2, seen_.end(), operand.end() - 2);
    return operand;
  }

  /// Dims of as many axes as the seen ones, in the computed shape.
  Dims changed(Dims dims) const {
    const auto axis = dims.end() - 2;
    if (!is_apart()) {
      *axis *= dims.back();
      dims.pop_back();
      return dims;
    }
    const std::int64_t parts = *axis == 1 ? 1 : parts_;
    *axis /= parts;
    dims.insert(axis, parts);
    return dims;
  }

  Dims seen_;
  std::int64_t parts_ = 0;
};

/// Into how many parts an axis of that length is taken; 0: into none. Short ones are mostly of
/// channels, whose rows are turned.
std::int64_t parts_of(std::int64_t length) {
  constexpr std::int64_t fewest = 4, most = 64, shortest = 512;
  std::int64_t best = 0;
  if (length < shortest) return best;
  for (std::int64_t parts = fewest; parts <= most && parts * parts <= length; ++parts) {
    if (length % parts == 0 && (best == 0 || parts <= 16)) best = parts;
  }
  return best;
}

class Finder {
 public:
  Finder(const Graph& graph, int workers)
      : graph_(graph), readers_(readers_of(graph)), of_(graph.nodes().size(), -1) {
    for (std::size_t i = 0; i < of_.size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (splits_channels(node)) {
        of_[i] = static_cast<int>(list_.size());
        list_.push_back(Recast::together(node.results[0].dims()));
      } else if (is_map(node)) {
        of_[i] = recast_of_map(node);
      } else if (node.op.is<op::Reduce>()) {
        if (workers > 1) add_long_axis(node);
        if (first_axes(node)) list_[static_cast<std::size_t>(at(node.inputs[0]))].reduced = true;
      }
    }
  }

  bool any() const { return std::ranges::any_of(list_, &Recast::reduced); }

  /// How the value is computed, if in another shape.
  const Recast* recast(ValueId id) const {
    const Recast* const found = at(id) < 0 ? nullptr : &list_[static_cast<std::size_t>(at(id))];
    return found && found->reduced ? found : nullptr;
  }

  bool splits_channels(const Node& node) const {
    if (!node.op.is<op::Reshape>() || !node.results[0].is_static()) return false;
    const Type& image = graph_.type(node.inputs[0]);
    const Dims split = node.results[0].dims();
    return image.is_static() && is_float(image.dtype) && split.size() >= 3 &&
           std::min(split.back(), split[split.size() - 2]) > 1 &&
           element_count(split) >= fewest_grouped &&
           image.shape == Recast::together(split).computed();
  }

  static bool is_map(const Node& node) {
    return node.op.info().traits.elementwise && node.results.size() == 1 &&
           node.results[0].is_static();
  }

  /// See Recast::first_axes.
  std::optional<Axes> first_axes(const Node& node) const {
    const auto& reduce = *node.op.as<op::Reduce>();
    if (at(node.inputs[0]) < 0 || !reduce.keep_dims || reduce.kind == Reduction::mean)
      return std::nullopt;
    return list_[static_cast<std::size_t>(at(node.inputs[0]))].first_axes(reduce.axes);
  }

 private:
  int at(ValueId id) const { return id.node < 0 ? -1 : of_[static_cast<std::size_t>(id.node)]; }

  /// A value of which the last axis but one is reduced and which a map reads, too, is taken apart.
  void add_long_axis(const Node& node) {
    const auto& reduce = *node.op.as<op::Reduce>();
    const ValueId x = node.inputs[0];
    const Type& type = graph_.type(x);
    if (at(x) >= 0 || x.result != 0 || !type.is_static() || !is_float(type.dtype) ||
        type.rank() < 2 || reduce.axes != Axes{type.rank() - 2} || type.elements() < fewest_apart)
      return;
    const Dims dims = type.dims();
    const std::int64_t parts = parts_of(dims[dims.size() - 2]);
    const bool is_mapped =
        std::ranges::any_of(readers_[static_cast<std::size_t>(x.node)], [&](std::int32_t reader) {
          if (reader < 0) return false;
          const Node& map = graph_.nodes()[static_cast<std::size_t>(reader)];
          return is_map(map) && map.results[0].shape == type.shape;
        });
    if (parts == 0 || !is_mapped) return;
    of_[static_cast<std::size_t>(x.node)] = static_cast<int>(list_.size());
    list_.push_back(Recast::apart(dims, parts));
  }

  /// That of an operand whose shape the result has, where the others suit it.
  int recast_of_map(const Node& node) const {
    int found = -1;
    for (const ValueId id : node.inputs) {
      if (id.node < 0 || !graph_.type(id).is_static()) return -1;
      if (found < 0 && graph_.type(id).shape == node.results[0].shape) found = at(id);
    }
    if (found < 0) return -1;
    const Recast& recast = list_[static_cast<std::size_t>(found)];
    for (const ValueId id : node.inputs) {
      const bool whole = graph_.type(id).shape == node.results[0].shape;
      // Another value would be read in another shape than that of the kernel that makes it.
      const bool suits =
          whole ? !recast.is_apart() || at(id) == found : recast.suits(graph_.type(id).dims());
      if (!suits) return -1;
    }
    return found;
  }

  const Graph& graph_;
  std::vector<std::vector<std::int32_t>> readers_;
  std::vector<int> of_;  ///< by node: an index into list_, or -1
  std::vector<Recast> list_;
};

class Rewriting {
 public:
  Rewriting(const Graph& graph, const Finder& finder) : graph_(graph), finder_(finder) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    if (const Recast* const recast = finder_.recast({index, 0})) {
      if (Finder::is_map(node) && !begins(node, *recast)) {
        Values operands;
        for (const ValueId id : node.inputs) operands.push_back(operand(rewriter, id, *recast));
        const Value made = rewriter.target().add(node.op, operands)[0];
        computed_.emplace(index, made);
        rewriter.replace(index, Values{reshape(made, to_shape(recast->seen()))});
        return true;
      }
      RLX_TRY(rewriter.copy(index));
      const Value whole = rewriter.target().handle(rewriter({index, 0}));
      computed_.emplace(index, reshape(whole, recast->computed()));
      return true;
    }
    const auto* const reduce = node.op.as<op::Reduce>();
    const Recast* const recast = reduce ? finder_.recast(node.inputs[0]) : nullptr;
    const std::optional<Axes> axes = recast ? finder_.first_axes(node) : std::nullopt;
    if (!axes) return false;
    const Value first = rlx::reduce(computed_.at(node.inputs[0].node), reduce->kind, *axes, true);
    rewriter.replace(index, Values{recast->reduced_result(first, reduce->kind)});
    return true;
  }

 private:
  /// Is the node a map of other values than those of the recast?
  bool begins(const Node& node, const Recast& recast) const {
    return std::ranges::none_of(
        node.inputs, [&](ValueId id) { return id.node >= 0 && finder_.recast(id) == &recast; });
  }

  Value operand(Rewriter& rewriter, ValueId id, const Recast& recast) const {
    const Value value = rewriter.target().handle(rewriter(id));
    if (graph_.type(id).dims() != recast.seen()) return recast.operand(value);
    const auto computed = computed_.find(id.node);
    const bool known = computed != computed_.end() && computed->second.shape() == recast.computed();
    return known ? computed->second : reshape(value, recast.computed());
  }

  const Graph& graph_;
  const Finder& finder_;
  std::map<std::int32_t, Value> computed_;  ///< by node of the source: its result in that shape
};

}  // namespace

Result<Graph> recast_norms(Graph graph, int workers) {
  const Finder finder(graph, workers);
  if (!finder.any()) return graph;
  Rewriting rewriting(graph, finder);
  return rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) {
    return rewriting.visit(rewriter, index, node);
  });
}

}  // namespace rlx::passes
