// Loops and branches in the forms that plans want: weights stand inside the graphs that read them,
// what a loop does not change is no carry, and a while is a loop that ends with its condition.
#include <algorithm>
#include <map>

#include "graph/weight_only.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// Copies values that depend on params and constants alone from one graph into another.
class WeightCopier {
 public:
  explicit WeightCopier(const Graph& from) : from_(from), is_weight_(weight_only_nodes(from)) {}

  bool is_weight(ValueId id) const { return is_weight_[static_cast<std::size_t>(id.node)]; }

  Result<ValueId> copy(ValueId id, Graph& to, std::map<std::int32_t, std::vector<ValueId>>& done) {
    const auto known = done.find(id.node);
    if (known != done.end()) return known->second[static_cast<std::size_t>(id.result)];
    const Node& node = from_.node(id);
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) {
      if (input.node < 0) {
        inputs.push_back(input);
        continue;
      }
      RLX_ASSIGN(const ValueId copied, copy(input, to, done));
      inputs.push_back(copied);
    }
    RLX_ASSIGN(auto results, to.try_add(node.op, inputs, node.name, node.origin));
    done[id.node] = results;
    return results[static_cast<std::size_t>(id.result)];
  }

 private:
  const Graph& from_;
  const std::vector<bool> is_weight_;
};

/// What becomes of the inputs of a graph inside an op.
struct Rebuild {
  std::vector<Type> types;           ///< by input of the old graph
  std::vector<ValueId> weights;      ///< by input: a value of the outer graph that stands for it
  std::vector<std::size_t> order;    ///< old inputs that stay, in their new order
  std::vector<std::size_t> outputs;  ///< old outputs that stay
};

std::vector<const op::Input*> inputs_of(const Graph& graph) {
  std::vector<const op::Input*> inputs;
  for (const Node& node : graph.nodes()) {
    if (const auto* input = node.op.as<op::Input>()) inputs.push_back(input);
  }
  return inputs;
}

Result<GraphPointer> rebuilt(const Graph& graph, const Rebuild& rebuild, WeightCopier& weights) {
  const std::vector<const op::Input*> inputs = inputs_of(graph);
  Graph result;
  Values values(inputs.size());
  for (const std::size_t k : rebuild.order)
    values[k] = result.input(inputs[k]->name, rebuild.types[k].dtype, rebuild.types[k].shape);
  std::map<std::int32_t, std::vector<ValueId>> done;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (rebuild.weights[k].node < 0) continue;
    RLX_ASSIGN(const ValueId copied, weights.copy(rebuild.weights[k], result, done));
    values[k] = result.handle(copied);
  }
  RLX_ASSIGN(const Values outputs, inline_graph(result, graph, values));
  for (const std::size_t k : rebuild.outputs) result.output(graph.outputs()[k].name, outputs[k]);
  RLX_ASSIGN(result, specialise(result, {}));
  RLX_ASSIGN(result, simplify(result));
  RLX_ASSIGN(result, loop_forms(result));
  return std::make_shared<const Graph>(std::move(result));
}

/// A scan or a host_loop as both are built: what stands before the carries, and the counts.
struct LoopShape {
  GraphPointer body;
  std::size_t operands_before = 0, inputs_before = 0, outputs_before = 0;
  std::size_t carries = 0, scanned = 0;
};

/// Carries that the body hands on as they are become captures; captured weights go inside.
class LoopRewrite {
 public:
  LoopRewrite(Rewriter& rewriter, std::int32_t index, const Node& node, LoopShape shape,
              WeightCopier& weights)
      : rewriter_(rewriter),
        index_(index),
        node_(node),
        shape_(std::move(shape)),
        weights_(weights) {}

  /// False where the types are not known yet: the loop stays as it is.
  Result<bool> run(const auto& make_op) {
    if (!has_static_types()) return false;
    choose_carries();
    place_operands();
    results_.resize(node_.results.size());
    for (std::size_t i = 0; i < shape_.carries; ++i) {
      if (is_fixed_[i]) results_[i] = rewriter_(operand(i));
    }
    if (!rebuild_.outputs.empty()) {
      RLX_ASSIGN(GraphPointer body, rebuilt(*shape_.body, rebuild_, weights_));
      std::vector<ValueId> inputs;
      for (const ValueId id : operands_) inputs.push_back(rewriter_(id));
      RLX_ASSIGN(const auto added,
                 rewriter_.target().try_add(make_op(std::move(body), carries_left_), inputs,
                                            node_.name, node_.origin));
      std::size_t next = 0;
      for (std::size_t i = 0; i < results_.size(); ++i) {
        if (i >= shape_.carries || !is_fixed_[i]) results_[i] = added[next++];
      }
    }
    rewriter_.replace(index_, results_);
    return true;
  }

 private:
  ValueId operand(std::size_t i) const { return node_.inputs[shape_.operands_before + i]; }
  const Type& type(ValueId id) const { return rewriter_.source().type(id); }
  std::size_t operand_count() const { return node_.inputs.size() - shape_.operands_before; }

  bool has_static_types() const {
    for (std::size_t i = 0; i < operand_count(); ++i) {
      if (!type(operand(i)).is_static()) return false;
      if (i < shape_.carries && node_.results[i] != type(operand(i))) return false;
    }
    return true;
  }

  /// A carry is fixed where the body's output is its own input.
  void choose_carries() {
    const std::vector<const op::Input*> inputs = inputs_of(*shape_.body);
    for (std::size_t i = 0; i < shape_.carries; ++i) {
      const ValueId next = shape_.body->outputs()[shape_.outputs_before + i].value;
      const bool fixed =
          shape_.body->node(next).op.as<op::Input>() == inputs[shape_.inputs_before + i];
      is_fixed_.push_back(fixed);
      carries_left_ += fixed ? 0 : 1;
    }
    const std::size_t emitted_from = shape_.outputs_before + shape_.carries;
    for (std::size_t k = 0; k < shape_.body->outputs().size(); ++k) {
      const bool is_carry = k >= shape_.outputs_before && k < emitted_from;
      if (!is_carry || !is_fixed_[k - shape_.outputs_before]) rebuild_.outputs.push_back(k);
    }
    // Without carries and emitted results nothing is left to compute.
    if (carries_left_ == 0 && shape_.body->outputs().size() == emitted_from)
      rebuild_.outputs.clear();
  }

  void place_operands() {
    rebuild_.types.push_back({i64, {}});
    if (shape_.inputs_before == 2) rebuild_.types.push_back({boolean, {}});
    rebuild_.weights.resize(shape_.inputs_before + operand_count(), ValueId{-1, 0});
    for (std::size_t k = 0; k < shape_.inputs_before; ++k) rebuild_.order.push_back(k);
    for (std::size_t i = 0; i < shape_.operands_before; ++i) operands_.push_back(node_.inputs[i]);
    for (std::size_t i = 0; i < operand_count(); ++i) {
      Type inside = type(operand(i));
      if (is_scanned(i)) inside.shape.erase(inside.shape.begin());
      rebuild_.types.push_back(std::move(inside));
      if (is_carried(i) || is_scanned(i)) keep(i);
    }
    for (std::size_t i = 0; i < operand_count(); ++i) {
      if (is_carried(i) || is_scanned(i)) continue;
      if (weights_.is_weight(operand(i))) {
        rebuild_.weights[shape_.inputs_before + i] = operand(i);
      } else {
        keep(i);
      }
    }
  }

  bool is_carried(std::size_t i) const { return i < shape_.carries && !is_fixed_[i]; }
  bool is_scanned(std::size_t i) const {
    return i >= shape_.carries && i < shape_.carries + shape_.scanned;
  }
  void keep(std::size_t i) {
    rebuild_.order.push_back(shape_.inputs_before + i);
    operands_.push_back(operand(i));
  }

  Rewriter& rewriter_;
  const std::int32_t index_;
  const Node& node_;
  const LoopShape shape_;
  WeightCopier& weights_;
  std::vector<bool> is_fixed_;
  std::int64_t carries_left_ = 0;
  Rebuild rebuild_;
  std::vector<ValueId> operands_, results_;
};

/// if(c, a, b)(operands): weights among the operands stand in both branches.
Result<bool> rewrite_if(Rewriter& rewriter, std::int32_t index, const Node& node,
                        const op::If& branch, WeightCopier& weights) {
  Rebuild rebuild;
  std::vector<ValueId> operands{rewriter(node.inputs[0])};
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    rebuild.types.push_back(rewriter.source().type(id));
    rebuild.weights.push_back(weights.is_weight(id) ? id : ValueId{-1, 0});
    if (weights.is_weight(id)) continue;
    rebuild.order.push_back(i - 1);
    operands.push_back(rewriter(id));
  }
  for (std::size_t k = 0; k < branch.then_branch->outputs().size(); ++k)
    rebuild.outputs.push_back(k);
  RLX_ASSIGN(GraphPointer a, rebuilt(*branch.then_branch, rebuild, weights));
  RLX_ASSIGN(GraphPointer b, rebuilt(*branch.else_branch, rebuild, weights));
  RLX_TRY(rewriter.add(index, op::If{std::move(a), std::move(b)}, std::move(operands)));
  return true;
}

/// while(c, f)(x) = host_loop(c(x), x) with the body x -> c(f(x)), f(x).
Result<Graph> whiles_as_loops(const Graph& graph) {
  return rewrite(
      graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        const auto* loop = node.op.as<op::While>();
        if (!loop) return false;
        const Values carries = rewriter.values_of(node);
        RLX_ASSIGN(const Values first, inline_graph(rewriter.target(), *loop->condition, carries));
        Graph body;
        body.input("step of while", i64, {});
        body.input("condition of while", boolean, {});
        Values inside;
        const std::vector<const op::Input*> inputs = inputs_of(*loop->body);
        for (std::size_t i = 0; i < carries.size(); ++i)
          inside.push_back(body.input(inputs[i]->name, carries[i].dtype(), carries[i].shape()));
        RLX_ASSIGN(const Values next, inline_graph(body, *loop->body, inside));
        RLX_ASSIGN(const Values condition, inline_graph(body, *loop->condition, next));
        body.output("condition of while", reshape(condition[0], {}));
        for (std::size_t i = 0; i < next.size(); ++i)
          body.output(loop->body->outputs()[i].name, next[i]);
        std::vector<ValueId> operands{{-1, 0}, reshape(first[0], {}).id()};
        for (const Value& carry : carries) operands.push_back(carry.id());
        RLX_TRY(rewriter.add(index,
                             op::HostLoop{std::make_shared<const Graph>(std::move(body)),
                                          static_cast<std::int64_t>(carries.size())},
                             std::move(operands)));
        return true;
      });
}

}  // namespace

Result<Graph> loop_forms(Graph graph) {
  const bool any = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                               [](const Node& node) { return node.op.info().traits.control_flow; });
  if (!any) return graph;
  RLX_ASSIGN(const Graph loops, whiles_as_loops(graph));
  WeightCopier weights(loops);
  return rewrite(
      loops, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        if (const auto* branch = node.op.as<op::If>())
          return rewrite_if(rewriter, index, node, *branch, weights);
        if (const auto* scan = node.op.as<op::Scan>()) {
          LoopShape shape{scan->body,
                          0,
                          1,
                          0,
                          static_cast<std::size_t>(scan->carries),
                          static_cast<std::size_t>(scan->scanned)};
          return LoopRewrite(rewriter, index, node, std::move(shape), weights)
              .run([&](GraphPointer body, std::int64_t carries) {
                return op::Scan{std::move(body), scan->length, carries, scan->scanned,
                                scan->reverse};
              });
        }
        if (const auto* loop = node.op.as<op::HostLoop>()) {
          LoopShape shape{loop->body, 2, 2, 1, static_cast<std::size_t>(loop->carries), 0};
          return LoopRewrite(rewriter, index, node, std::move(shape), weights)
              .run([&](GraphPointer body, std::int64_t carries) {
                return op::HostLoop{std::move(body), carries};
              });
        }
        return false;
      });
}

}  // namespace rlx::passes
