// Convolutions and pools over channels-last images. Every transpose is held back and moves down
// through ops that do not care about the order of axes, until two of them cancel or an op needs the
// logical order.
#include <algorithm>
#include <map>

#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// A rewritten value whose logical meaning is transpose(value, perm); empty perm: the value itself.
struct Held {
  ValueId value;
  Axes perm;
};

bool is_identity(const Axes& perm) {
  for (std::size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

Axes inverse(const Axes& perm) {
  Axes result(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    result[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  return result;
}

Axes compose(const Axes& outer, const Axes& inner) {
  if (inner.empty()) return outer;
  Axes perm;
  for (const std::int64_t axis : outer) perm.push_back(inner[static_cast<std::size_t>(axis)]);
  return perm;
}

template <class T>
std::vector<T> permuted(const std::vector<T>& list, const Axes& perm) {
  std::vector<T> result;
  for (const std::int64_t axis : perm) result.push_back(list[static_cast<std::size_t>(axis)]);
  return result;
}

/// [0, 2, 3, ..., 1] for the given rank.
Axes to_channels_last(int rank) {
  Axes perm{0};
  for (int i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

class LayoutPass {
 public:
  explicit LayoutPass(const Graph& source) : source_(source), held_(source.nodes().size()) {}

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
    return known->second;
  }

  /// The value in the physical order in which transpose(result, perm) is the logical one.
  ValueId physical(ValueId id, const Axes& perm) {
    const Held& entry = held(id);
    if (entry.perm == perm) return entry.value;
    // transpose(transpose(v, inner), outer) = transpose(v, inner o outer)
    if (!entry.perm.empty())
      return below_cast(transpose(handle(entry.value), compose(inverse(perm), entry.perm)).id());
    return below_cast(transpose(handle(logical(id)), inverse(perm)).id());
  }

  void keep(Held entry) { held_[index_] = {std::move(entry)}; }

  Status copy(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(logical(input));
    RLX_ASSIGN(const auto results, target_.try_add(node.op, inputs, node.name, node.origin));
    held_[index_].clear();
    for (const ValueId result : results) held_[index_].push_back({result, {}});
    return {};
  }

  Status visit(const Node& node) {
    if (node.results.empty() || !node.results[0].is_static()) return copy(node);
    if (const auto* op = node.op.as<op::Transpose>()) return transpose_node(node, *op);
    if (const auto* op = node.op.as<op::Conv>(); op && !op->channels_last) return conv(node, *op);
    if (const auto* op = node.op.as<op::WindowReduce>(); op && !op->channels_last)
      return pool(node, *op);
    if (node.op.is<op::Reshape>() && splits_channels(node)) return reshape_channels(node);
    const Axes perm = held_order(node);
    if (perm.empty()) return copy(node);
    if (node.op.info().traits.elementwise) return elementwise(node, perm);
    if (const auto* op = node.op.as<op::Reduce>(); op && op->keep_dims)
      return reduce(node, *op, perm);
    if (const auto* op = node.op.as<op::Gather>(); op && source_.type(node.inputs[1]).rank() == 1) {
      const auto rank = static_cast<std::int64_t>(perm.size());
      return moved(
          node,
          op::Gather{perm[static_cast<std::size_t>(op->axis < 0 ? op->axis + rank : op->axis)]},
          perm);
    }
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

  /// The order of the largest operand that is held transposed; empty if none is.
  Axes held_order(const Node& node) const {
    Axes perm;
    std::int64_t most = -1;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) continue;
      const Held& entry = held(input);
      const Type& type = target_.type(entry.value);
      if (entry.perm.empty() || type.rank() != node.results[0].rank() || type.elements() <= most)
        continue;
      most = type.elements();
      perm = entry.perm;
    }
    return perm;
  }

  // transpose(transpose(v, inner), outer) = transpose(v, inner o outer): nothing is computed
  Status transpose_node(const Node& node, const op::Transpose& op) {
    const Held& entry = held(node.inputs[0]);
    Axes perm = compose(op.perm, entry.perm);
    if (is_identity(perm)) perm.clear();
    keep({entry.value, perm});
    return {};
  }

  /// Axes at the end that both shapes of a reshape have.
  std::size_t shared_end(const Node& node) const {
    const Shape& in = source_.type(node.inputs[0]).shape;
    const Shape& out = node.results[0].shape;
    std::size_t count = 0;
    while (count + 2 < std::min(in.size(), out.size()) &&
           in[in.size() - 1 - count] == out[out.size() - 1 - count])
      ++count;
    return count;
  }

  /// [0, the last `spatial` axes, the axes between].
  static Axes channels_behind(std::size_t rank, std::size_t spatial) {
    Axes order{0};
    for (std::size_t i = rank - spatial; i < rank; ++i)
      order.push_back(static_cast<std::int64_t>(i));
    for (std::size_t i = 1; i < rank - spatial; ++i) order.push_back(static_cast<std::int64_t>(i));
    return order;
  }

  /// A reshape [N,C...,S...] -> [N,D...,S...] of a value that is held as [N,S...,C...], the
  /// channels in any order: the shuffle of channels between groups.
  bool splits_channels(const Node& node) const {
    const Held& entry = held(node.inputs[0]);
    const Shape& in = source_.type(node.inputs[0]).shape;
    const std::size_t spatial = entry.perm.empty() ? 0 : shared_end(node);
    if (spatial == 0 || in[0] != node.results[0].shape[0]) return false;
    const Axes is = inverse(entry.perm), wanted = channels_behind(in.size(), spatial);
    return std::equal(is.begin(), is.begin() + static_cast<std::ptrdiff_t>(spatial) + 1,
                      wanted.begin());
  }

  Status reshape_channels(const Node& node) {
    const std::size_t spatial = shared_end(node);
    const Shape& out = node.results[0].shape;
    const Axes from = channels_behind(source_.type(node.inputs[0]).shape.size(), spatial),
               to = channels_behind(out.size(), spatial);
    return moved(node, op::Reshape{permuted(out, to)}, inverse(from), inverse(to));
  }

  /// One data input in physical order, other inputs (a fill value) as they are.
  Status moved(const Node& node, Op op, const Axes& perm) {
    return moved(node, std::move(op), perm, perm);
  }
  Status moved(const Node& node, Op op, const Axes& perm, const Axes& result_perm) {
    std::vector<ValueId> inputs{physical(node.inputs[0], perm)};
    for (std::size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(logical(node.inputs[i]));
    RLX_ASSIGN(const auto results, target_.try_add(std::move(op), inputs, node.name, node.origin));
    keep({results[0], result_perm});
    return {};
  }

  // f(transpose(a), transpose(b)) = transpose(f(a, b)); operands of lower rank are reshaped to the
  // full rank first
  Status elementwise(const Node& node, const Axes& perm) {
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
    RLX_ASSIGN(const auto results, target_.try_add(node.op, inputs, node.name, node.origin));
    keep({results[0], perm});
    return {};
  }

  // reduce(transpose(x, perm), axes) = transpose(reduce(x, perm[axes]), perm)
  Status reduce(const Node& node, const op::Reduce& op, const Axes& perm) {
    Axes axes = op.axes;
    const int rank = static_cast<int>(perm.size());
    for (std::int64_t& axis : axes)
      axis = perm[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
    std::sort(axes.begin(), axes.end());
    return moved(node, op::Reduce{op.kind, axes, true}, perm);
  }

  Status concat_node(const Node& node, const op::Concat& op, const Axes& perm) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(physical(input, perm));
    const auto rank = static_cast<std::int64_t>(perm.size());
    const std::int64_t axis =
        perm[static_cast<std::size_t>(op.axis < 0 ? op.axis + rank : op.axis)];
    RLX_ASSIGN(const auto results,
               target_.try_add(op::Concat{axis}, inputs, node.name, node.origin));
    keep({results[0], perm});
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
    keep({results[0], inverse(last)});
    return {};
  }

  Status pool(const Node& node, const op::WindowReduce& op) {
    const Axes order = inverse(to_channels_last(node.results[0].rank()));
    op::WindowReduce moved_op = op;
    moved_op.channels_last = true;
    return moved(node, moved_op, order);
  }

  const Graph& source_;
  Graph target_;
  std::vector<std::vector<Held>> held_;
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
