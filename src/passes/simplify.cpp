// Algebraic identities, each under its equation.
#include <algorithm>

#include "graph/elementwise_eval.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

bool is_identity(const Axes& perm) {
  for (std::size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

bool is_whole(const op::Slice& slice, const Type& x) {
  if (!x.is_static()) return false;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    const std::int64_t step = slice.steps.empty() ? 1 : slice.steps[i];
    if (slice.starts[i] != 0 || slice.limits[i] < x.shape[i].value() || step != 1) return false;
  }
  return true;
}

/// The number that all elements of a small constant are, whatever views of it are read.
std::optional<double> uniform(const Graph& graph, ValueId id) {
  constexpr std::int64_t most_elements = 4096;
  const Node* node = &graph.node(id);
  while (node->op.is<op::Reshape>() || node->op.is<op::Transpose>() || node->op.is<op::Broadcast>())
    node = &graph.node(node->inputs[0]);
  const auto* constant = node->op.as<op::Constant>();
  if (!constant) return std::nullopt;
  const Tensor& value = constant->value;
  const auto number = [&](std::int64_t i) {
    const ScalarDatum datum = load_datum(value.dtype(), value.data(), i);
    return is_float(value.dtype()) ? datum.number.real() : static_cast<double>(datum.integer);
  };
  if (value.elements() == 0 || value.elements() > most_elements || is_complex(value.dtype()))
    return std::nullopt;
  for (std::int64_t i = 1; i < value.elements(); ++i)
    if (number(i) != number(0)) return std::nullopt;
  return number(0);
}

/// Bytes as f32, less a zero point that is a byte too, in any order and with zeros around them.
bool is_bytes(const Graph& graph, ValueId id, int depth = 0) {
  constexpr int deepest = 8;
  const Node& node = graph.node(id);
  if (node.results[0].dtype != f32 || depth > deepest) return false;
  if (node.op.is<op::Cast>()) {
    const DType from = graph.type(node.inputs[0]).dtype;
    return from == u8 || from == i8;
  }
  const bool views =
      node.op.is<op::Transpose>() || node.op.is<op::Reshape>() || node.op.is<op::Broadcast>();
  return (views || node.op.is<op::Sub>()) && std::ranges::all_of(node.inputs, [&](ValueId input) {
           return is_bytes(graph, input, depth + 1);
         });
}

/// Sums of products of bytes in f32: whole numbers that i32 can hold.
bool is_sum_of_bytes(const Graph& graph, ValueId id) {
  constexpr std::int64_t most_products = 8192;  // of 511 * 511
  const Node* node = &graph.node(id);
  while (node->op.is<op::Transpose>()) node = &graph.node(node->inputs[0]);
  const auto* conv = node->op.as<op::Conv>();
  if (!conv || node->inputs.size() != 2 || node->results[0].dtype != f32) return false;
  const Type& w = graph.type(node->inputs[1]);
  return w.is_static() && w.elements() <= most_products * conv->groups &&
         is_bytes(graph, node->inputs[0]) && is_bytes(graph, node->inputs[1]);
}

bool adds_nothing(const op::Pad& pad) {
  const auto none = [](std::int64_t elements) { return elements == 0; };
  return std::ranges::all_of(pad.low, none) && std::ranges::all_of(pad.high, none);
}

/// A number below zero never comes out of it.
bool is_never_negative(const Op& op) {
  return op.is<op::Relu>() || op.is<op::Abs>() || op.is<op::Sigmoid>() || op.is<op::Exp>() ||
         op.is<op::Sqrt>();
}

// x where the node is the identity on its first or second input, else nothing.
std::optional<ValueId> identity(const Graph& graph, const Node& node,
                                const std::vector<ValueId>& in) {
  const auto same = [&](ValueId id) { return graph.type(id) == node.results[0]; };
  if (in.empty() || in[0].node < 0) return std::nullopt;
  // transpose(x, identity) = x; reshape(x, its own shape) = x; the same of broadcast, cast, concat
  // of one, whole slices, pads of nothing
  if (const auto* op = node.op.as<op::Transpose>(); op && is_identity(op->perm)) return in[0];
  if ((node.op.is<op::Reshape>() || node.op.is<op::Broadcast>() || node.op.is<op::Cast>()) &&
      same(in[0]) && node.results[0].is_static())
    return in[0];
  // cast(cast(x, i32), f32) = x for whole numbers x of that range
  if (node.op.is<op::Cast>() && node.results[0].dtype == f32 &&
      graph.node(in[0]).op.is<op::Cast>() && graph.type(in[0]).dtype == i32 &&
      is_sum_of_bytes(graph, graph.node(in[0]).inputs[0]))
    return graph.node(in[0]).inputs[0];
  if (node.op.is<op::Concat>() && in.size() == 1) return in[0];
  if (const auto* op = node.op.as<op::Slice>(); op && is_whole(*op, graph.type(in[0])))
    return in[0];
  if (const auto* op = node.op.as<op::Pad>(); op && adds_nothing(*op)) return in[0];
  // reduce(x, axes of one element, dims kept) = x
  if (const auto* op = node.op.as<op::Reduce>();
      op && op->keep_dims && same(in[0]) && node.results[0].is_static())
    return in[0];
  // relu(x) = x and |x| = x where x is never negative
  if ((node.op.is<op::Relu>() || node.op.is<op::Abs>()) &&
      is_never_negative(graph.node(in[0]).op) && is_float(node.results[0].dtype))
    return in[0];
  if (in.size() != 2 || in[1].node < 0 || !node.results[0].is_static()) return std::nullopt;
  // x * 1 = x, x / 1 = x, x + 0 = x, x - 0 = x
  const auto a = uniform(graph, in[0]), b = uniform(graph, in[1]);
  if ((node.op.is<op::Mul>() || node.op.is<op::Div>()) && b == 1.0 && same(in[0])) return in[0];
  if (node.op.is<op::Mul>() && a == 1.0 && same(in[1])) return in[1];
  if ((node.op.is<op::Add>() || node.op.is<op::Sub>()) && b == 0.0 && same(in[0]) &&
      !is_float(node.results[0].dtype))
    return in[0];
  return std::nullopt;
}

// reshape(reshape(x)) = reshape(x); transpose(transpose(x)) = transpose(x)
Result<bool> merge_views(Rewriter& rewriter, std::int32_t index, const Node& node) {
  const Graph& target = rewriter.so_far();
  if (node.inputs.empty() || node.inputs[0].node < 0) return false;
  const ValueId in = rewriter(node.inputs[0]);
  const Node& before = target.node(in);
  if (node.op.is<op::Reshape>() && before.op.is<op::Reshape>() && node.results[0].is_static()) {
    const ValueId source = before.inputs[0];
    if (target.type(source).shape == node.results[0].shape) {
      rewriter.replace(index, std::vector<ValueId>{source});
    } else {
      RLX_TRY(rewriter.add(index, op::Reshape{node.results[0].shape}, {source}));
    }
    return true;
  }
  const auto* outer = node.op.as<op::Transpose>();
  const auto* inner = before.op.as<op::Transpose>();
  if (!outer || !inner) return false;
  Axes perm;
  for (const std::int64_t axis : outer->perm)
    perm.push_back(inner->perm[static_cast<std::size_t>(axis)]);
  const ValueId source = before.inputs[0];
  if (is_identity(perm)) {
    rewriter.replace(index, std::vector<ValueId>{source});
  } else {
    RLX_TRY(rewriter.add(index, op::Transpose{perm}, {source}));
  }
  return true;
}

// pow(x, 2) = x * x; pow(x, 3) = x * x * x: as exact, and far cheaper
Result<bool> expand_power(Rewriter& rewriter, std::int32_t index, const Node& node) {
  if (!node.op.is<op::Pow>() || !node.results[0].is_static()) return false;
  const auto exponent = uniform(rewriter.so_far(), rewriter(node.inputs[1]));
  if (exponent != 2.0 && exponent != 3.0) return false;
  const Values in = rewriter.values_of(node);
  if (!(in[0].type() == node.results[0])) return false;
  const Value square = in[0] * in[0];
  rewriter.replace(index, Values{exponent == 2.0 ? square : square * in[0]});
  return true;
}

// concat(x, nothing, y) = concat(x, y): a past that has no steps yet
Result<bool> join_what_is_there(Rewriter& rewriter, std::int32_t index, const Node& node) {
  if (!node.op.is<op::Concat>()) return false;
  const Graph& target = rewriter.so_far();
  std::vector<ValueId> parts = rewriter.inputs_of(node);
  const auto dropped = std::erase_if(parts, [&](ValueId part) {
    const Type& type = target.type(part);
    return type.is_static() && type.elements() == 0;
  });
  if (dropped == 0 || parts.empty()) return false;
  if (parts.size() == 1) {
    rewriter.replace(index, parts);
  } else {
    RLX_TRY(rewriter.add(index, node.op, parts));
  }
  return true;
}

/// Are there no elements in its results, so that nothing need be computed?
bool gives_no_elements(const Node& node) {
  const OpTraits& traits = node.op.info().traits;
  if (node.inputs.empty() || traits.random || traits.stateful || traits.control_flow) return false;
  return std::ranges::all_of(
      node.results, [](const Type& type) { return type.is_static() && type.elements() == 0; });
}

Values without_elements(Rewriter& rewriter, const Node& node) {
  Values constants;
  for (const Type& type : node.results)
    constants.push_back(rewriter.target().constant(Tensor(type.dtype, type.dims())));
  return constants;
}

}  // namespace

Result<Graph> simplify(Graph graph) {
  return rewrite(
      std::move(graph),
      [](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
        if (gives_no_elements(node)) {
          rewriter.replace(index, without_elements(rewriter, node));
          return true;
        }
        if (const auto same = identity(rewriter.so_far(), node, rewriter.inputs_of(node))) {
          rewriter.replace(index, std::vector<ValueId>{*same});
          return true;
        }
        RLX_ASSIGN(const bool joined, join_what_is_there(rewriter, index, node));
        if (joined) return true;
        RLX_ASSIGN(const bool expanded, expand_power(rewriter, index, node));
        return expanded ? Result<bool>(true) : merge_views(rewriter, index, node);
      });
}

}  // namespace rlx::passes
