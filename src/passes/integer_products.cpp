// Products of integers as sums over elementwise products: one generated kernel.
#include <algorithm>

#include "graph/narrow_products.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

/// The axes of one operand by role, counted from the front.
struct OperandAxes {
  Axes batch, contract, free;
};

OperandAxes axes_of(Axes batch, Axes contract, std::int64_t rank) {
  for (Axes* axes : {&batch, &contract}) {
    for (std::int64_t& axis : *axes)
      if (axis < 0) axis += rank;
  }
  OperandAxes result{std::move(batch), std::move(contract), {}};
  const auto has = [](const Axes& axes, std::int64_t axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (!has(result.batch, axis) && !has(result.contract, axis)) result.free.push_back(axis);
  }
  return result;
}

std::int64_t size_of(const Value& x, const Axes& axes) {
  std::int64_t size = 1;
  for (const std::int64_t axis : axes) size *= x.shape()[static_cast<std::size_t>(axis)].value();
  return size;
}

/// x as [batch, free, contract], one axis for each role.
Value by_role(const Value& x, const OperandAxes& axes) {
  Axes order = axes.batch;
  order.insert(order.end(), axes.free.begin(), axes.free.end());
  order.insert(order.end(), axes.contract.begin(), axes.contract.end());
  return reshape(transpose(x, order),
                 {size_of(x, axes.batch), size_of(x, axes.free), size_of(x, axes.contract)});
}

/// Axes of b that are no rows or columns of their own.
int free_of_b(const op::DotGeneral& dot) {
  return static_cast<int>(dot.b_batch.size() + dot.b_contract.size());
}

// dot(a, b)[batch, m, n] = sum over k of a[batch, m, 1, k] b[batch, 1, n, k]
Result<bool> sum_of_products(Rewriter& rewriter, std::int32_t index, const Node& node,
                             const op::DotGeneral& dot) {
  const Values operands = rewriter.values_of(node);
  const Value &a = operands[0], &b = operands[1];
  // Products of few bits have kernels of their own.
  if (multiplies_narrow_integers(rewriter.source(), node) && b.rank() == free_of_b(dot) + 1)
    return false;
  if (!is_integer(a.dtype()) || !a.type().is_static() || !b.type().is_static()) return false;
  const OperandAxes a_axes = axes_of(dot.a_batch, dot.a_contract, a.rank()),
                    b_axes = axes_of(dot.b_batch, dot.b_contract, b.rank());
  if (node.results[0].elements() == 0 || size_of(a, a_axes.contract) == 0) return false;
  const Value rows = unsqueeze(by_role(a, a_axes), {2}),
              columns = unsqueeze(by_role(b, b_axes), {1});
  const Shape points{rows.shape()[0], rows.shape()[1], columns.shape()[2], rows.shape()[3]};
  const Value products = broadcast(rows, points) * broadcast(columns, points);
  rewriter.replace(index, Values{reshape(sum(products, {3}, true), node.results[0].shape)});
  return true;
}

}  // namespace

Result<Graph> integer_products(Graph graph) {
  const auto is_product = [](const Node& node) { return node.op.is<op::DotGeneral>(); };
  if (std::ranges::none_of(graph.nodes(), is_product)) return graph;
  return rewrite(graph,
                 [](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   const auto* dot = node.op.as<op::DotGeneral>();
                   return dot ? sum_of_products(rewriter, index, node, *dot) : Result<bool>(false);
                 });
}

}  // namespace rlx::passes
