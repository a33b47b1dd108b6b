// One form for each thing that regions are made of.
#include <algorithm>

#include "passes/canonical_copies.hpp"
#include "passes/passes.hpp"
#include "passes/rewriter.hpp"

namespace rlx::passes {
namespace {

bool is_narrow(DType dtype) { return dtype == f16 || dtype == bf16; }

Axes normal_axes(Axes axes, int rank) {
  for (std::int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

// reduce(x, axes, no dims kept) = reshape(reduce(x, axes, dims kept)); mean = sum / n; f16 and bf16
// sums run in f32.
Result<bool> canonical_reduce(Rewriter& rewriter, std::int32_t index, const Node& node,
                              const op::Reduce& reduce) {
  Value x = rewriter.values_of(node)[0];
  if (!x.type().is_static()) return false;
  const Axes axes = normal_axes(reduce.axes, x.rank());
  const bool mean = reduce.kind == Reduction::mean;
  const DType dtype = x.dtype();
  const bool widen =
      is_narrow(dtype) && (mean || reduce.kind == Reduction::sum || reduce.kind == Reduction::prod);
  if (!mean && !widen && reduce.keep_dims && axes == reduce.axes) return false;
  if (mean && is_integer(dtype)) return false;
  if (widen) x = cast(x, f32);
  std::int64_t count = 1;
  for (const std::int64_t axis : axes) count *= x.shape()[static_cast<std::size_t>(axis)].value();
  Value result = rlx::reduce(x, mean ? Reduction::sum : reduce.kind, axes, true);
  if (mean) {
    Value factor = is_complex(dtype)
                       ? cast(rewriter.target().constant(dtype == c64 ? f32 : f64,
                                                         1.0 / static_cast<double>(count)),
                              dtype)
                       : rewriter.target().constant(x.dtype(), 1.0 / static_cast<double>(count));
    result = result * factor;
  }
  if (widen) result = cast(result, dtype);
  if (!reduce.keep_dims) result = reshape(result, node.results[0].shape);
  rewriter.replace(index, Values{result});
  return true;
}

// The last extreme of a line is the first of the line reversed.
Result<bool> canonical_arg_reduce(Rewriter& rewriter, std::int32_t index, const Node& node,
                                  const op::ArgReduce& reduce) {
  Value x = rewriter.values_of(node)[0];
  if ((reduce.keep_dims && !reduce.select_last) || !node.results[0].is_static() ||
      !x.type().is_static())
    return false;
  const op::ArgReduce kept{.max = reduce.max, .axis = reduce.axis, .keep_dims = true};
  const std::int64_t axis = reduce.axis < 0 ? reduce.axis + x.rank() : reduce.axis;
  if (reduce.select_last) x = rewriter.target().add_one(op::Reverse{{axis}}, {x});
  Value result = rewriter.target().add_one(kept, {x});
  if (reduce.select_last) {
    const auto last = static_cast<double>(x.shape()[static_cast<std::size_t>(axis)].value() - 1);
    result = rewriter.target().constant(i64, last) - result;
  }
  rewriter.replace(index, Values{reshape(result, node.results[0].shape)});
  return true;
}

/// The axes of an operand that are in neither list, ascending.
Axes free_axes(int rank, const Axes& batch, const Axes& contract) {
  Axes result;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (std::find(batch.begin(), batch.end(), axis) == batch.end() &&
        std::find(contract.begin(), contract.end(), axis) == contract.end()) {
      result.push_back(axis);
    }
  }
  return result;
}

/// The same axes, none counted from the end.
Axes from_front(Axes axes, int rank) {
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  return axes;
}

// Axes are counted from the front. The free axes of b become one: b is transposed to (batch,
// contract, free) and its free axes merged.
Result<bool> canonical_dot(Rewriter& rewriter, std::int32_t index, const Node& node,
                           const op::DotGeneral& written) {
  const Values inputs = rewriter.values_of(node);
  if (!node.results[0].is_static() || !inputs[0].type().is_static() ||
      !inputs[1].type().is_static())
    return false;
  const int a_rank = inputs[0].rank(), b_rank = inputs[1].rank();
  const op::DotGeneral dot{from_front(written.a_batch, a_rank), from_front(written.b_batch, b_rank),
                           from_front(written.a_contract, a_rank),
                           from_front(written.b_contract, b_rank)};
  const Axes free = free_axes(b_rank, dot.b_batch, dot.b_contract);
  if (free.size() == 1) {
    const bool is_as_written = dot.a_batch == written.a_batch && dot.b_batch == written.b_batch &&
                               dot.a_contract == written.a_contract &&
                               dot.b_contract == written.b_contract;
    if (is_as_written) return false;
    RLX_TRY(rewriter.add(index, dot, {inputs[0].id(), inputs[1].id()}));
    return true;
  }
  Axes perm = dot.b_batch;
  perm.insert(perm.end(), dot.b_contract.begin(), dot.b_contract.end());
  perm.insert(perm.end(), free.begin(), free.end());
  Value b = transpose(inputs[1], perm);
  const std::size_t kept = dot.b_batch.size() + dot.b_contract.size();
  Shape shape(b.shape().begin(), b.shape().begin() + static_cast<std::ptrdiff_t>(kept));
  std::int64_t columns = 1;
  for (std::size_t i = kept; i < b.shape().size(); ++i) columns *= b.shape()[i].value();
  shape.push_back(columns);
  op::DotGeneral canonical = dot;
  for (std::size_t i = 0; i < dot.b_batch.size(); ++i)
    canonical.b_batch[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = 0; i < dot.b_contract.size(); ++i) {
    canonical.b_contract[i] = static_cast<std::int64_t>(dot.b_batch.size() + i);
  }
  const Value result = rewriter.target().add_one(canonical, {inputs[0], reshape(b, shape)});
  rewriter.replace(index, Values{reshape(result, node.results[0].shape)});
  return true;
}

// Zeros between the elements of an axis: reshape to [.., n, 1, ..], pad to [.., n, step, ..],
// reshape, crop.
Value spread(Value x, std::size_t axis, std::int64_t step) {
  if (step == 1) return x;
  Shape shape = x.shape();
  const std::int64_t n = shape[axis].value();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Dim(1));
  Axes low(shape.size(), 0), high(shape.size(), 0);
  high[axis + 1] = step - 1;
  Value padded = pad(reshape(x, shape), low, high);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape[axis] = n * step;
  const Value merged = reshape(padded, shape);
  Axes starts(shape.size(), 0), limits;
  for (const Dim& dim : shape) limits.push_back(dim.value());
  limits[axis] = (n - 1) * step + 1;
  return slice(merged, starts, limits);
}

// conv_transpose(x, w) = conv(spread(x, stride), flip(w) with in and out channels exchanged),
// padded by (kernel - 1) * dilation - pad.
Value without_transposition(Value x, Value w, const op::Conv& conv) {
  const auto spatial = static_cast<std::size_t>(x.rank() - 2);
  const auto at = [](const Axes& axes, std::size_t i, std::int64_t otherwise) {
    return axes.empty() ? otherwise : axes[i];
  };
  op::Conv plain;
  plain.groups = conv.groups;
  Axes flipped;
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t dilation = at(conv.dilations, i, 1);
    const std::int64_t reach = (w.shape()[i + 2].value() - 1) * dilation;
    x = spread(x, i + 2, at(conv.strides, i, 1));
    plain.strides.push_back(1);
    plain.dilations.push_back(dilation);
    plain.pad_low.push_back(reach - at(conv.pad_low, i, 0));
    plain.pad_high.push_back(reach - at(conv.pad_high, i, 0) + at(conv.output_padding, i, 0));
    flipped.push_back(static_cast<std::int64_t>(i) + 2);
  }
  // Negative padding crops the input instead.
  Axes low(spatial + 2, 0), high(spatial + 2, 0);
  bool crops = false;
  for (std::size_t i = 0; i < spatial; ++i) {
    low[i + 2] = std::min<std::int64_t>(plain.pad_low[i], 0);
    high[i + 2] = std::min<std::int64_t>(plain.pad_high[i], 0);
    crops = crops || low[i + 2] < 0 || high[i + 2] < 0;
    plain.pad_low[i] -= low[i + 2];
    plain.pad_high[i] -= high[i + 2];
  }
  if (crops) x = pad(x, low, high);
  // w [C, O/g, ...] -> [g, C/g, O/g, ...] -> [g, O/g, C/g, ...] -> [O, C/g, ...]
  w = w.graph().add_one(op::Reverse{flipped}, {w});
  const std::int64_t in = w.shape()[0].value() / conv.groups, out = w.shape()[1].value();
  Shape split{Dim(conv.groups), Dim(in), Dim(out)};
  Shape joined{Dim(conv.groups * out), Dim(in)};
  Axes perm{0, 2, 1};
  for (std::size_t i = 0; i < spatial; ++i) {
    split.push_back(w.shape()[i + 2]);
    joined.push_back(w.shape()[i + 2]);
    perm.push_back(static_cast<std::int64_t>(i) + 3);
  }
  w = reshape(transpose(reshape(w, split), perm), joined);
  return x.graph().add_one(plain, {x, w});
}

/// Whether a convolution has one weight for each channel and nothing else.
bool scales_channels(const op::Conv& conv, Value w) {
  const auto all_are = [](const Axes& axes, std::int64_t value) {
    return std::ranges::all_of(axes, [&](std::int64_t axis) { return axis == value; });
  };
  return !conv.transposed && w.type().elements() == conv.groups && all_are(conv.strides, 1) &&
         all_are(conv.pad_low, 0) && all_are(conv.pad_high, 0);
}

// conv(x, w, bias) = conv(x, w) + bias; with a window of one element for each channel x * w + bias
Result<bool> canonical_conv(Rewriter& rewriter, std::int32_t index, const Node& node,
                            const op::Conv& conv) {
  const Values inputs = rewriter.values_of(node);
  if (!node.results[0].is_static() || !inputs[1].type().is_static()) return false;
  const Value x = inputs[0], w = inputs[1], bias = inputs.size() > 2 ? inputs[2] : Value();
  const bool scales = scales_channels(conv, w);
  if (!bias && !conv.transposed && !scales) return false;
  const auto by_channel = [&](Value v) {
    Shape shape(static_cast<std::size_t>(x.rank()), Dim(1));
    shape[conv.channels_last ? shape.size() - 1 : 1] = v.shape()[0];
    return reshape(v, shape);
  };
  Value y = scales            ? x * by_channel(w)
            : conv.transposed ? without_transposition(x, w, conv)
                              : rewriter.target().add_one(conv, {x, w});
  if (bias) y = y + by_channel(bias);
  rewriter.replace(index, Values{y});
  return true;
}

/// How many elements of x each window holds, as f32 over the spatial result dims.
Tensor window_counts(const op::WindowReduce& pool, const Dims& in, const Dims& out) {
  Tensor counts(f32, out);
  auto* data = reinterpret_cast<float*>(counts.mutable_data());
  const auto at = [](const Axes& axes, std::size_t i, std::int64_t otherwise) {
    return axes.empty() ? otherwise : axes[i];
  };
  for (std::int64_t point = 0; point < counts.elements(); ++point) {
    std::int64_t count = 1, rest = point;
    for (std::size_t i = out.size(); i-- > 0;) {
      const std::int64_t start = rest % out[i] * at(pool.strides, i, 1) - at(pool.pad_low, i, 0);
      rest /= out[i];
      std::int64_t inside = 0;
      for (std::int64_t k = 0; k < pool.window[i]; ++k) {
        const std::int64_t position = start + k * at(pool.dilations, i, 1);
        const bool in_x = position >= 0 && position < in[i];
        const bool in_padding =
            position >= -at(pool.pad_low, i, 0) && position < in[i] + at(pool.pad_high, i, 0);
        inside += pool.count_include_pad ? in_padding : in_x;
      }
      count *= inside;
    }
    data[point] = 1.0f / static_cast<float>(std::max<std::int64_t>(count, 1));
  }
  return counts;
}

// mean over windows = sum over windows * (1 / count)
Result<bool> canonical_pool(Rewriter& rewriter, std::int32_t index, const Node& node,
                            const op::WindowReduce& pool) {
  const Value x = rewriter.values_of(node)[0];
  if (pool.kind != Reduction::mean || pool.channels_last || !node.results[0].is_static() ||
      !is_float(x.dtype()))
    return false;
  op::WindowReduce sums = pool;
  sums.kind = Reduction::sum;
  Value wide = is_narrow(x.dtype()) ? cast(x, f32) : x;
  const Dims in = x.type().dims(), out = node.results[0].dims();
  const Tensor counts =
      window_counts(pool, {in.begin() + 2, in.end()}, {out.begin() + 2, out.end()});
  Value factor = rewriter.target().constant(counts);
  if (wide.dtype() != f32) factor = cast(factor, wide.dtype());
  Value y = rewriter.target().add_one(sums, {wide}) * factor;
  if (y.dtype() != x.dtype()) y = cast(y, x.dtype());
  rewriter.replace(index, Values{y});
  return true;
}

}  // namespace

Result<Graph> canonicalise(Graph graph) {
  return rewrite(std::move(graph),
                 [](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   if (const auto* reduce = node.op.as<op::Reduce>())
                     return canonical_reduce(rewriter, index, node, *reduce);
                   if (const auto* reduce = node.op.as<op::ArgReduce>())
                     return canonical_arg_reduce(rewriter, index, node, *reduce);
                   if (const auto* dot = node.op.as<op::DotGeneral>())
                     return canonical_dot(rewriter, index, node, *dot);
                   if (const auto* conv = node.op.as<op::Conv>())
                     return canonical_conv(rewriter, index, node, *conv);
                   if (const auto* pool = node.op.as<op::WindowReduce>())
                     return canonical_pool(rewriter, index, node, *pool);
                   if (const auto* pad = node.op.as<op::Pad>())
                     return canonical_pad(rewriter, index, node, *pad);
                   if (const auto* scatter = node.op.as<op::ScatterNd>())
                     return canonical_scatter(rewriter, index, node, *scatter);
                   if (const auto* scatter = node.op.as<op::ScatterElements>())
                     return canonical_scatter_rows(rewriter, index, node, *scatter);
                   return false;
                 });
}

}  // namespace rlx::passes
