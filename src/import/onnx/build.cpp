// Shared builders of handlers.
#include "import/onnx/build.hpp"

#include <algorithm>
#include <limits>

namespace rlx::onnx {
namespace {

bool is_negative(const Dim& dim) { return !dim.is_static() && dim.text().empty(); }

// Takes one element equal to `dim` out of the list.
bool take(std::vector<Dim>& dims, const Dim& dim) {
  const auto found = std::find(dims.begin(), dims.end(), dim);
  if (found == dims.end()) return false;
  dims.erase(found);
  return true;
}

// What -1 stands for: the dims of x divided by the other dims; nothing where symbols hide it.
std::optional<Dim> inferred_dim(const Shape& from, const Shape& to) {
  std::vector<Dim> numerator = from;
  Dim denominator = 1;
  for (const Dim& dim : to) {
    if (is_negative(dim) || take(numerator, dim)) continue;
    if (!dim.is_static()) return std::nullopt;
    denominator = denominator * dim;
  }
  Dim numbers = 1, symbols = 1;
  for (const Dim& dim : numerator) {
    if (dim.is_unknown()) return std::nullopt;
    (dim.is_static() ? numbers : symbols) = (dim.is_static() ? numbers : symbols) * dim;
  }
  if (denominator.value() == 0) return std::nullopt;
  if (numbers.value() % denominator.value() == 0) {
    return Dim(numbers.value() / denominator.value()) * symbols;
  }
  if (symbols.is_static()) {
    fail("({}) elements cannot be split into rows of ({}).", numbers.value(), denominator.value());
  }
  return floor_div(numbers * symbols, denominator);
}

// The shape that ONNX's reshape means; nothing where it cannot be told yet.
std::optional<Shape> target_shape(const Shape& from, Shape to, bool allow_zero) {
  std::ptrdiff_t inferred = -1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == Dim(0) && !allow_zero) {
      if (i >= from.size()) fail("Dim ({}) is to be copied and there is none.", i);
      to[i] = from[i];
    }
    if (to[i].is_unknown()) return std::nullopt;
    if (!is_negative(to[i])) continue;
    if (to[i].value() != -1) fail("A dim ({}) is negative.", to[i].value());
    if (inferred >= 0) fail("Two dims are to be inferred.");
    inferred = static_cast<std::ptrdiff_t>(i);
  }
  if (inferred < 0) return to;
  const auto dim = inferred_dim(from, to);
  if (!dim) return std::nullopt;
  to[static_cast<std::size_t>(inferred)] = *dim;
  return to;
}

}  // namespace

Dim product_of(const Shape& shape) {
  Dim product = 1;
  for (const Dim& dim : shape) product = product * dim;
  return product;
}

Value reshape_to(NodeContext& c, const Value& x, const Value& target, bool allow_zero) {
  if (const auto dims = c.known_shape(target)) {
    if (const auto shape = target_shape(x.shape(), *dims, allow_zero)) return reshape(x, *shape);
  }
  const Value result = c.add(op::DynamicReshape{allow_zero}, {x, target});
  auto known = c.known_shape(target);
  if (!known) return result;
  for (std::size_t i = 0; i < known->size(); ++i) {
    Dim& dim = (*known)[i];
    if (dim == Dim(0) && !allow_zero && i < x.shape().size()) dim = x.shape()[i];
    if (dim == Dim(-1)) dim = Dim::unknown();
  }
  return with_known_dims(result, *known);
}

Value with_known_dims(const Value& x, const Shape& known) {
  return std::ranges::all_of(known, &Dim::is_unknown)
             ? x
             : x.graph().add(op::NameDims{known}, Values{x}).front();
}

Axes known_or_fail(NodeContext& c, int input, const char* what) {
  const auto numbers = c.known_integers(c.in(input));
  if (!numbers) fail_unsupported("Its {} must be known before it runs.", what);
  return *numbers;
}

Value unsqueeze_axes(const Value& x, const Axes& axes) {
  const auto rank = x.rank() + static_cast<int>(axes.size());
  std::vector<bool> added(static_cast<std::size_t>(rank), false);
  for (const std::int64_t axis : axes) {
    const auto at = static_cast<std::size_t>(normal_axis(axis, rank));
    if (added[at]) fail("The axis ({}) is added twice.", axis);
    added[at] = true;
  }
  Shape shape;
  auto next = x.shape().begin();
  for (const bool is_new : added) shape.push_back(is_new ? Dim(1) : *next++);
  return reshape(x, shape);
}

std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), Dim(1));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim(1);
    const Dim y = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    Dim& out = result[result.size() - 1 - i];
    if (is_negative(x) || is_negative(y)) fail("A dim is negative.");
    if (!(x == Dim(1)) && !(y == Dim(1)) && !compatible(x, y))
      fail("Dims ({}) and ({}) cannot be broadcast.", x.value(), y.value());
    out = broadcast_dim(x, y);
    if (out.is_unknown()) return std::nullopt;
  }
  return result;
}

Value slice_axis(const Value& x, std::int64_t axis, std::int64_t start, std::int64_t limit) {
  const auto at = static_cast<std::size_t>(normal_axis(axis, x.rank()));
  Axes starts(x.shape().size(), 0), limits(x.shape().size(), op::slice_end);
  starts[at] = start;
  limits[at] = limit;
  if (x.shape()[at].is_static() && limit > x.shape()[at].value()) {
    fail("A part from ({}) to ({}) reaches beyond axis ({}) of {}.", start, limit, at,
         x.type().text());
  }
  return slice(x, std::move(starts), std::move(limits));
}

Value with_heads(const Value& x, std::int64_t heads) {
  require_rank(x, 3);
  if (heads <= 0) fail("The number of heads ({}) is not positive.", heads);
  const Shape& s = x.shape();
  return reshape(x, {s[0], s[1], heads, floor_div(s[2], heads)});
}

Value swap_heads(const Value& x) { return transpose(x, {0, 2, 1, 3}); }

Value mask_where(NodeContext& c, const Value& mask, const Value& allowed, DType dtype) {
  if (!mask) return allowed;
  if (mask.dtype() == boolean) return logical_and(mask, allowed);
  return select(allowed, mask, c.scalar(dtype, -std::numeric_limits<double>::infinity()));
}

Value scalar_if_single(const Value& x) {
  const bool single = x && x.rank() == 1 && x.shape()[0] == Dim(1);
  return single ? reshape(x, {}) : x;
}

Value integer_product(NodeContext& c, const IntegerOperands& o) {
  const Value sums = c.add(op::IntegerMatmul{},
                           {o.a, o.b, scalar_if_single(o.a_zero), scalar_if_single(o.b_zero)});
  return cast(sums, f32) * (scalar_if_single(o.a_scale) * scalar_if_single(o.b_scale));
}

Value scalar_like(NodeContext& c, const Value& like, double value) {
  return c.scalar(like.dtype(), value);
}

Value filled_like(NodeContext& c, const Value& scalar, const Value& like) {
  const Shape& shape = like.shape();
  if (is_told(shape)) return broadcast(scalar, shape);
  return with_known_dims(c.add(op::DynamicFill{}, {scalar, c.add(op::ShapeOf{}, {like})}), shape);
}

Value constant_of(NodeContext& c, DType dtype, Dims dims, const std::vector<double>& values) {
  const Value doubles =
      c.graph().constant(Tensor::of<double>(std::move(dims), std::span<const double>(values)));
  if (dtype == f64) return doubles;
  const Value narrow = cast(doubles, dtype);
  const auto folded = c.graph().constant_value(narrow.id());
  return folded ? c.graph().constant(*folded) : narrow;
}

}  // namespace rlx::onnx
