// Reductions, arg-reductions, cumulative ops, top-k.
#include <cmath>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

struct ReduceArguments {
  Value x;
  Axes axes;  ///< empty: all
  bool keep_dims = true;
  bool nothing = false;  ///< empty axes that mean: reduce nothing
};

// Axes moved from an attribute to an input in opset 18 (of ReduceSum in 13).
ReduceArguments arguments(NodeContext& c, int axes_input_since) {
  ReduceArguments a;
  a.x = c.in(0);
  a.keep_dims = c.flag("keepdims", true);
  if (c.version() >= axes_input_since) {
    const bool noop = c.flag("noop_with_empty_axes");
    if (c.has(1)) a.axes = known_or_fail(c, 1, "axes");
    a.nothing = noop && a.axes.empty();
  } else {
    a.axes = c.integers("axes");
  }
  for (std::int64_t& axis : a.axes) axis = normal_axis(axis, a.x.rank());
  return a;
}

Value reduced(const ReduceArguments& a, const Value& x, Reduction kind) {
  return a.nothing ? x : reduce(x, kind, a.axes, a.keep_dims);
}

template <Reduction kind, int axes_input_since = 18>
void plain(NodeContext& c) {
  const ReduceArguments a = arguments(c, axes_input_since);
  Reduction actual = kind;
  if (a.x.dtype() == boolean && kind == Reduction::max) actual = Reduction::any;
  if (a.x.dtype() == boolean && kind == Reduction::min) actual = Reduction::all;
  c.set(reduced(a, a.x, actual));
}

void l1(NodeContext& c) {
  const ReduceArguments a = arguments(c, 18);
  c.set(reduced(a, abs(a.x), Reduction::sum));
}

void sum_square(NodeContext& c) {
  const ReduceArguments a = arguments(c, 18);
  c.set(reduced(a, a.x * a.x, Reduction::sum));
}

// Integers are summed as they are and rooted as floats.
void l2(NodeContext& c) {
  const ReduceArguments a = arguments(c, 18);
  const Value total = reduced(a, a.x * a.x, Reduction::sum);
  c.set(is_integer(total.dtype()) ? cast(sqrt(cast(total, f64)), total.dtype()) : sqrt(total));
}

Value log_of(const Value& x) {
  return is_integer(x.dtype()) ? cast(log(cast(x, f64)), x.dtype()) : log(x);
}

void log_sum(NodeContext& c) {
  const ReduceArguments a = arguments(c, 18);
  c.set(log_of(reduced(a, a.x, Reduction::sum)));
}

// log sum exp(x) = m + log sum exp(x - m), where m is the maximum, or 0 where that is infinite.
void log_sum_exp(NodeContext& c) {
  const ReduceArguments a = arguments(c, 18);
  const Value x = is_integer(a.x.dtype()) ? cast(a.x, f64) : a.x;
  if (a.nothing) {
    c.set(a.x);
    return;
  }
  const Value peak = reduce(x, Reduction::max, a.axes, true);
  const Value shift = select(c.add(op::IsInf{}, {peak}), scalar_like(c, x, 0), peak);
  Value result = log(reduce(exp(x - shift), Reduction::sum, a.axes, true)) + shift;
  if (!a.keep_dims) result = reduce(result, Reduction::sum, a.axes, false);
  c.set(cast(result, a.x.dtype()));
}

template <bool maximum>
void arg(NodeContext& c) {
  op::ArgReduce attributes{.max = maximum};
  attributes.axis = c.integer("axis", 0);
  attributes.keep_dims = c.flag("keepdims", true);
  attributes.select_last = c.flag("select_last_index");
  c.set(c.add(attributes, {c.in(0)}));
}

template <Reduction kind>
void cumulative(NodeContext& c) {
  const Axes axis = known_or_fail(c, 1, "axis");
  if (axis.size() != 1) fail("The axis must be a scalar.");
  op::Cumulative attributes{.kind = kind, .axis = normal_axis(axis[0], c.in(0).rank())};
  attributes.exclusive = c.flag("exclusive");
  attributes.reverse = c.flag("reverse");
  c.set(c.add(attributes, {c.in(0)}));
}

void top_k(NodeContext& c) {
  const Value x = c.in(0);
  const auto axis = c.integer("axis", -1);
  const bool largest = c.flag("largest", true), sorted = c.flag("sorted", true);
  Values results;
  if (c.version() < 10) {
    results = c.add_all(op::TopK{c.integer("k"), axis, largest, sorted}, {x});
  } else if (const auto k = c.known_integers(c.in(1)); k && k->size() == 1) {
    results = c.add_all(op::TopK{(*k)[0], axis, largest, sorted}, {x});
  } else {
    results = c.add_all(op::DynamicTopK{axis, largest, sorted}, {x, c.in(1)});
  }
  c.set(0, results[0]);
  c.set(1, results[1]);
}

constexpr OpEntry entries[] = {
    {"ReduceSum", 1, plain<Reduction::sum, 13>},
    {"ReduceMean", 1, plain<Reduction::mean>},
    {"ReduceMax", 1, plain<Reduction::max>},
    {"ReduceMin", 1, plain<Reduction::min>},
    {"ReduceProd", 1, plain<Reduction::prod>},
    {"ReduceL1", 1, l1},
    {"ReduceL2", 1, l2},
    {"ReduceSumSquare", 1, sum_square},
    {"ReduceLogSum", 1, log_sum},
    {"ReduceLogSumExp", 1, log_sum_exp},
    {"ArgMax", 1, arg<true>},
    {"ArgMin", 1, arg<false>},
    {"CumSum", 11, cumulative<Reduction::sum>},
    {"CumProd", 26, cumulative<Reduction::prod>},
    {"TopK", 1, top_k},
};

}  // namespace

OpEntries reduce_entries() { return entries; }

}  // namespace rlx::onnx
