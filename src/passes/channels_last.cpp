// Convolutions and pools over channels-last images. Every transpose is held back and moves down
// through ops that do not care about the order of axes, until two of them cancel or an op needs the
// logical order. Below reshapes, too: axes are cut into the factors that both sides share.
#include <algorithm>
#include <map>
#include <set>

#include "graph/weight_only.hpp"
#include "passes/axis_order.hpp"
#include "passes/held_reshape.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// A rewritten value whose logical meaning is transpose(value, perm); empty perm: the value itself.
/// Where there are parts, each logical axis is so many axes of that, merged.
struct Held {
  ValueId value;
  Axes perm;
  std::vector<std::int64_t> parts;
};

class LayoutPass {
 public:
  explicit LayoutPass(const Graph& source)
      : source_(source),
        held_(source.nodes().size()),
        readers_(source.nodes().size()),
        is_weight_(weight_only_nodes(source)) {
    for (std::size_t i = 0; i < source.nodes().size(); ++i) {
      for (const ValueId input : source.nodes()[i].inputs)
        if (input.node >= 0) readers_[static_cast<std::size_t>(input.node)].push_back(i);
    }
    for (const GraphOutput& output : source.outputs()) asked_for_.insert(output.value.node);
    feeds_windows_.resize(readers_.size());
    for (std::size_t i = readers_.size(); i-- > 0;)
      feeds_windows_[i] = std::ranges::any_of(readers_[i], [&](std::size_t reader) {
        const Op& op = source.nodes()[reader].op;
        return op.is<op::Conv>() || op.is<op::WindowReduce>() || feeds_windows_[reader];
      });
  }

  Result<Graph> run() {
    for (std::size_t i = 0; i < source_.nodes().size(); ++i) {
      index_ = i;
      target_.set_origin(source_.nodes()[i].origin);
      RLX_TRY(visit(source_.nodes()[i]));
    }
    std::vector<GraphOutput> outputs;
    for (const GraphOutput& output : source_.outputs())
      outputs.push_back({output.name, logical(output.value)});
    target_.set_outputs(std::move(outputs));
    return std::move(target_);
  }

 private:
  const Held& held(ValueId id) const {
    return held_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
  }

  Value handle(ValueId id) { return target_.handle(id); }

  /// The value in its logical order.
  ValueId logical(ValueId id) {
    if (id.node < 0) return id;
    Held& entry = held_[static_cast<std::size_t>(id.node)][static_cast<std::size_t>(id.result)];
    if (entry.perm.empty()) return entry.value;
    const auto [known, is_new] = logical_.try_emplace({entry.value, entry.perm});
    if (is_new) known->second = below_cast(transpose(handle(entry.value), entry.perm).id());
    if (entry.parts.empty()) return known->second;
    return reshape(handle(known->second), source_.type(id).shape).id();
  }

  /// The value in the physical order in which transpose(result, perm) is the logical one.
  ValueId physical(ValueId id, const Axes& perm) {
    const Held& entry = held(id);
    if (entry.perm == perm && entry.parts.empty()) return entry.value;
    // transpose(transpose(v, inner), outer) = transpose(v, inner o outer)
    if (!entry.perm.empty() && entry.parts.empty())
      return below_cast(transpose(handle(entry.value), compose(inverse(perm), entry.perm)).id());
    return below_cast(transpose(handle(logical(id)), inverse(perm)).id());
  }

  void keep(Held entry) { held_[index_] = {std::move(entry)}; }

  Status copy(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(logical(input));
    RLX_ASSIGN(const auto results, target_.try_copy(source_, node, inputs));
    held_[index_].clear();
    for (const ValueId result : results) held_[index_].push_back({result, {}, {}});
    return {};
  }

  Status visit(const Node& node) {
    if (node.results.empty() || !node.results[0].is_static()) return copy(node);
    if (const auto* op = node.op.as<op::Transpose>()) return transpose_node(node, *op);
    if (const auto* op = node.op.as<op::Conv>(); op && !op->channels_last) return conv(node, *op);
    if (const auto* op = node.op.as<op::WindowReduce>(); op && !op->channels_last)
      return pool(node, *op);
    if (node.op.is<op::Reshape>() && !held(node.inputs[0]).perm.empty()) return reshape_node(node);
    const Held* const order = held_order(node);
    if (!order) return copy(node);
    const Axes perm = order->perm;
    if (node.op.info().traits.elementwise) return elementwise(node, Held(*order));
    if (const auto* op = node.op.as<op::Reduce>(); op && op->keep_dims)
      return reduce(node, *op, Held(*order));
    if (!order->parts.empty() || grows_for_no_window(node)) return copy(node);
    if (const auto* op = node.op.as<op::Gather>(); op && source_.type(node.inputs[1]).rank() == 1)
      return moved(node, op::Gather{axis_in(perm, op->axis)}, perm);
    if (const auto* op = node.op.as<op::ArgReduce>(); op && op->keep_dims)
      return moved(node, op::ArgReduce{op->max, axis_in(perm, op->axis), true, op->select_last},
                   perm);
    if (const auto* op = node.op.as<op::Concat>()) return concat_node(node, *op, perm);
    if (const auto* op = node.op.as<op::Slice>()) {
      const Axes to = inverse(perm);
      const Axes steps = op->steps.empty() ? Axes() : permuted(op->steps, to);
      return moved(node, op::Slice{permuted(op->starts, to), permuted(op->limits, to), steps},
                   perm);
    }
    if (const auto* op = node.op.as<op::Pad>(); op && op->mode == PadMode::constant) {
      return moved(
          node,
          op::Pad{permuted(op->low, inverse(perm)), permuted(op->high, inverse(perm)), op->mode},
          perm);
    }
    if (const auto* op = node.op.as<op::Resize>(); op && op->roi.empty()) {
      op::Resize resize = *op;
      resize.sizes = permuted(op->sizes, inverse(perm));
      if (!op->scales.empty()) resize.scales = permuted(op->scales, inverse(perm));
      return moved(node, resize, perm);
    }
    return copy(node);
  }

  /// The order of the largest operand; null if that one is not held transposed: a small one, as a
  /// bias, does not turn what is larger, nor does one of the same size that is no image turn
  /// products (scores of attention beside positions). Weights have no say: they are turned
  /// beforehand. One in parts counts only where it has all dims of the result, so that its parts
  /// are known.
  const Held* held_order(const Node& node) const {
    const Held* found = nullptr;
    ValueId turned, as_it_is;
    std::int64_t most = -1, most_as_it_is = -1;
    for (const ValueId input : node.inputs) {
      if (input.node < 0 || is_weight_[static_cast<std::size_t>(input.node)]) continue;
      const Held& entry = held(input);
      const Type& type = source_.type(input);
      if (!type.is_static()) continue;
      if (entry.perm.empty() || type.rank() != node.results[0].rank() ||
          (!entry.parts.empty() && !node.op.is<op::Reduce>() &&
           type.shape != node.results[0].shape)) {
        if (type.elements() > most_as_it_is) as_it_is = input;
        most_as_it_is = std::max(most_as_it_is, type.elements());
      } else if (type.elements() > most) {
        most = type.elements();
        found = &entry;
        turned = input;
      }
    }
    const bool mixes = node.op.info().traits.elementwise || node.op.is<op::Concat>();
    if (!mixes || !found || most > most_as_it_is) return found;
    const bool stays = most < most_as_it_is ||
                       (made_by(as_it_is).is<op::DotGeneral>() && !is_of_windows(made_by(turned)));
    return stays ? nullptr : found;
  }

  /// An image that a resizing makes larger (by a gather of its rows first) is better turned before,
  /// unless windows behind it want it turned anyway.
  bool grows_for_no_window(const Node& node) const {
    if (!node.op.is<op::Resize>() && !node.op.is<op::Gather>()) return false;
    const Type& x = source_.type(node.inputs[0]);
    return !feeds_windows_[index_] && x.is_static() && node.results[0].elements() > x.elements();
  }

  static bool is_of_windows(const Op& op) {
    return op.is<op::Conv>() || op.is<op::WindowReduce>() || op.is<op::Resize>();
  }

  /// The op behind the maps and views that show a value; of several operands the largest counts.
  const Op& made_by(ValueId id) const {
    constexpr int most_nodes = 32;
    for (int i = 0; i < most_nodes; ++i) {
      const Node& node = source_.node(id);
      const bool shows = node.op.is<op::Reshape>() || node.op.is<op::Transpose>() ||
                         node.op.is<op::Slice>() || node.op.is<op::Reduce>();
      if (!shows && !node.op.info().traits.elementwise) return node.op;
      std::int64_t most = -1;
      for (const ValueId operand : node.inputs) {
        if (operand.node < 0 || !source_.type(operand).is_static()) continue;
        const std::int64_t elements = source_.type(operand).elements();
        if (elements > most) id = operand;
        most = std::max(most, elements);
      }
      if (most < 0) return node.op;
    }
    return source_.node(id).op;
  }

  // transpose(transpose(v, inner), outer) = transpose(v, inner o outer): nothing is computed
  Status transpose_node(const Node& node, const op::Transpose& op) {
    const Held& entry = held(node.inputs[0]);
    Held result{entry.value, {}, {}};
    if (entry.parts.empty()) {
      result.perm = compose(op.perm, entry.perm);
    } else {
      result.parts = permuted(entry.parts, op.perm);
      for (const std::int64_t axis : op.perm) {
        const auto [begin, end] = axes_of(entry, axis);
        result.perm.insert(result.perm.end(), entry.perm.begin() + begin, entry.perm.begin() + end);
      }
    }
    if (result.parts.empty() && is_identity(result.perm)) result.perm.clear();
    keep(std::move(result));
    return {};
  }

  /// The axes of the transposed value that a logical axis is made of: begin and end.
  static std::pair<std::int64_t, std::int64_t> axes_of(const Held& entry, std::int64_t axis) {
    if (entry.parts.empty()) return {axis, axis + 1};
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < axis; ++i) begin += entry.parts[static_cast<std::size_t>(i)];
    return {begin, begin + entry.parts[static_cast<std::size_t>(axis)]};
  }

  /// Dims of the value in logical order; those of its parts.
  Dims logical_dims(const Held& entry) const {
    return permuted(target_.type(entry.value).dims(), entry.perm);
  }

  // reshape(transpose(v)) = transpose(reshape(v)), where the factors that both shapes share lie so
  // that each new axis is one run. Where they do not, and the axes are soon taken apart again, they
  // stay apart until then; else the factors are copied into such an order, if it is not the logical
  // one: the last axis stays the last (shuffles of channels between groups).
  Status reshape_node(const Node& node) {
    const Held entry = held(node.inputs[0]);
    const Dims dims = logical_dims(entry), after = node.results[0].dims();
    const auto pieces = common_pieces(dims, entry.perm, after);
    const bool ends = readers_[index_].empty();  // then the logical order is what is wanted
    if (!pieces) {
      const auto groups =
          entry.parts.empty() && !ends ? regrouped(dims, entry.perm, after) : std::nullopt;
      if (!groups) return copy(node);
      keep_reshaped(transpose(handle(entry.value), groups->order), groups->axes, node);
      return {};
    }
    const bool runs = are_runs(*pieces);
    if (!runs && taken_apart(node, *pieces)) return keep_apart(entry, *pieces, node);
    const Axes axes = order_by_last(*pieces);
    if (!runs && (ends || is_identity(axes) || !entry.parts.empty())) return copy(node);
    Value value = handle(entry.value);
    if (!runs) {
      value = cut(value, *pieces);
      Axes order;
      for (const std::int64_t axis : axes) {
        for (std::size_t piece = 0; piece < pieces->extents.size(); ++piece) {
          if (pieces->after[piece] != axis) continue;
          const auto at = std::find(pieces->order.begin(), pieces->order.end(), piece);
          order.push_back(at - pieces->order.begin());
        }
      }
      value = transpose(value, order);
    }
    keep_reshaped(value, axes, node);
    return {};
  }

  /// Keeps the value as the node's result, whose axes it has in that order.
  void keep_reshaped(Value value, const Axes& axes, const Node& node) {
    value = reshape(value, permuted(node.results[0].shape, axes));
    Axes perm = inverse(axes);
    if (is_identity(perm)) perm.clear();
    keep({value.id(), std::move(perm), {}});
  }

  /// The value with an axis for each piece, in physical order.
  static Value cut(Value value, const Pieces& pieces) {
    Shape shape;
    for (const std::size_t piece : pieces.order) shape.push_back(Dim(pieces.extents[piece]));
    return reshape(value, shape);
  }

  Status keep_apart(const Held& entry, const Pieces& pieces, const Node& node) {
    Held result{cut(handle(entry.value), pieces).id(), Axes(pieces.order.size()), {}};
    for (std::size_t i = 0; i < pieces.order.size(); ++i)
      result.perm[pieces.order[i]] = static_cast<std::int64_t>(i);
    result.parts.resize(static_cast<std::size_t>(node.results[0].rank()), 0);
    for (const std::int64_t axis : pieces.after) ++result.parts[static_cast<std::size_t>(axis)];
    keep(std::move(result));
    return {};
  }

  /// Do all readers of the value, through ops that keep its axes, come to a reshape under which the
  /// pieces are runs again, or to few elements?
  bool taken_apart(const Node& node, const Pieces& pieces) const {
    const Node* const first = source_.nodes().data();
    std::vector<std::size_t> open{static_cast<std::size_t>(&node - first)};
    std::set<std::size_t> seen(open.begin(), open.end());
    Axes perm(pieces.order.size());
    for (std::size_t i = 0; i < perm.size(); ++i)
      perm[pieces.order[i]] = static_cast<std::int64_t>(i);
    bool comes_back = false;
    while (!open.empty()) {
      const std::size_t index = open.back();
      open.pop_back();
      constexpr std::int64_t few = 4;
      if (source_.nodes()[index].results[0].elements() * few <= node.results[0].elements())
        continue;
      if (asked_for_.count(static_cast<std::int32_t>(index))) return false;
      for (const std::size_t reader : readers_[index]) {
        const Node& next = source_.nodes()[reader];
        if (!next.results[0].is_static()) return false;
        if (next.op.is<op::Reshape>()) {
          const auto again = common_pieces(pieces.extents, perm, next.results[0].dims());
          if (!again || !are_runs(*again)) return false;
          comes_back = true;
          continue;
        }
        const auto* const reduce = next.op.as<op::Reduce>();
        const bool keeps =
            (next.op.info().traits.elementwise && next.results[0].shape == node.results[0].shape) ||
            (reduce && reduce->keep_dims);
        if (!keeps) return false;
        if (seen.insert(reader).second) open.push_back(reader);
      }
    }
    return comes_back;
  }

  /// One data input in physical order, other inputs (a fill value) as they are.
  Status moved(const Node& node, Op op, const Axes& perm) {
    std::vector<ValueId> inputs{physical(node.inputs[0], perm)};
    for (std::size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(logical(node.inputs[i]));
    RLX_ASSIGN(const auto results, target_.try_add(std::move(op), inputs, node.name, node.origin));
    keep({results[0], perm, {}});
    return {};
  }

  // f(transpose(a), transpose(b)) = transpose(f(a, b)); operands of lower rank are reshaped to the
  // full rank first
  Status elementwise(const Node& node, const Held& order) {
    if (!order.parts.empty()) return elementwise_in_parts(node, order);
    const Axes& perm = order.perm;
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) {
        inputs.push_back(input);
        continue;
      }
      const Type& type = source_.type(input);
      if (type.rank() == node.results[0].rank()) {
        inputs.push_back(physical(input, perm));
      } else if (type.elements() == 1) {
        inputs.push_back(reshape(handle(logical(input)), {}).id());
      } else {
        Shape shape(perm.size() - type.shape.size(), Dim(1));
        shape.insert(shape.end(), type.shape.begin(), type.shape.end());
        inputs.push_back(transpose(reshape(handle(logical(input)), shape), inverse(perm)).id());
      }
    }
    RLX_ASSIGN(const auto results, target_.try_copy(source_, node, inputs));
    keep({results[0], perm, {}});
    return {};
  }

  Status elementwise_in_parts(const Node& node, const Held& order) {
    const auto rank = static_cast<std::size_t>(node.results[0].rank());
    const Dims dims = logical_dims(order);
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) {
        inputs.push_back(input);
        continue;
      }
      Shape shape(rank - static_cast<std::size_t>(source_.type(input).rank()), Dim(1));
      for (const Dim& dim : source_.type(input).shape) shape.push_back(dim);
      Shape cut;
      for (std::size_t axis = 0; axis < rank; ++axis) {
        const auto [begin, end] = axes_of(order, static_cast<std::int64_t>(axis));
        for (std::int64_t i = begin; i < end; ++i)
          cut.push_back(shape[axis] == Dim(1) ? Dim(1) : Dim(dims[static_cast<std::size_t>(i)]));
      }
      const Held& entry = held(input);
      const bool is_there = entry.perm == order.perm && entry.parts == order.parts &&
                            target_.type(entry.value).shape == permuted(cut, inverse(order.perm));
      inputs.push_back(
          is_there ? entry.value
                   : transpose(reshape(handle(logical(input)), cut), inverse(order.perm)).id());
    }
    RLX_ASSIGN(const auto results, target_.try_copy(source_, node, inputs));
    keep({results[0], order.perm, order.parts});
    return {};
  }

  // reduce(transpose(x, perm), axes) = transpose(reduce(x, perm[axes]), perm)
  Status reduce(const Node& node, const op::Reduce& op, const Held& order) {
    Axes axes;
    for (const std::int64_t axis : op.axes) {
      const auto [begin, end] = axes_of(order, axis < 0 ? axis + node.results[0].rank() : axis);
      axes.insert(axes.end(), order.perm.begin() + begin, order.perm.begin() + end);
    }
    std::sort(axes.begin(), axes.end());
    const op::Reduce moved_op{op.kind, axes, true};
    RLX_ASSIGN(const auto results,
               target_.try_add(moved_op, std::vector{order.value}, node.name, node.origin));
    keep({results[0], order.perm, order.parts});
    return {};
  }

  Status concat_node(const Node& node, const op::Concat& op, const Axes& perm) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(physical(input, perm));
    const op::Concat moved_op{axis_in(perm, op.axis)};
    RLX_ASSIGN(const auto results, target_.try_add(moved_op, inputs, node.name, node.origin));
    keep({results[0], perm, {}});
    return {};
  }

  // transpose(cast(x)) = cast(transpose(x)): products of integers know their bytes by the cast
  ValueId below_cast(ValueId id) {
    const auto* moved = target_.node(id).op.as<op::Transpose>();
    if (!moved) return id;
    const Node& widened = target_.node(target_.node(id).inputs[0]);
    if (!widened.op.is<op::Cast>() || widened.results[0].dtype != i32) return id;
    const Axes perm = moved->perm;
    return cast(transpose(handle(widened.inputs[0]), perm), i32).id();
  }

  // x [N,C,...] -> [N,...,C]; w [O,C,...] -> [...,C,O]
  Status conv(const Node& node, const op::Conv& op) {
    const int rank = node.results[0].rank();
    const Axes last = to_channels_last(rank);
    op::Conv moved_op = op;
    moved_op.channels_last = true;
    Axes weight_perm;
    for (int i = 2; i < rank; ++i) weight_perm.push_back(i);
    weight_perm.push_back(1);
    weight_perm.push_back(0);
    const ValueId w = below_cast(transpose(handle(logical(node.inputs[1])), weight_perm).id());
    const ValueId x = physical(node.inputs[0], inverse(last));
    RLX_ASSIGN(const auto results,
               target_.try_add(moved_op, std::vector{x, w}, node.name, node.origin));
    keep({results[0], inverse(last), {}});
    return {};
  }

  Status pool(const Node& node, const op::WindowReduce& op) {
    const Axes order = to_channels_first(node.results[0].rank());
    op::WindowReduce moved_op = op;
    moved_op.channels_last = true;
    return moved(node, moved_op, order);
  }

  const Graph& source_;
  Graph target_;
  std::vector<std::vector<Held>> held_;
  std::vector<std::vector<std::size_t>> readers_;  // by node
  std::vector<bool> is_weight_;                    // by node
  std::vector<bool> feeds_windows_;                // by node: a convolution or a pool is behind it
  std::set<std::int32_t> asked_for_;
  std::map<std::pair<ValueId, Axes>, ValueId> logical_;
  std::size_t index_ = 0;
};

}  // namespace

Result<Graph> channels_last(const Graph& graph) {
  try {
    return LayoutPass(graph).run();
  } catch (const Exception& exception) {
    return exception.error();
  }
}

}  // namespace rlx::passes
