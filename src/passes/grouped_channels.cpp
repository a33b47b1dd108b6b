// Finds channels that are taken apart for a reduction of groups, and keeps them together.
#include "passes/grouped_channels.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// The kernels that it takes show beside smaller images.
constexpr std::int64_t fewest_elements = 1024;

/// A reshape of an image's channels into groups, and all maps behind it that keep this shape.
struct Grouped {
  Dims split;            ///< [..., groups, channels of a group]
  bool reduced = false;  ///< Does something reduce them that is worth it?

  Dims image() const {
    Dims dims(split.begin(), split.end() - 1);
    dims.back() *= split.back();
    return dims;
  }
};

/// The operand's dims, as many as the groups', with all channels.
Dims by_channel(Dims operand, const Dims& split) {
  operand.insert(operand.begin(), split.size() - operand.size(), 1);
  std::copy(split.end() - 2, split.end(), operand.end() - 2);
  return operand;
}

class Groups {
 public:
  explicit Groups(const Graph& graph) : graph_(graph), of_(graph.nodes().size(), -1) {
    for (std::size_t i = 0; i < of_.size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (splits_channels(node)) {
        of_[i] = static_cast<int>(list_.size());
        list_.push_back({node.results[0].dims()});
      } else if (is_map(node)) {
        of_[i] = group_of_map(node);
      } else if (node.op.is<op::Reduce>() && outer_axes(node)) {
        list_[static_cast<std::size_t>(group(node.inputs[0]))].reduced = true;
      }
    }
  }

  bool any() const { return std::ranges::any_of(list_, &Grouped::reduced); }

  /// What the value is part of, if it is kept together.
  const Grouped* kept(ValueId id) const {
    const int at = group(id);
    const Grouped* const found = at < 0 ? nullptr : &list_[static_cast<std::size_t>(at)];
    return found && found->reduced ? found : nullptr;
  }

  bool splits_channels(const Node& node) const {
    if (!node.op.is<op::Reshape>() || !node.results[0].is_static()) return false;
    const Type& image = graph_.type(node.inputs[0]);
    const Dims split = node.results[0].dims();
    return image.is_static() && is_float(image.dtype) && split.size() >= 3 &&
           std::min(split.back(), split[split.size() - 2]) > 1 &&
           image.dims() == Grouped{split}.image();
  }

  /// The axes but the last over which the node reduces channels and groups of a value that is taken
  /// apart; nothing where it does not, or is not worth it.
  std::optional<Axes> outer_axes(const Node& node) const {
    const auto& reduce = *node.op.as<op::Reduce>();
    if (group(node.inputs[0]) < 0 || !reduce.keep_dims || reduce.kind == Reduction::mean)
      return std::nullopt;
    const Dims dims = graph_.type(node.inputs[0]).dims();
    const std::int64_t last = std::ssize(dims) - 1;
    if (element_count(dims) < fewest_elements) return std::nullopt;
    Axes outer;
    bool is_grouped = false;
    std::int64_t rows = 1;
    for (const std::int64_t axis : reduce.axes) {
      if (axis == last - 1) return std::nullopt;
      if (axis == last) {
        is_grouped = true;
        continue;
      }
      outer.push_back(axis);
      rows *= dims[static_cast<std::size_t>(axis)];
    }
    return is_grouped && rows > 1 ? std::optional(outer) : std::nullopt;
  }

 private:
  int group(ValueId id) const { return id.node < 0 ? -1 : of_[static_cast<std::size_t>(id.node)]; }

  static bool is_map(const Node& node) {
    return node.op.info().traits.elementwise && node.results.size() == 1 &&
           node.results[0].is_static();
  }

  /// The group of an operand whose shape the result has, where the others can be repeated by
  /// channel.
  int group_of_map(const Node& node) const {
    int found = -1;
    for (const ValueId id : node.inputs) {
      if (id.node < 0 || !graph_.type(id).is_static()) return -1;
      const bool whole = graph_.type(id).shape == node.results[0].shape;
      if (whole && group(id) >= 0 && found < 0) found = group(id);
      if (!whole && !is_repeated_by_channel(graph_.type(id).dims(), node.results[0].dims()))
        return -1;
    }
    return found;
  }

  /// Is the operand little beside the image, with one value for each channel?
  static bool is_repeated_by_channel(const Dims& operand, const Dims& split) {
    constexpr std::int64_t fewest_pixels_each = 8;
    if (split.size() < 3) return false;
    return fewest_pixels_each * element_count(by_channel(operand, split)) <= element_count(split);
  }

  const Graph& graph_;
  std::vector<int> of_;  ///< by node: an index into list_, or -1
  std::vector<Grouped> list_;
};

/// The operand of a map over groups as one of the same map over the image.
Value over_image(const Value& operand, const Grouped& grouped) {
  const Dims dims = operand.type().dims();
  if (element_count(dims) == 1) return reshape(operand, Shape{});
  Dims repeated = by_channel(dims, grouped.split);
  const Value each = broadcast(operand, to_shape(repeated));
  repeated.pop_back();
  repeated.back() = grouped.image().back();
  return reshape(each, to_shape(repeated));
}

class Rewriting {
 public:
  Rewriting(const Graph& graph, const Groups& groups) : graph_(graph), groups_(groups) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    if (const Grouped* const grouped = groups_.kept({index, 0})) {
      Value image;
      if (groups_.splits_channels(node)) {
        image = rewriter.values_of(node)[0];
      } else {
        Values operands;
        for (const ValueId id : node.inputs) operands.push_back(operand(rewriter, id, *grouped));
        image = rewriter.target().add(node.op, operands)[0];
      }
      images_.emplace(index, image);
      rewriter.replace(index, Values{reshape(image, to_shape(grouped->split))});
      return true;
    }
    const auto* const reduce = node.op.as<op::Reduce>();
    const Grouped* const grouped = reduce ? groups_.kept(node.inputs[0]) : nullptr;
    const std::optional<Axes> outer = grouped ? groups_.outer_axes(node) : std::nullopt;
    if (!outer) return false;
    const Value rows = rlx::reduce(images_.at(node.inputs[0].node), reduce->kind, *outer, true);
    Dims split = rows.type().dims();
    split.pop_back();
    split.insert(split.end(), grouped->split.end() - 2, grouped->split.end());
    const Axes last{std::ssize(split) - 1};
    rewriter.replace(index,
                     Values{rlx::reduce(reshape(rows, to_shape(split)), reduce->kind, last, true)});
    return true;
  }

 private:
  Value operand(Rewriter& rewriter, ValueId id, const Grouped& grouped) const {
    const auto image = images_.find(id.node);
    const bool whole = image != images_.end() && graph_.type(id).dims() == grouped.split;
    return whole ? image->second : over_image(rewriter.target().handle(rewriter(id)), grouped);
  }

  const Graph& graph_;
  const Groups& groups_;
  std::map<std::int32_t, Value> images_;  ///< by node of the source: its result, kept together
};

}  // namespace

Result<Graph> grouped_channels(Graph graph) {
  const Groups groups(graph);
  if (!groups.any()) return graph;
  Rewriting rewriting(graph, groups);
  return rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) {
    return rewriting.visit(rewriter, index, node);
  });
}

}  // namespace rlx::passes
