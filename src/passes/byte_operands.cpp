// Products of quantised numbers as products of u8 with i8 and corrections for their zero points, or
// as products of i16.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/elementwise_eval.hpp"
#include "graph/narrow_products.hpp"
#include "graph/weight_only.hpp"
#include "passes/quantised.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// An operand in the dtype that kernels want on its side, and what its zero is (i32; none: 0).
struct Bytes {
  Value values, zero;
};

constexpr std::int64_t half_range = 128;  ///< between u8 and i8

/// What every element of a constant is, or nothing.
std::optional<std::int64_t> uniform(const Value& x) {
  const Node* node = &x.graph().node(x.id());
  while (node->op.is<op::Reshape>() || node->op.is<op::Broadcast>())
    node = &x.graph().node(node->inputs[0]);
  const auto* constant = node->op.as<op::Constant>();
  if (!constant || constant->value.elements() == 0) return std::nullopt;
  const Tensor& tensor = constant->value;
  const std::int64_t first = load_datum(tensor.dtype(), tensor.data(), 0).integer;
  for (std::int64_t i = 1; i < tensor.elements(); ++i)
    if (load_datum(tensor.dtype(), tensor.data(), i).integer != first) return std::nullopt;
  return first;
}

Value integer(Graph& graph, std::int64_t value) {
  return graph.constant(i32, static_cast<double>(value));
}

/// i8 as u8 (+128) or u8 as i8 (-128): the same numbers, when their zero moves along.
Value shifted_bytes(const Value& x) {
  const std::int64_t shift = x.dtype() == i8 ? half_range : -half_range;
  return cast(cast(x, i32) + integer(x.graph(), shift), x.dtype() == i8 ? u8 : i8);
}

/// The zero point as i32 after a shift; no handle where it is 0.
Value zero_of(Graph& graph, const Value& zero, std::int64_t shift) {
  const std::optional<std::int64_t> known = zero ? uniform(zero) : std::optional<std::int64_t>(0);
  if (known) return *known + shift == 0 ? Value() : integer(graph, *known + shift);
  const Value wide = cast(zero, i32);
  return shift == 0 ? wide : wide + integer(graph, shift);
}

Tensor ones(Dims dims) {
  Tensor tensor(i8, std::move(dims));
  std::fill_n(reinterpret_cast<std::int8_t*>(tensor.mutable_data()), tensor.elements(),
              std::int8_t{1});
  return tensor;
}

class ByteOperands {
 public:
  ByteOperands(const Graph& graph, bool byte_dots, std::vector<Explanation::Claim>* claims)
      : graph_(graph),
        byte_dots_(byte_dots),
        claims_(claims),
        weight_only_(weight_only_nodes(graph)) {}

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    if (const auto* quantize = node.op.as<op::Quantize>())
      return quantised_unsigned(rewriter, index, node, *quantize);
    if (const auto* dequantize = node.op.as<op::Dequantize>())
      return read_unsigned(rewriter, index, node, *dequantize);
    const auto* conv = node.op.as<op::IntegerConv>();
    if (!conv && !node.op.is<op::IntegerMatmul>()) return false;
    const std::string reason = conv ? why_not(*conv, node) : why_not(node);
    if (claims_) {
      const bool weights = weight_only_[static_cast<std::size_t>(node.inputs[1].node)];
      claims_->push_back({std::string(node.op.name()), node.origin, reason.empty(),
                          !reason.empty() ? "f32: " + reason
                                          : fmt::format("int8: {} of {}, sums in i32",
                                                        as_words(node) ? "words of i16" : "bytes",
                                                        weights ? "weights" : "activations")});
    }
    if (!reason.empty()) return false;
    rewriter.replace(index,
                     Values{conv ? convolution(rewriter, node, *conv) : product(rewriter, node)});
    return true;
  }

 private:
  // quantize(x, i8, zero) = quantize(x, u8, zero + 128) - 128; products read the u8
  Result<bool> quantised_unsigned(Rewriter& rewriter, std::int32_t index, const Node& node,
                                  const op::Quantize& quantize) {
    if (!byte_dots_ || quantize.dtype != i8 || quantize.block != 0) return false;
    Values in = rewriter.values_of(node);
    in.resize(3);
    const Value& scale = in[1];
    Graph& graph = rewriter.target();
    const Value zero = unsigned_zero(graph, in[2], scale);
    op::Quantize attributes = quantize;
    attributes.dtype = u8;
    const Value bytes = graph.add_one(attributes, {in[0], scale, zero});
    const Value back = shifted_bytes(bytes);
    unsigned_[back.id()] = bytes;
    rewriter.replace(index, Values{back});
    return true;
  }

  // dequantize(x - 128, zero) = dequantize(x, zero + 128)
  Result<bool> read_unsigned(Rewriter& rewriter, std::int32_t index, const Node& node,
                             const op::Dequantize& dequantize) {
    const Values in = rewriter.values_of(node);
    const auto known = unsigned_.find(in[0].id());
    if (dequantize.block != 0) return false;
    if (known == unsigned_.end()) {
      if (!operand(in, 2) || !is_integer(in[0].dtype()) || uniform(in[2]) != 0) return false;
      rewriter.replace(index, rewriter.target().add(dequantize, Values{in[0], in[1]}));
      return true;
    }
    const Value zero = unsigned_zero(rewriter.target(), operand(in, 2), in[1]);
    rewriter.replace(index, rewriter.target().add(dequantize, Values{known->second, in[1], zero}));
    return true;
  }

  /// zero + 128 as u8, of the shape of the scale.
  static Value unsigned_zero(Graph& graph, const Value& zero, const Value& scale) {
    const auto known = zero ? uniform(zero) : std::optional<std::int64_t>(0);
    if (!known) return cast(cast(zero, i32) + integer(graph, half_range), u8);
    const Value number = graph.constant(u8, static_cast<double>(*known + half_range));
    return scale.rank() == 0 ? number : broadcast(number, scale.shape());
  }

  static bool is_static(const Graph& graph, const Node& node) {
    return node.results[0].is_static() && node.results[0].elements() > 0 &&
           graph.type(node.inputs[0]).is_static() && graph.type(node.inputs[1]).is_static();
  }

  std::string why_not(const Node& node) const {
    if (!is_static(graph_, node)) return "dims are not known";
    const Type &a = graph_.type(node.inputs[0]), &b = graph_.type(node.inputs[1]);
    if (a.dims().back() == 0) return "nothing to compute";
    if (a.rank() < 2 || b.rank() < 2) return "a product with a vector";
    const bool same_batches =
        a.rank() == b.rank() && std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin());
    if (b.rank() > 2 && !same_batches) return "matrices repeated over batches";
    return {};
  }

  std::string why_not(const op::IntegerConv& conv, const Node& node) const {
    if (!is_static(graph_, node)) return "dims are not known";
    const Type& w = graph_.type(node.inputs[1]);
    if (w.elements() == 0) return "nothing to compute";
    if (conv.groups > 1 && w.shape[1] == Dim(1)) return "one channel a group: no products to pair";
    return {};
  }

  /// Without instructions for bytes every operand would be widened again and again, wherever
  /// kernels read it: widened once it has room for its zero point, too.
  bool as_words(const Node& node) const {
    constexpr std::int64_t least_rows = 8;  // fewer wait for weights, of which bytes are the least
    const Type &result = node.results[0], &b = graph_.type(node.inputs[1]);
    const std::int64_t columns = node.op.is<op::IntegerConv>() ? b.dims()[0] : b.dims().back();
    return !byte_dots_ && result.elements() >= least_rows * columns;
  }

  /// x - zero as i16, which holds it.
  static Value word(const Value& x, const Value& zero) {
    const Value wide = cast(x, i16);
    return !zero || uniform(zero) == 0 ? wide : wide - cast(zero, i16);
  }

  Bytes left(Rewriter& rewriter, const Value& x, const Value& zero) {
    Graph& graph = rewriter.target();
    if (x.dtype() == u8 || !byte_dots_) return {x, zero_of(graph, zero, 0)};
    Value& bytes = unsigned_[x.id()];
    if (!bytes) bytes = shifted_bytes(x);
    return {bytes, zero_of(graph, zero, half_range)};
  }

  Bytes right(Rewriter& rewriter, const Value& x, const Value& zero) const {
    Graph& graph = rewriter.target();
    if (x.dtype() == i8 || !byte_dots_) return {x, zero_of(graph, zero, 0)};
    return {shifted_bytes(x), zero_of(graph, zero, -half_range)};
  }

  static Value operand(const Values& in, std::size_t k) { return k < in.size() ? in[k] : Value(); }

  // sum (a - p)(b - q) = sum a b - p sum b - q sum a + k p q
  Value product(Rewriter& rewriter, const Node& node) {
    Graph& graph = rewriter.target();
    const Values in = rewriter.values_of(node);
    Value a_zero = operand(in, 2);
    const Value b_zero = operand(in, 3);
    if (a_zero && a_zero.rank() == 1)  // one for each row
      a_zero = reshape(a_zero, {a_zero.shape()[0], Dim(1)});
    if (as_words(node))
      return matmul(cast(word(in[0], a_zero), i32), cast(word(in[1], b_zero), i32));
    const Bytes a = left(rewriter, in[0], a_zero), b = right(rewriter, in[1], b_zero);
    const Value wide = cast(a.values, i32);
    Value sums = matmul(wide, cast(b.values, i32));
    const Dim depth = a.values.shape().back();
    if (a.zero) sums = sums - a.zero * sum(cast(b.values, i32), {-2}, true);
    if (b.zero) {
      const Value column = graph.constant(ones({depth.value(), 1}));
      sums = sums - b.zero * row_sums(wide, column);
    }
    if (a.zero && b.zero) sums = sums + integer(graph, depth.value()) * a.zero * b.zero;
    return sums;
  }

  static Value row_sums(const Value& wide, const Value& column) {
    return matmul(wide, cast(column, i32));
  }

  // The same over windows. Padding stands for the zero point of x.
  Value convolution(Rewriter& rewriter, const Node& node, const op::IntegerConv& conv) {
    Graph& graph = rewriter.target();
    const Values in = rewriter.values_of(node);
    op::Conv plain{.strides = conv.strides,
                   .pad_low = conv.pad_low,
                   .pad_high = conv.pad_high,
                   .dilations = conv.dilations,
                   .groups = conv.groups};
    Value x_zero = operand(in, 2), w_zero = operand(in, 3);
    if (x_zero && x_zero.rank() == 1) x_zero = reshape(x_zero, {});
    const auto rank = static_cast<std::size_t>(in[0].rank());
    if (as_words(node)) {
      Shape along_filters(rank, Dim(1));
      if (w_zero && w_zero.rank() == 1) {
        along_filters[0] = w_zero.shape()[0];
        w_zero = reshape(w_zero, along_filters);
      }
      Bytes x{word(in[0], x_zero), {}};
      // Planes of colours are read along their rows, where a border would part the pairs.
      constexpr std::int64_t most_planes = 4;
      if (in[0].shape()[1].value() <= most_planes) take_padding(x, plain);
      return rlx::conv(cast(x.values, i32), cast(word(in[1], w_zero), i32), plain);
    }
    Shape along_channels(rank, Dim(1));
    if (w_zero && w_zero.rank() == 1) {
      along_channels[1] = w_zero.shape()[0];
      w_zero = reshape(w_zero, along_channels);
    }
    Bytes x = left(rewriter, in[0], x_zero), w = right(rewriter, in[1], w_zero);
    if (x.zero) take_padding(x, plain);
    along_channels[1] = w.values.shape()[0];
    Axes window;
    for (std::size_t i = 1; i < rank; ++i) window.push_back(static_cast<std::int64_t>(i));
    const Value wide = cast(x.values, i32);
    Value sums = rlx::conv(wide, cast(w.values, i32), plain);
    if (x.zero) sums = sums - reshape(x.zero * sum(cast(w.values, i32), window), along_channels);
    if (w.zero) {
      Dims dims = w.values.type().dims();
      if (conv.groups == 1) dims[0] = 1;
      const Value filter = graph.constant(ones(dims));
      sums = sums - w.zero * rlx::conv(wide, cast(filter, i32), plain);
    }
    if (x.zero && w.zero) {
      const std::int64_t products = w.values.type().elements() / w.values.shape()[0].value();
      sums = sums + integer(graph, products) * x.zero * w.zero;
    }
    return sums;
  }

  static bool is_padded(const op::Conv& conv) {
    const auto any = [](const Axes& axes) {
      return std::any_of(axes.begin(), axes.end(), [](std::int64_t n) { return n != 0; });
    };
    return any(conv.pad_low) || any(conv.pad_high);
  }

  /// Puts the zero point around x instead of what the convolution would.
  static void take_padding(Bytes& x, op::Conv& conv) {
    if (!is_padded(conv)) return;
    x.values = padded(x, conv);
    conv.pad_low.clear(), conv.pad_high.clear();
  }

  static Value padded(const Bytes& x, const op::Conv& conv) {
    const auto rank = static_cast<std::size_t>(x.values.rank());
    const auto of = [&](const Axes& pads) {
      Axes all(rank, 0);
      std::copy(pads.begin(), pads.end(), all.begin() + 2);
      return all;
    };
    const Axes low = of(conv.pad_low), high = of(conv.pad_high);
    if (!x.zero) return pad(x.values, low, high, 0);
    if (const auto known = uniform(x.zero))
      return pad(x.values, low, high, static_cast<double>(*known));
    return cast(pad(cast(x.values, i32) - x.zero, low, high) + x.zero, u8);
  }

  const Graph& graph_;
  const bool byte_dots_;
  std::vector<Explanation::Claim>* claims_;
  const std::vector<bool> weight_only_;
  std::map<ValueId, Value> unsigned_;  ///< by value of the target: its bytes as u8
};

}  // namespace

Result<Graph> byte_operands(const Graph& graph, bool byte_dots,
                            std::vector<Explanation::Claim>* claims) {
  ByteOperands operands(graph, byte_dots, claims);
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   return operands.visit(rewriter, index, node);
                 });
}

}  // namespace rlx::passes
