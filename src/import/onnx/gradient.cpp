// Reverse mode: from y back, each node adds its part to the derivatives of its inputs.
#include "import/onnx/gradient.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "import/fail.hpp"

namespace rlx::onnx {
namespace {

using importing::fail_unsupported;

/// By node: does it depend on one of these values?
std::vector<bool> dependants(const Graph& graph, const Values& values) {
  std::vector<bool> depends(graph.nodes().size(), false);
  for (const Value& value : values) depends[static_cast<std::size_t>(value.id().node)] = true;
  for (std::size_t i = 0; i < depends.size(); ++i) {
    for (const ValueId input : graph.nodes()[i].inputs)
      if (input.node >= 0 && depends[static_cast<std::size_t>(input.node)]) depends[i] = true;
  }
  return depends;
}

Value filled(const Value& like, double value) {
  return broadcast(like.graph().constant(like.dtype(), value), like.shape());
}

/// What was broadcast from that shape, summed up to it.
Value summed_to(Value g, const Shape& shape) {
  if (g.shape() == shape) return g;
  const std::size_t front = g.shape().size() - shape.size();
  Axes axes;
  for (std::size_t i = 0; i < g.shape().size(); ++i) {
    const bool is_new = i < front;
    if (is_new || (shape[i - front] == Dim(1) && g.shape()[i] != Dim(1)))
      axes.push_back(static_cast<std::int64_t>(i));
  }
  return reshape(sum(g, axes, true), shape);
}

Axes inverse(const Axes& perm) {
  Axes result(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    result[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  return result;
}

/// Axes of an operand that are neither of the batch nor summed over.
Axes free_axes(int rank, const Axes& batch, const Axes& contract) {
  Axes axes;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (std::ranges::find(batch, axis) == batch.end() &&
        std::ranges::find(contract, axis) == contract.end())
      axes.push_back(axis);
  }
  return axes;
}

class Gradients {
 public:
  Gradients(const Value& y, const Values& xs)
      : graph_(y.graph()), active_(dependants(graph_, xs)), xs_(xs) {
    parts_[y.id()] = filled(y, 1);
    for (std::int32_t i = y.id().node; i >= 0; --i) {
      if (active_[static_cast<std::size_t>(i)] && !is_x(i)) visit(i);
    }
  }

  Value of(const Value& x) const {
    const auto found = parts_.find(x.id());
    return found == parts_.end() ? filled(x, 0) : found->second;
  }

 private:
  bool is_x(std::int32_t node) const {
    return std::ranges::any_of(xs_, [&](const Value& x) { return x.id().node == node; });
  }

  /// Adds to the derivative of input `i` of the node that is visited.
  void give(std::size_t i, const Value& part) {
    const ValueId id = inputs_[i].id();
    const Value own = summed_to(part, inputs_[i].shape());
    const auto [known, is_new] = parts_.try_emplace(id, own);
    if (!is_new) known->second = known->second + own;
  }
  bool wants(std::size_t i) const {
    return inputs_[i] && active_[static_cast<std::size_t>(inputs_[i].id().node)];
  }

  void visit(std::int32_t index) {
    const auto found = parts_.find({index, 0});
    if (found == parts_.end()) return;
    const Node node = graph_.nodes()[static_cast<std::size_t>(index)];  // the graph grows
    inputs_.clear();
    for (const ValueId input : node.inputs)
      inputs_.push_back(input.node < 0 ? Value() : graph_.handle(input));
    const Value g = found->second, y = graph_.handle({index, 0});
    if (node.results.size() != 1 || !(by_map(node.op, g, y) || by_shape(node.op, g)))
      fail_unsupported("Gradients through ({}) are not supported.", node.op.name());
  }

  /// Maps: g times the derivative at each element.
  bool by_map(const Op& op, const Value& g, const Value& y) {
    const auto k = [&](double value) { return graph_.constant(g.dtype(), value); };
    const Value x = inputs_[0], b = inputs_.size() > 1 ? inputs_[1] : Value();
    const auto both = [&](auto of_a, auto of_b) {
      if (wants(0)) give(0, of_a());
      if (wants(1)) give(1, of_b());
      return true;
    };
    const auto one = [&](const Value& part) { return give(0, part), true; };
    if (op.is<op::Add>()) return both([&] { return g; }, [&] { return g; });
    if (op.is<op::Sub>()) return both([&] { return g; }, [&] { return -g; });
    if (op.is<op::Mul>()) return both([&] { return g * b; }, [&] { return g * x; });
    if (op.is<op::Div>()) return both([&] { return g / b; }, [&] { return -(g * y / b); });
    if (op.is<op::Pow>())
      return both([&] { return g * b * pow(x, b - k(1)); }, [&] { return g * y * log(x); });
    if (op.is<op::Neg>()) return one(-g);
    if (op.is<op::Exp>()) return one(g * y);
    if (op.is<op::Log>()) return one(g / x);
    if (op.is<op::Sqrt>()) return one(g / (y + y));
    if (op.is<op::Reciprocal>()) return one(-(g * y * y));
    if (op.is<op::Abs>()) return one(g * sign(x));
    if (op.is<op::Sin>()) return one(g * cos(x));
    if (op.is<op::Cos>()) return one(-(g * sin(x)));
    if (op.is<op::Tanh>()) return one(g * (k(1) - y * y));
    if (op.is<op::Sigmoid>()) return one(g * y * (k(1) - y));
    if (op.is<op::Relu>()) return one(select(greater(x, k(0)), g, filled(g, 0)));
    return false;
  }

  /// What moves, sums up or multiplies elements.
  bool by_shape(const Op& op, const Value& g) {
    const Value x = inputs_[0];
    if (op.is<op::Reshape>()) return give(0, reshape(g, x.shape())), true;
    if (op.is<op::Broadcast>()) return give(0, g), true;
    if (op.is<op::Cast>() && is_float(x.dtype())) return give(0, cast(g, x.dtype())), true;
    if (const auto* order = op.as<op::Transpose>())
      return give(0, transpose(g, inverse(order->perm))), true;
    if (const auto* reduced = op.as<op::Reduce>()) return reduce(*reduced, g);
    if (const auto* product = op.as<op::DotGeneral>()) return multiply(*product, g);
    return false;
  }

  bool reduce(const op::Reduce& op, const Value& g) {
    if (op.kind != Reduction::sum && op.kind != Reduction::mean) return false;
    const Value x = inputs_[0];
    Shape kept = x.shape();
    double count = 1;
    for (const std::int64_t axis : op.axes) {
      Dim& dim = kept[static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis)];
      if (op.kind == Reduction::mean) {
        if (!dim.is_static()) return false;
        count *= static_cast<double>(dim.value());
      }
      dim = Dim(1);
    }
    Value each = broadcast(reshape(g, kept), x.shape());
    if (count != 1) each = each * graph_.constant(g.dtype(), 1 / count);
    give(0, each);
    return true;
  }

  /// An operand of a product: its axes by role.
  struct Operand {
    Value value;
    Axes batch, free, contract;
    Operand(const Value& value, Axes batch, Axes contract)
        : value(value),
          batch(std::move(batch)),
          free(free_axes(value.rank(), this->batch, contract)),
          contract(std::move(contract)) {}
  };

  /// y [batch, free axes of a, free axes of b].
  bool multiply(const op::DotGeneral& op, const Value& g) {
    const Operand a(inputs_[0], op.a_batch, op.a_contract),
        b(inputs_[1], op.b_batch, op.b_contract);
    if (wants(0)) give(0, part_of(a, b, g, a.batch.size() + a.free.size()));
    if (wants(1)) give(1, part_of(b, a, g, b.batch.size()));
    return true;
  }

  /// g times the other operand, summed over that one's free axes, which lie in g from `first` on;
  /// what the product had summed over becomes free.
  Value part_of(const Operand& own, const Operand& other, const Value& g, std::size_t first) {
    const auto range = [](std::size_t from, std::size_t size) {
      Axes axes(size);
      std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(from));
      return axes;
    };
    const op::DotGeneral product{.a_batch = range(0, own.batch.size()),
                                 .b_batch = other.batch,
                                 .a_contract = range(first, other.free.size()),
                                 .b_contract = other.free};
    const Value made = graph_.add_one(product, {g, other.value});
    // Its axes are own's batch and free axes, then the other's summed ones in the other's order.
    Axes axes = own.batch;
    axes.insert(axes.end(), own.free.begin(), own.free.end());
    Axes summed = other.contract;
    std::ranges::sort(summed);
    for (const std::int64_t axis : summed) {
      const auto at = std::ranges::find(other.contract, axis) - other.contract.begin();
      axes.push_back(own.contract[static_cast<std::size_t>(at)]);
    }
    return transpose(made, inverse(axes));
  }

  Graph& graph_;
  const std::vector<bool> active_;  ///< nodes that depend on xs
  const Values& xs_;
  std::map<ValueId, Value> parts_;  ///< derivatives as far as they are known
  Values inputs_;                   ///< of the node that is visited
};

}  // namespace

Value with_values(const Value& y, const Values& named, const Values& given) {
  Graph& graph = y.graph();
  std::map<ValueId, ValueId> replaced;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i].id() != given[i].id()) replaced[named[i].id()] = given[i].id();
  }
  if (replaced.empty()) return y;
  const std::vector<bool> depends = dependants(graph, named);
  for (std::int32_t i = 0; i <= y.id().node; ++i) {
    if (!depends[static_cast<std::size_t>(i)] || replaced.contains({i, 0})) continue;
    const Node node = graph.nodes()[static_cast<std::size_t>(i)];
    Values inputs;
    bool is_same = true;
    for (const ValueId input : node.inputs) {
      const auto other = replaced.find(input);
      is_same &= other == replaced.end();
      const ValueId now = other == replaced.end() ? input : other->second;
      inputs.push_back(now.node < 0 ? Value() : graph.handle(now));
    }
    if (is_same) continue;
    const Values results = graph.add(node.op, inputs);
    for (std::size_t r = 0; r < results.size(); ++r)
      replaced[{i, static_cast<std::int32_t>(r)}] = results[r].id();
  }
  const auto made = replaced.find(y.id());
  return made == replaced.end() ? y : graph.handle(made->second);
}

Values gradients(const Value& y, const Values& xs) {
  const Gradients all(y, xs);
  Values results;
  for (const Value& x : xs) results.push_back(all.of(x));
  return results;
}

}  // namespace rlx::onnx
