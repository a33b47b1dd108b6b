// Batches that an operand repeats: reshape(broadcast(x)) moves behind the products that read it.
#include "passes/split_batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "passes/pattern.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

bool holds(const Axes& axes, std::int64_t axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

/// An axis of so many elements that is to be two.
struct Split {
  std::size_t axis = 0;
  std::int64_t outer = 1, inner = 1;

  /// The axes of a value that has them, the split one as two.
  Axes of(const Axes& axes) const {
    const auto at = static_cast<std::int64_t>(axis);
    Axes split;
    for (const std::int64_t one : axes) {
      split.push_back(one > at ? one + 1 : one);
      if (one == at) split.push_back(one + 1);
    }
    return split;
  }
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), readers_(readers_of(graph)) {}

  /// Where a reshape merges an axis with one along which its operand is repeated, for products over
  /// the merged one.
  std::optional<Split> repetition(std::int32_t index) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    if (!node.op.is<op::Reshape>() || !node.results[0].is_static()) return std::nullopt;
    const Node& repeated = graph_.node(node.inputs[0]);
    if (!repeated.op.is<op::Broadcast>() || !repeated.results[0].is_static() ||
        !graph_.type(repeated.inputs[0]).is_static())
      return std::nullopt;
    const Dims from = graph_.type(repeated.inputs[0]).dims(), dims = repeated.results[0].dims(),
               merged = node.results[0].dims();
    if (dims.size() != merged.size() + 1) return std::nullopt;
    std::size_t axis = 0;
    while (axis < merged.size() && dims[axis] == merged[axis]) ++axis;
    if (axis == merged.size() || merged[axis] != dims[axis] * dims[axis + 1] ||
        !std::equal(merged.begin() + static_cast<std::ptrdiff_t>(axis) + 1, merged.end(),
                    dims.begin() + static_cast<std::ptrdiff_t>(axis) + 2))
      return std::nullopt;
    const std::size_t missing = dims.size() - from.size();
    const auto repeats = [&](std::size_t along) {
      return along < missing || from[along - missing] == 1;
    };
    if (repeats(axis) == repeats(axis + 1) || dims[axis] == 1 || dims[axis + 1] == 1 ||
        !is_batch_of_all({index, 0}, axis))
      return std::nullopt;
    return Split{axis, dims[axis], dims[axis + 1]};
  }

  FusionQuestion question(std::int32_t index, const IoFusionGate& gate,
                          const GivenAnswers& given) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(index)];
    const std::int64_t bytes = node.results[0].bytes(),
                       read = graph_.type(graph_.node(node.inputs[0]).inputs[0]).bytes();
    FusionQuestion asked{.what = fmt::format("repeat reshape %{} within products", index),
                         .kind = "products",
                         .before = {2, 0, 0, read + 2 * bytes},
                         .after = {1, 0, 0, read}};
    decide(asked, gate, given);
    return asked;
  }

 private:
  /// Do products over a batch of that axis alone read the value, be it transposed or mapped? What
  /// nobody reads is no matter.
  bool is_batch_of_all(ValueId id, std::size_t axis) const {
    constexpr std::size_t most_values = 64;
    std::map<ValueId, std::int64_t> axes{{id, static_cast<std::int64_t>(axis)}};
    std::vector<ValueId> open{id};
    while (!open.empty() && axes.size() <= most_values) {
      const ValueId value = open.back();
      open.pop_back();
      for (const std::int32_t reader : readers_[static_cast<std::size_t>(value.node)]) {
        if (reader < 0) return false;
        const Node& node = graph_.nodes()[static_cast<std::size_t>(reader)];
        if (multiplies_batches(node, value, axes.at(value))) continue;
        const std::optional<std::int64_t> moved = moved_to(node, value, axes.at(value));
        if (!moved) return false;
        const auto [known, is_new] = axes.try_emplace({reader, 0}, *moved);
        if (known->second != *moved) return false;
        if (is_new) open.push_back({reader, 0});
      }
    }
    return open.empty();
  }

  /// Is it a product over a batch of that axis of the value, which is one of its operands?
  static bool multiplies_batches(const Node& node, ValueId value, std::int64_t axis) {
    const auto* dot = node.op.as<op::DotGeneral>();
    if (!dot || !node.results[0].is_static()) return false;
    const bool is_a = node.inputs[0] == value, is_b = node.inputs[1] == value;
    return is_a != is_b && holds(is_a ? dot->a_batch : dot->b_batch, axis);
  }

  /// The axis in the result of a transposition, or of a map of the value's shape.
  std::optional<std::int64_t> moved_to(const Node& node, ValueId value, std::int64_t axis) const {
    if (const auto* turned = node.op.as<op::Transpose>())
      return std::ranges::find(turned->perm, axis) - turned->perm.begin();
    const bool maps = node.op.info().traits.elementwise && node.results.size() == 1 &&
                      node.results[0].shape == graph_.type(value).shape;
    return maps ? std::optional(axis) : std::nullopt;
  }

  const Graph& graph_;
  const std::vector<std::vector<std::int32_t>> readers_;
};

class Splitter {
 public:
  explicit Splitter(Rewriter& rewriter) : rewriter_(rewriter) {}

  void begin(std::int32_t index, const Split& split) {
    const Node& node = source().nodes()[static_cast<std::size_t>(index)];
    known_[{index, 0}] = {split, target(node.inputs[0])};
  }

  /// Replaces a node that reads a split value by one of split values. False: it reads none, or
  /// wants the axis whole.
  bool continue_with(std::int32_t index, const Node& node) {
    if (std::ranges::none_of(node.inputs, [&](ValueId id) { return known_.contains(id); }) ||
        node.results.size() != 1 || !node.results[0].is_static())
      return false;
    std::optional<Known> made;
    if (const auto* turned = node.op.as<op::Transpose>()) made = transposed(node, *turned);
    else if (const auto* dot = node.op.as<op::DotGeneral>()) made = product(node, *dot);
    else if (const auto* reduce = node.op.as<op::Reduce>()) made = reduced(node, *reduce);
    else if (node.op.info().traits.elementwise) made = mapped(node);
    if (!made) return false;
    rewriter_.replace(index, Values{reshape(made->value, node.results[0].shape)});
    known_[{index, 0}] = *made;
    return true;
  }

 private:
  struct Known {
    Split split;
    Value value;
  };

  const Graph& source() const { return rewriter_.source(); }
  Value target(ValueId id) { return rewriter_.target().handle(rewriter_(id)); }

  Known transposed(const Node& node, const op::Transpose& turned) {
    const auto& [split, value] = known_.at(node.inputs[0]);
    const auto place = std::ranges::find(turned.perm, static_cast<std::int64_t>(split.axis));
    Split moved = split;
    moved.axis = static_cast<std::size_t>(place - turned.perm.begin());
    return {moved, transpose(value, split.of(turned.perm))};
  }

  std::optional<Known> reduced(const Node& node, const op::Reduce& reduce) {
    const auto& [split, value] = known_.at(node.inputs[0]);
    if (!reduce.keep_dims || holds(reduce.axes, static_cast<std::int64_t>(split.axis)))
      return std::nullopt;
    return Known{split, rlx::reduce(value, reduce.kind, split.of(reduce.axes), true)};
  }

  std::optional<Known> product(const Node& node, const op::DotGeneral& dot) {
    const bool by_a = known_.contains(node.inputs[0]);
    const Split split = known_.at(node.inputs[by_a ? 0 : 1]).split;
    const Axes& batch = by_a ? dot.a_batch : dot.b_batch;
    const auto place = std::ranges::find(batch, static_cast<std::int64_t>(split.axis));
    if (place == batch.end()) return std::nullopt;
    const auto at = place - batch.begin();
    Split of_a = split, of_b = split, of_result = split;
    of_a.axis = static_cast<std::size_t>(dot.a_batch[static_cast<std::size_t>(at)]);
    of_b.axis = static_cast<std::size_t>(dot.b_batch[static_cast<std::size_t>(at)]);
    of_result.axis = static_cast<std::size_t>(at);
    const op::DotGeneral wide{of_a.of(dot.a_batch), of_b.of(dot.b_batch), of_a.of(dot.a_contract),
                              of_b.of(dot.b_contract)};
    return Known{of_result, rewriter_.target().add_one(wide, {split_up(node.inputs[0], of_a),
                                                              split_up(node.inputs[1], of_b)})};
  }

  /// Operands are aligned from the right.
  Known mapped(const Node& node) {
    const std::size_t rank = node.results[0].shape.size();
    const auto missing = [&](ValueId id) { return rank - source().type(id).shape.size(); };
    const ValueId first =
        *std::ranges::find_if(node.inputs, [&](ValueId id) { return known_.contains(id); });
    Split split = known_.at(first).split;
    split.axis += missing(first);
    Values operands;
    for (const ValueId id : node.inputs) {
      if (id.node < 0) {
        operands.emplace_back();
      } else if (missing(id) > split.axis) {
        operands.push_back(target(id));
      } else {
        Split own = split;
        own.axis -= missing(id);
        operands.push_back(split_up(id, own));
      }
    }
    return {split, rewriter_.target().add(node.op, operands)[0]};
  }

  /// The value with that axis as two; one of 1 stays one in front of another.
  Value split_up(ValueId id, const Split& split) {
    const auto known = known_.find(id);
    if (known != known_.end() && known->second.split.axis == split.axis &&
        known->second.split.outer == split.outer)
      return known->second.value;
    Shape shape = source().type(id).shape;
    const bool is_one = shape[split.axis] == Dim(1);
    shape[split.axis] = Dim(is_one ? 1 : split.outer);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(split.axis) + 1,
                 Dim(is_one ? 1 : split.inner));
    return reshape(target(id), shape);
  }

  Rewriter& rewriter_;
  std::map<ValueId, Known> known_;  ///< by value of the source
};

}  // namespace

Result<Graph> split_batches(Graph graph, const IoFusionGate& gate,
                            std::vector<FusionQuestion>* questions, const GivenAnswers& given) {
  if (std::ranges::none_of(graph.nodes(), [](const Node& n) { return n.op.is<op::Broadcast>(); }))
    return graph;
  const Finder finder(graph);
  std::optional<Splitter> splitter;
  const auto visit = [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
    if (!splitter) splitter.emplace(rewriter);
    if (splitter->continue_with(index, node)) return true;
    const std::optional<Split> split = finder.repetition(index);
    if (!split) return false;
    FusionQuestion asked = finder.question(index, gate, given);
    if (asked.fused) splitter->begin(index, *split);
    if (questions) questions->push_back(std::move(asked));
    return false;
  };
  return rewrite(graph, visit);
}

}  // namespace rlx::passes
