// Reading the shapes of products off their nodes.
#include "graph/product_shape.hpp"

#include <algorithm>

#include "rlx/ops.hpp"

namespace rlx {
namespace {

std::int64_t extent(const Dims& dims, const Axes& axes) {
  std::int64_t product = 1;
  for (const std::int64_t axis : axes)
    product *= dims[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(dims) : axis)];
  return product;
}

std::optional<ProductShape> shape_of(const op::DotGeneral& dot, const Type& a, const Type& b,
                                     const Type& result) {
  ProductShape shape;
  const Dims a_dims = a.dims(), b_dims = b.dims();
  const auto rank = static_cast<std::int64_t>(a_dims.size());
  shape.batches = extent(a_dims, dot.a_batch);
  shape.depth = shape.a_depth = extent(a_dims, dot.a_contract);
  const std::int64_t b_free = b.rank() - std::ssize(dot.b_batch) - std::ssize(dot.b_contract);
  if (b_free != 1) return std::nullopt;
  const std::int64_t others = shape.batches * shape.depth;
  shape.columns = others == 0 ? 0 : b.elements() / others;
  const std::int64_t points = shape.batches * shape.columns;
  shape.rows = shape.a_rows = points == 0 ? 0 : result.elements() / points;
  shape.run_in_a = false;
  if (!dot.a_contract.empty()) {
    shape.run = extent(a_dims, {dot.a_contract.back()});
    const std::int64_t inner = dot.a_contract.back();
    shape.run_in_a = inner == -1 || inner == rank - 1;
  }
  return shape;
}

std::optional<ProductShape> shape_of(const op::Conv& conv, const Type& x, const Type& w,
                                     const Type& result) {
  if (!conv.channels_last || conv.transposed) return std::nullopt;
  const Dims w_dims = w.dims();
  const bool one_channel = is_float(result.dtype) && w_dims.back() == 1;
  const bool depthwise = (conv.groups > 1 || one_channel) && conv.groups == x.dims().back();
  if (depthwise || w_dims.back() == 0) return std::nullopt;
  ProductShape shape;
  shape.batches = conv.groups;
  shape.columns = w_dims.back() / conv.groups;
  shape.run = w_dims[w_dims.size() - 2];
  shape.depth = w.elements() / w_dims.back();
  shape.rows = result.elements() / w_dims.back();
  shape.a_depth = shape.run;
  shape.a_rows = x.elements() / std::max<std::int64_t>(1, x.dims().back());
  return shape;
}

}  // namespace

std::optional<ProductShape> product_shape(const Graph& graph, const Node& node) {
  const auto* dot = node.op.as<op::DotGeneral>();
  const auto* conv = node.op.as<op::Conv>();
  if ((!dot && !conv) || node.inputs.size() != 2) return std::nullopt;
  const Type &a = graph.type(node.inputs[0]), &b = graph.type(node.inputs[1]);
  if (!a.is_static() || !b.is_static()) return std::nullopt;
  return dot ? shape_of(*dot, a, b, node.results[0]) : shape_of(*conv, a, b, node.results[0]);
}

}  // namespace rlx
