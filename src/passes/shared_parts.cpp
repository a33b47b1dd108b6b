// Finds products whose operand is a concatenation, and multiplies what rows share once.
#include "passes/shared_parts.hpp"

#include <algorithm>
#include <optional>

#include "graph/weight_only.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// A product of x by weights w over one axis of each.
struct Product {
  std::size_t x_axis = 0, w_axis = 0;
  Axes rows;  ///< axes of x that the result has, each where a shared part may be one long
};

/// A part of the concatenation: places [first, last) along its axis.
struct Part {
  std::int64_t first = 0, last = 0;
  /// What it is a broadcast of, and its dims with ones along the rows that share it.
  ValueId of;
  Dims dims;

  bool is_shared() const { return !dims.empty(); }
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), weight_only_(weight_only_nodes(graph)) {}

  struct Found {
    Product product;
    std::vector<Part> parts;
  };

  std::optional<Found> found(const Node& node) const {
    const auto product = product_of(node);
    if (!product) return std::nullopt;
    const Node& read = graph_.node(node.inputs[0]);
    const auto* concat = read.op.as<op::Concat>();
    if (!concat || static_cast<std::size_t>(concat->axis) != product->x_axis) return std::nullopt;
    Found found{*product, {}};
    std::int64_t at = 0;
    for (const ValueId id : read.inputs) {
      const std::int64_t end = at + graph_.type(id).dims()[product->x_axis];
      found.parts.push_back(part_of(id, *product, at, end));
      at = end;
    }
    const auto shared = std::ranges::count_if(found.parts, &Part::is_shared);
    if (shared == 0 || shared == std::ssize(found.parts)) return std::nullopt;
    return found;
  }

 private:
  std::optional<Product> product_of(const Node& node) const {
    const auto* conv = node.op.as<op::Conv>();
    const auto* dot = node.op.as<op::DotGeneral>();
    if ((!conv && !dot) || node.inputs.size() != 2) return std::nullopt;
    const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]);
    if (!x.is_static() || !w.is_static() || x.dtype != f32 || w.dtype != f32 ||
        !weight_only_[static_cast<std::size_t>(node.inputs[1].node)])
      return std::nullopt;
    return conv ? product_of(*conv, w.dims()) : product_of(*dot, x);
  }

  static std::optional<Product> product_of(const op::Conv& conv, const Dims& w) {
    const auto zero = [](std::int64_t pad) { return pad == 0; };
    const bool single = std::all_of(w.begin() + 2, w.end(), [](std::int64_t d) { return d == 1; });
    if (conv.channels_last || conv.transposed || conv.groups != 1 || !single ||
        !std::ranges::all_of(conv.pad_low, zero) || !std::ranges::all_of(conv.pad_high, zero))
      return std::nullopt;
    Product product{1, 1, {}};
    for (std::size_t axis = 2; axis < w.size(); ++axis)
      product.rows.push_back(static_cast<std::int64_t>(axis));
    return product;
  }

  static std::optional<Product> product_of(const op::DotGeneral& dot, const Type& x) {
    if (!dot.a_batch.empty() || dot.a_contract.size() != 1) return std::nullopt;
    Product product{static_cast<std::size_t>(dot.a_contract[0]),
                    static_cast<std::size_t>(dot.b_contract[0]),
                    {}};
    for (std::int64_t axis = 0; axis < x.rank(); ++axis)
      if (axis != dot.a_contract[0]) product.rows.push_back(axis);
    return product;
  }

  Part part_of(ValueId id, const Product& product, std::int64_t first, std::int64_t last) const {
    Part part{first, last, {}, {}};
    const Node& node = graph_.node(id);
    if (!node.op.is<op::Broadcast>()) return part;
    const Type& from = graph_.type(node.inputs[0]);
    if (!from.is_static()) return part;
    Dims aligned = graph_.type(id).dims();
    const Dims own = from.dims();
    const std::size_t missing = aligned.size() - own.size();
    bool shares = false;
    for (const std::int64_t row : product.rows) {
      const auto axis = static_cast<std::size_t>(row);
      if (aligned[axis] == 1 || (axis >= missing && own[axis - missing] != 1)) continue;
      aligned[axis] = 1;
      shares = true;
    }
    if (!shares) return part;
    part.of = node.inputs[0];
    part.dims = std::move(aligned);
    return part;
  }

  const Graph& graph_;
  const std::vector<bool> weight_only_;
};

/// The product of x by the weights of these parts; x may be one long along rows.
Value product_of(const Node& node, Value x, Value w, const Product& product,
                 const std::vector<Part>& parts) {
  Values weights;
  for (const Part& part : parts) {
    Dims limits = w.type().dims();
    Axes starts(limits.size(), 0);
    starts[product.w_axis] = part.first;
    limits[product.w_axis] = part.last;
    weights.push_back(slice(w, starts, Axes(limits.begin(), limits.end())));
  }
  const Value of_parts =
      weights.size() == 1 ? weights[0] : concat(weights, static_cast<std::int64_t>(product.w_axis));
  Op op = node.op;
  if (const auto* conv = op.as<op::Conv>(); conv && !conv->strides.empty()) {
    op::Conv strided = *conv;
    for (std::size_t i = 0; i < strided.strides.size(); ++i)
      if (x.type().dims()[i + 2] == 1) strided.strides[i] = 1;
    op = std::move(strided);
  }
  return x.graph().add_one(std::move(op), {x, of_parts});
}

Values rewritten(Rewriter& rewriter, const Node& node, const Finder::Found& found) {
  Graph& graph = rewriter.target();
  const Node& concatenated = rewriter.source().node(node.inputs[0]);
  const Value w = graph.handle(rewriter(node.inputs[1]));
  const auto axis = static_cast<std::int64_t>(found.product.x_axis);
  Values own;
  std::vector<Part> own_parts;
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    if (found.parts[i].is_shared()) continue;
    own.push_back(graph.handle(rewriter(concatenated.inputs[i])));
    own_parts.push_back(found.parts[i]);
  }
  Value sum =
      product_of(node, own.size() == 1 ? own[0] : concat(own, axis), w, found.product, own_parts);
  for (const Part& part : found.parts) {
    if (!part.is_shared()) continue;
    const Value shared = broadcast(graph.handle(rewriter(part.of)), to_shape(part.dims));
    sum = sum + product_of(node, shared, w, found.product, {part});
  }
  return {sum};
}

}  // namespace

Result<Graph> shared_parts(Graph graph) {
  const Finder finder(graph);
  return rewrite(std::move(graph),
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   const auto found = finder.found(node);
                   if (!found) return false;
                   rewriter.replace(index, rewritten(rewriter, node, *found));
                   return true;
                 });
}

}  // namespace rlx::passes
