// One weight with one slice after the other of a value, put together again by a concatenation, as
// one product of them all (layers that an exporter unrolled over time).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "passes/merge_products.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

using Parts = std::vector<ValueId>;

/// The axis along which slices of one value follow each other, one element each.
struct Run {
  std::size_t axis = 0;
  std::int64_t start = 0, step = 1;
};

/// Values of equal computations as one value with one more axis in front.
class Stacks {
 public:
  explicit Stacks(const Graph& graph) : graph_(graph), uses_(graph.nodes().size(), 0) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId id : node.inputs) {
        if (id.node >= 0) ++uses_[static_cast<std::size_t>(id.node)];
      }
    }
    for (const GraphOutput& output : graph.outputs())
      ++uses_[static_cast<std::size_t>(output.value.node)];
  }

  /// The parts of a concatenation that can be computed at once, with a product among what they do.
  bool is_stack(const Node& node) const {
    const auto* concat = node.op.as<op::Concat>();
    if (!concat || node.inputs.size() < 2 || !node.results[0].is_static()) return false;
    const Dims dims = graph_.type(node.inputs[0]).dims();
    const auto axis =
        concat->axis < 0 ? concat->axis + static_cast<std::int64_t>(dims.size()) : concat->axis;
    for (std::int64_t i = 0; i < axis; ++i) {
      if (dims[static_cast<std::size_t>(i)] != 1) return false;  // parts lie behind each other
    }
    const auto [stacks, products] = count(node.inputs);
    return stacks && products > 0;
  }

  /// Launches of the parts beside one of them, and what they read and write.
  FusionQuestion question(const Node& node, std::int32_t index, const IoFusionGate& gate,
                          const GivenAnswers& given) const {
    const auto parts = static_cast<std::int64_t>(node.inputs.size());
    const std::int64_t products = count(node.inputs).second;
    const std::int64_t bytes = graph_.type({index, 0}).bytes(),
                       weights = weight_bytes(node.inputs[0]);
    FusionQuestion asked{.what = fmt::format("stack the {} parts of concat %{}", parts, index),
                         .kind = "products",
                         .before = {parts * products, 0, 0, bytes + parts * weights},
                         .after = {products, 0, 0, bytes + weights}};
    decide(asked, gate, given);
    return asked;
  }

  /// The parts as one value of the target; they are a stack.
  Result<Value> build(Rewriter& rewriter, const Parts& parts) const {
    const Node& first = graph_.node(parts[0]);
    if (const auto run = run_of(parts)) return slices(rewriter, first, *run, parts.size());
    std::vector<ValueId> operands;
    for (std::size_t k = 0; k < first.inputs.size(); ++k) {
      if (is_shared(parts, k)) {
        operands.push_back(rewriter(first.inputs[k]));
        continue;
      }
      RLX_ASSIGN(const Value operand, build(rewriter, operands_of(parts, k)));
      operands.push_back(operand.id());
    }
    const Value x = rewriter.target().handle(operands[0]);
    if (const auto* op = first.op.as<op::Transpose>()) {
      Axes perm{0};
      for (const std::int64_t axis : op->perm) perm.push_back(axis + 1);
      return transpose(x, perm);
    }
    if (first.op.is<op::Reshape>()) {
      Shape shape = first.results[0].shape;
      shape.insert(shape.begin(), Dim(static_cast<std::int64_t>(parts.size())));
      return reshape(x, shape);
    }
    Op op = first.op;
    if (const auto* dot = first.op.as<op::DotGeneral>()) {
      op::DotGeneral stacked = *dot;
      for (std::int64_t& axis : stacked.a_contract) ++axis;
      op = stacked;
    }
    RLX_ASSIGN(const auto made,
               rewriter.target().try_add(std::move(op), operands, {}, first.origin));
    return rewriter.target().handle(made[0]);
  }

 private:
  /// Can these values be stacked, and how many products does each of them take?
  std::pair<bool, std::int64_t> count(const Parts& parts) const {
    const std::pair<bool, std::int64_t> no{false, 0};
    const Node& first = graph_.node(parts[0]);
    if (run_of(parts)) return {true, 0};
    for (const ValueId part : parts) {
      const Node& node = graph_.node(part);
      if (part.result != 0 || node.op != first.op || node.results != first.results ||
          node.inputs.size() != first.inputs.size() ||
          uses_[static_cast<std::size_t>(part.node)] != 1)
        return no;
    }
    if (first.results.size() != 1 || !first.results[0].is_static() || first.inputs.empty())
      return no;
    const auto* dot = first.op.as<op::DotGeneral>();
    if (dot) {
      const bool plain = dot->a_batch.empty() && is_shared(parts, 1) &&
                         std::all_of(dot->a_contract.begin(), dot->a_contract.end(),
                                     [](std::int64_t axis) { return axis >= 0; });
      if (!plain) return no;
    } else if (!first.op.is<op::Transpose>() && !first.op.is<op::Reshape>() &&
               !first.op.info().traits.elementwise) {
      return no;
    }
    std::int64_t products = dot ? 1 : 0;
    for (std::size_t k = 0; k < first.inputs.size(); ++k) {
      if (is_shared(parts, k)) {
        if (k == 0 && !first.op.info().traits.elementwise) return no;
        continue;
      }
      // Operands that broadcast would meet the new axis with one of their own.
      if (first.op.info().traits.elementwise &&
          graph_.type(first.inputs[k]).rank() != first.results[0].rank())
        return no;
      const auto [stacks, more] = count(operands_of(parts, k));
      if (!stacks) return no;
      products += more;
    }
    return {true, products};
  }

  bool is_shared(const Parts& parts, std::size_t k) const {
    const ValueId first = graph_.node(parts[0]).inputs[k];
    return std::all_of(parts.begin(), parts.end(),
                       [&](ValueId part) { return graph_.node(part).inputs[k] == first; });
  }
  Parts operands_of(const Parts& parts, std::size_t k) const {
    Parts operands;
    for (const ValueId part : parts) operands.push_back(graph_.node(part).inputs[k]);
    return operands;
  }

  /// Slices of one value, alike but for where they start on one axis, with equal steps between
  /// them.
  std::optional<Run> run_of(const Parts& parts) const {
    const auto slice_of = [&](ValueId id) {
      return id.node < 0 ? nullptr : graph_.node(id).op.as<op::Slice>();
    };
    const op::Slice* first = slice_of(parts[0]);
    const op::Slice* second = slice_of(parts[1]);
    if (!first || !second) return std::nullopt;
    const ValueId x = graph_.node(parts[0]).inputs[0];
    if (!graph_.type(x).is_static()) return std::nullopt;
    const Dims dims = graph_.type(parts[0]).dims();
    Run run;
    while (run.axis < dims.size() && first->starts[run.axis] == second->starts[run.axis])
      ++run.axis;
    if (run.axis == dims.size() || dims[run.axis] != 1) return std::nullopt;
    run.start = first->starts[run.axis];
    run.step = second->starts[run.axis] - run.start;
    if (run.start < 0 || run.step < 1) return std::nullopt;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const op::Slice* slice = slice_of(parts[i]);
      if (!slice || graph_.node(parts[i]).inputs[0] != x || graph_.type(parts[i]).dims() != dims)
        return std::nullopt;
      for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        const bool runs = axis == run.axis;
        const std::int64_t step = slice->steps.empty() ? 1 : slice->steps[axis];
        const std::int64_t start =
            runs ? run.start + static_cast<std::int64_t>(i) * run.step : first->starts[axis];
        if (slice->starts[axis] != start || slice->starts[axis] < 0 || step != 1)
          return std::nullopt;
      }
    }
    return run;
  }

  // x[..., start + i * step, ...] for all i, the axis in front, and one of size 1 in its place.
  Result<Value> slices(Rewriter& rewriter, const Node& first, const Run& run,
                       std::size_t count) const {
    const Value x = rewriter.target().handle(rewriter(first.inputs[0]));
    const auto* slice = first.op.as<op::Slice>();
    const Dims dims = first.results[0].dims();
    const auto rank = static_cast<std::int64_t>(dims.size());
    const auto axis = static_cast<std::int64_t>(run.axis);
    Axes starts = slice->starts, limits = starts, steps(dims.size(), 1), perm{axis};
    for (std::size_t i = 0; i < dims.size(); ++i) limits[i] += dims[i];
    limits[run.axis] = run.start + static_cast<std::int64_t>(count - 1) * run.step + 1;
    steps[run.axis] = run.step;
    Shape shape{Dim(static_cast<std::int64_t>(count))};
    for (std::int64_t i = 0; i < rank; ++i) {
      if (i != axis) perm.push_back(i);
      shape.push_back(dims[static_cast<std::size_t>(i)]);
    }
    return reshape(transpose(rlx::slice(x, starts, limits, steps), perm), shape);
  }

  std::int64_t weight_bytes(ValueId id) const {
    const Node& node = graph_.node(id);
    if (node.op.is<op::DotGeneral>()) return graph_.type(node.inputs[1]).bytes();
    std::int64_t bytes = 0;
    for (const ValueId input : node.inputs) {
      if (input.node >= 0 && !graph_.node(input).op.is<op::Slice>()) bytes += weight_bytes(input);
    }
    return bytes;
  }

  const Graph& graph_;
  std::vector<int> uses_;
};

}  // namespace

Result<Graph> stack_products(Graph graph, const IoFusionGate& gate,
                             std::vector<FusionQuestion>* questions, const GivenAnswers& given) {
  const Stacks stacks(graph);
  std::vector<bool> taken(graph.nodes().size(), false);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!stacks.is_stack(graph.nodes()[i])) continue;
    FusionQuestion asked =
        stacks.question(graph.nodes()[i], static_cast<std::int32_t>(i), gate, given);
    taken[i] = asked.fused;
    if (questions) questions->push_back(std::move(asked));
  }
  if (std::none_of(taken.begin(), taken.end(), [](bool one) { return one; })) return graph;
  RLX_ASSIGN(
      const Graph made,
      rewrite(graph, [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        if (!taken[static_cast<std::size_t>(index)]) return false;
        RLX_ASSIGN(const Value all, stacks.build(rewriter, node.inputs));
        rewriter.replace(index, Values{reshape(all, node.results[0].shape)});
        return true;
      }));
  return drop_dead(made);
}

}  // namespace rlx::passes
