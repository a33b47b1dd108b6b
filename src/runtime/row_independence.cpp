// Follows the axis of rows through a graph of primitives.
#include "runtime/row_independence.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

constexpr int no_rows = -1;

Error mixes(const Node& node) {
  return bad_input("{}{} mixes rows, or is not known not to.", node.op.name(),
                   node.origin.empty() ? "" : " (" + node.origin.text() + ")");
}

bool holds(const Axes& axes, int axis, int rank) {
  return std::any_of(axes.begin(), axes.end(), [&](std::int64_t named) {
    return (named < 0 ? named + rank : named) == axis;
  });
}

class Follower {
 public:
  Follower(const Graph& graph, std::int64_t rows, const std::map<std::string, int>& inputs)
      : graph_(graph), rows_(rows), inputs_(inputs), axis_of_(graph.nodes().size(), no_rows) {}

  Status run() {
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (const auto* input = node.op.as<op::Input>()) {
        const auto found = inputs_.find(input->name);
        if (found != inputs_.end()) axis_of_[i] = found->second;
        continue;
      }
      const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId id) { return axis(id) != no_rows; });
      if (!any) continue;
      const std::optional<int> result = follow(node);
      if (!result) return mixes(node);
      axis_of_[i] = *result;
    }
    return {};
  }
  /// Of each node's results; no_rows where no input's rows reach it.
  const std::vector<int>& axes() const { return axis_of_; }

 private:
  int axis(ValueId id) const {
    return id.node < 0 ? no_rows : axis_of_[static_cast<std::size_t>(id.node)];
  }
  int rank(ValueId id) const { return static_cast<int>(graph_.type(id).rank()); }
  std::int64_t dim(ValueId id, int axis) const {
    return graph_.type(id).dims()[static_cast<std::size_t>(axis)];
  }

  /// The result's axis of rows; nothing where rows may mix.
  std::optional<int> follow(const Node& node) const {
    if (node.op.info().traits.elementwise) return elementwise(node);
    const ValueId x = node.inputs[0];
    const int a = axis(x), r = rank(x);
    for (std::size_t k = 1; k < node.inputs.size(); ++k) {
      const bool may =
          node.op.is<op::DotGeneral>() || node.op.is<op::Gather>() || node.op.is<op::Concat>();
      if (!may && axis(node.inputs[k]) != no_rows) return std::nullopt;
    }
    if (const auto* reduce = node.op.as<op::Reduce>())
      return reduced(reduce->axes, reduce->keep_dims, a, r);
    if (const auto* arg = node.op.as<op::ArgReduce>())
      return reduced({arg->axis}, arg->keep_dims, a, r);
    if (const auto* top = node.op.as<op::TopK>())
      return holds({top->axis}, a, r) ? std::nullopt : std::optional(a);
    if (const auto* running = node.op.as<op::Cumulative>())
      return running->reverse && holds({running->axis}, a, r) ? std::nullopt : std::optional(a);
    if (const auto* transpose = node.op.as<op::Transpose>()) {
      const auto found = std::find(transpose->perm.begin(), transpose->perm.end(), a);
      return static_cast<int>(found - transpose->perm.begin());
    }
    if (const auto* reverse = node.op.as<op::Reverse>())
      return holds(reverse->axes, a, r) ? std::nullopt : std::optional(a);
    if (node.op.is<op::Reshape>()) return reshaped(node, a);
    if (node.op.is<op::Broadcast>()) return a + static_cast<int>(node.results[0].rank()) - r;
    if (const auto* slice = node.op.as<op::Slice>()) return sliced(*slice, a);
    if (const auto* pad = node.op.as<op::Pad>()) {
      const auto at = static_cast<std::size_t>(a);
      return pad->low[at] == 0 && pad->high[at] == 0 ? std::optional(a) : std::nullopt;
    }
    if (node.op.is<op::Concat>()) return concatenated(node);
    if (node.op.is<op::Gather>()) return gathered(node);
    if (const auto* dot = node.op.as<op::DotGeneral>()) return multiplied(node, *dot);
    if (node.op.is<op::Conv>() || node.op.is<op::WindowReduce>())
      return a == 0 ? std::optional(0) : std::nullopt;
    return std::nullopt;
  }

  std::optional<int> elementwise(const Node& node) const {
    const int r = static_cast<int>(node.results[0].rank());
    std::optional<int> found;
    for (const ValueId id : node.inputs) {
      if (axis(id) == no_rows) continue;
      const int at = axis(id) + r - rank(id);
      if (found && *found != at) return std::nullopt;
      found = at;
    }
    // What has no rows must be the same for all of them.
    for (const ValueId id : node.inputs) {
      if (id.node < 0 || axis(id) != no_rows) continue;
      const int at = *found - (r - rank(id));
      if (at >= 0 && dim(id, at) != 1) return std::nullopt;
    }
    return found;
  }

  static std::optional<int> reduced(const Axes& axes, bool keep_dims, int a, int r) {
    if (axes.empty() || holds(axes, a, r)) return std::nullopt;
    if (keep_dims) return a;
    int before = 0;
    for (int i = 0; i < a; ++i) before += holds(axes, i, r);
    return a - before;
  }

  std::optional<int> reshaped(const Node& node, int a) const {
    const Dims from = graph_.type(node.inputs[0]).dims(), to = node.results[0].dims();
    std::int64_t before = 1, passed = 1;
    for (int i = 0; i < a; ++i) before *= from[static_cast<std::size_t>(i)];
    for (std::size_t j = 0; j < to.size(); ++j) {
      if (passed == before && to[j] == rows_) return static_cast<int>(j);
      passed *= to[j];
    }
    return std::nullopt;
  }

  std::optional<int> sliced(const op::Slice& slice, int a) const {
    const auto at = static_cast<std::size_t>(a);
    const bool whole = slice.starts[at] == 0 && slice.limits[at] >= rows_ &&
                       (slice.steps.empty() || slice.steps[at] == 1);
    return whole ? std::optional(a) : std::nullopt;
  }

  std::optional<int> concatenated(const Node& node) const {
    std::optional<int> found;
    for (const ValueId id : node.inputs) {
      const int a = axis(id);
      if (a == no_rows || (found && *found != a)) return std::nullopt;
      found = a;
    }
    return holds({node.op.as<op::Concat>()->axis}, *found, rank(node.inputs[0])) ? std::nullopt
                                                                                 : found;
  }

  std::optional<int> gathered(const Node& node) const {
    const ValueId x = node.inputs[0], indices = node.inputs[1];
    const std::int64_t named = node.op.as<op::Gather>()->axis;
    const int g = static_cast<int>(named < 0 ? named + rank(x) : named);
    if (axis(x) == no_rows) return g + axis(indices);
    if (axis(indices) != no_rows || axis(x) == g) return std::nullopt;
    return axis(x) < g ? axis(x) : axis(x) - 1 + rank(indices);
  }

  std::optional<int> multiplied(const Node& node, const op::DotGeneral& dot) const {
    const auto place = [](const Axes& axes, int a) {
      return static_cast<int>(std::find(axes.begin(), axes.end(), a) - axes.begin());
    };
    const auto free_before = [](const Axes& batch, const Axes& contract, int a, int rank) {
      int count = 0;
      for (int i = 0; i < a; ++i) count += !holds(batch, i, rank) && !holds(contract, i, rank);
      return count;
    };
    const ValueId x = node.inputs[0], y = node.inputs[1];
    const int a = axis(x), b = axis(y), ra = rank(x), rb = rank(y);
    const int batches = static_cast<int>(dot.a_batch.size());
    if (a != no_rows && holds(dot.a_contract, a, ra)) return std::nullopt;
    if (b != no_rows && holds(dot.b_contract, b, rb)) return std::nullopt;
    if (a != no_rows && b != no_rows) {
      const bool both = holds(dot.a_batch, a, ra) && holds(dot.b_batch, b, rb) &&
                        place(dot.a_batch, a) == place(dot.b_batch, b);
      return both ? std::optional(place(dot.a_batch, a)) : std::nullopt;
    }
    if (a != no_rows) {
      if (holds(dot.a_batch, a, ra)) return std::nullopt;
      return batches + free_before(dot.a_batch, dot.a_contract, a, ra);
    }
    if (holds(dot.b_batch, b, rb)) return std::nullopt;
    return batches + free_before(dot.a_batch, dot.a_contract, ra, ra) +
           free_before(dot.b_batch, dot.b_contract, b, rb);
  }

  const Graph& graph_;
  const std::int64_t rows_;
  const std::map<std::string, int>& inputs_;
  std::vector<int> axis_of_;
};

/// Inputs that have the symbol, with its axis.
Result<std::map<std::string, int>> axes_of_inputs(const Graph& graph, const std::string& symbol) {
  std::map<std::string, int> axes;
  for (const Node& node : graph.nodes()) {
    const auto* input = node.op.as<op::Input>();
    if (!input) continue;
    const Shape& shape = node.results[0].shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i].is_static() || shape[i].text() != symbol) continue;
      if (!axes.emplace(input->name, static_cast<int>(i)).second)
        return bad_input("The input ({}) has the symbol ({}) twice.", input->name, symbol);
    }
  }
  if (axes.empty()) return bad_input("No input has a dim with the symbol ({}).", symbol);
  return axes;
}

Result<Graph> primitives(const Graph& graph, const std::string& symbol, std::int64_t rows,
                         passes::Bindings bindings) {
  bindings.dims[symbol] = rows;
  RLX_ASSIGN(Graph result, passes::specialise(graph, bindings));
  RLX_ASSIGN(result, passes::lower(result, [](const Graph&, const Node& node) {
               return node.op.info().scalar || !node.op.info().body;
             }));
  RLX_ASSIGN(result, passes::simplify(result));
  return passes::drop_dead(result);
}

/// A graph of primitives for so many rows, and where its rows lie.
struct Followed {
  Graph graph;
  std::vector<int> axes;
};

Result<Followed> followed(const Graph& graph, const std::string& symbol, std::int64_t rows,
                          const passes::Bindings& others,
                          const std::map<std::string, int>& inputs) {
  RLX_ASSIGN(Graph result, primitives(graph, symbol, rows, others));
  Follower follower(result, rows, inputs);
  RLX_TRY(follower.run());
  return Followed{std::move(result), follower.axes()};
}

/// Equal dtypes and dims, but for the axis of rows.
bool same_beside_rows(const Type& a, const Type& b, int axis) {
  if (a.dtype != b.dtype || a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i != axis && a.dims()[at] != b.dims()[at]) return false;
  }
  return true;
}

/// What rows do not reach must be the same for every size: numbers, dims, attributes.
Status check_same(const Followed& a, const Followed& b, const std::string& symbol) {
  const auto &first = a.graph.nodes(), &second = b.graph.nodes();
  if (first.size() != second.size())
    return bad_input("The graph has other nodes for another value of ({}).", symbol);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Op &x = first[i].op, &y = second[i].op;
    if (&x.info() != &y.info() || a.axes[i] != b.axes[i])
      return bad_input("The graph has other nodes for another value of ({}).", symbol);
    const bool reached = a.axes[i] != no_rows;
    bool same = reached || x.is<op::Param>() || x.is<op::Input>() || x == y;
    for (std::size_t k = 0; same && k < first[i].results.size(); ++k)
      same = same_beside_rows(first[i].results[k], second[i].results[k], a.axes[i]);
    if (same) continue;
    if (x.is<op::Constant>()) return bad_input("A constant of the graph depends on ({}).", symbol);
    return bad_input("{}{} depends on the value of ({}).", x.name(),
                     first[i].origin.empty() ? "" : " (" + first[i].origin.text() + ")", symbol);
  }
  return {};
}

}  // namespace

Status check_rows_are_independent(const Graph& graph, const std::string& symbol,
                                  std::int64_t largest, const passes::Bindings& others) {
  constexpr std::int64_t small = 8, medium = 12;
  RLX_ASSIGN(const auto inputs, axes_of_inputs(graph, symbol));
  RLX_ASSIGN(const Followed first, followed(graph, symbol, small, others, inputs));
  // What is cut at some number of rows is whole below it: the largest size shows that, too.
  for (const std::int64_t rows : {medium, std::max(largest, medium)}) {
    RLX_ASSIGN(const Followed other, followed(graph, symbol, rows, others, inputs));
    RLX_TRY(check_same(first, other, symbol));
  }
  return {};
}

}  // namespace rlx
