// What patterns over graphs ask: who reads a value, which constants it is made with.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// By node: the nodes that read one of its results, once for each operand, ascending; then -1 for
/// each output of the graph that it gives.
std::vector<std::vector<std::int32_t>> readers_of(const Graph& graph);

/// Questions about the values of one graph.
class Pattern {
 public:
  explicit Pattern(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const Node& node(ValueId id) const { return graph_.node(id); }
  template <class T>
  bool is(ValueId id) const {
    return id.node >= 0 && id.result == 0 && node(id).op.is<T>();
  }
  /// Operand k of the value's node.
  ValueId in(ValueId id, std::size_t k) const { return node(id).inputs[k]; }
  /// Does one operand of one node read the value, and no output?
  bool read_once(ValueId id) const;

  /// How many operands of nodes it is; an output counts as two.
  int readers(ValueId id) const;

  /// The value of a constant of one element.
  std::optional<double> number(ValueId id) const;

  /// A product taken apart: `factor` times what `values` hold. Products that others read stay
  /// whole.
  struct Product {
    double factor = 1;
    std::vector<ValueId> values;
  };
  Product product(ValueId id) const;

  /// The coefficients of 1, x, x^2, x^3 where `id` is such a polynomial of x, written
  /// with at most `depth` operations on a path.
  using Cubic = std::array<double, 4>;
  std::optional<Cubic> polynomial(ValueId id, ValueId x, int depth = 6) const;

 private:
  void collect(ValueId id, bool root, Product& product) const;

  const Graph& graph_;
  std::vector<std::vector<int>> readers_;  ///< by node and result
};

/// Equal up to what constants lose in f32 (and exporters in their decimals).
bool close(double a, double b);

}  // namespace rlx::passes
