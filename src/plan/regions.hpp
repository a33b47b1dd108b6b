// Regions: which nodes of a MIR graph become one kernel, and in what order the kernels run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cost/product_cost.hpp"
#include "graph/product_shape.hpp"
#include "graph/questions.hpp"
#include "plan/view.hpp"
#include "rlx/cost.hpp"
#include "rlx/graph.hpp"
#include "rlx/ops.hpp"
#include "rlx/result.hpp"

namespace rlx::plan {

/// A graph whose branches stand side by side: node i runs only where all its predicates hold (value
/// is a bool scalar).
struct FlatGraph {
  Graph graph;
  struct Predicate {
    ValueId value;
    bool holds_if = true;
    bool operator==(const Predicate&) const = default;
  };
  std::vector<std::vector<Predicate>> predicates;
  /// The body of a loop (scan, host_loop) among the nodes, where it can be planned.
  struct Body {
    std::int32_t node = -1;
    std::shared_ptr<const FlatGraph> graph;
  };
  std::vector<Body> bodies;

  /// The body of that node, or null.
  const FlatGraph* body_of(std::int32_t node) const {
    for (const Body& body : bodies)
      if (body.node == node) return body.graph.get();
    return nullptr;
  }
};

/// The graph and the bodies of its loops in order, each before its own loops: WeightPlan::graph
/// counts in this list.
std::vector<const Graph*> graphs_of(const FlatGraph& flat);

/// Puts the nodes of both branches of every If into the graph, under predicates; the If becomes
/// selects. Loops whose bodies have static shapes get these as graphs of the same kind.
Result<FlatGraph> flatten(const Graph& graph);

struct Region {
  enum class Kind : std::uint8_t {
    nest,         ///< elementwise ops, reductions over one set of axes
    window,       ///< a pool or depthwise convolution and what follows it
    tiles,        ///< a transform of Winograd's tiles and what follows it
    contraction,  ///< a matmul or convolution and what follows it
    recurrence,   ///< an LSTM, GRU or RNN layer
    concat,       ///< copies of the parts that are not written in place
    host,         ///< one op, evaluated on the host
  };
  Kind kind = Kind::nest;
  std::int32_t root = -1;           ///< contraction, window, tiles, recurrence: the node that is it
  std::vector<std::int32_t> nodes;  ///< ascending
  Dims dims;     ///< of the full points (contraction, window, tiles: of the root's result)
  Axes reduced;  ///< axes of dims that the reductions run over; empty: none
  /// contraction: at most one other contraction, whose last value only this root reads, as its a.
  /// tiles: none, or what makes the points and what multiplies them, a row of tiles at a time.
  std::vector<Region> before;
  /// Maps of other values that are evaluated here at the points where they are read, and stored
  /// nowhere; ascending.
  std::vector<std::int32_t> recomputed;
};

struct Regions {
  std::vector<Region> list;  ///< in execution order
  /// By node; -1: none (leaf, view, weight-only, recomputed where it is read).
  std::vector<std::int32_t> region_of;
  std::vector<bool> weight_only;  ///< by node: depends on params and constants alone
  /// By node and result: how it is read. A dense view of itself, or through view ops (and casts to
  /// f32 that products read through) of another value.
  std::vector<std::vector<View>> views;
  std::vector<FusionQuestion> questions;  ///< in the order in which they were asked
  double planning_ms = 0;                 ///< what forming them took
};

/// Who decides about optional fusions, and by what figures. The defaults are the CPU's.
struct FusionPolicy {
  bool enabled = true;
  bool exact = false;  ///< what the graph rounds is rounded there, and to the same number
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  GivenAnswers given;  ///< answers that count whatever the gate says
  int threads = 1;
  unsigned lanes = 16;  ///< floats of a register
  /// What a register of points of an expression takes one thread; null: a ns for each node.
  std::function<double(std::span<const ScalarNode>)> expression_ns;
  /// What a product takes longer where workers make whole rows; `weight`: its B is one. Null:
  /// nothing.
  std::function<double(const ProductShape&, DType a, DType b, bool weight, cost::WholeRows)>
      whole_rows_ns;
};

/// The CPU's policy with the figures of its machine model; a calibrated one also replaces the
/// gate's preset.
FusionPolicy fusion_policy(const cost::MachineModel& model, int threads, bool enabled);

Regions form_regions(const FlatGraph& graph, const FusionPolicy& policy);

/// The value that a product reads for its operand: what is cast to f32 or i32 where kernels
/// multiply the narrower elements themselves (such casts are views), else the operand.
ValueId operand_read(const Graph& graph, const Regions& regions, ValueId operand);

/// Does the op read elements of its first operand at places that the other ones tell?
bool is_pick(const Op& op);

/// May a kernel of loops be generated for values of this dtype?
bool is_generated(DType dtype);

}  // namespace rlx::plan
