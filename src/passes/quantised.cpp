// Rules over dequantize, quantize and what stands between them, each under its equation.
#include "passes/quantised.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "graph/elementwise_eval.hpp"
#include "graph/weight_only.hpp"
#include "passes/axis_order.hpp"
#include "passes/phases.hpp"
#include "passes/rewriter.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

constexpr int deepest = 8;  ///< ops that a rule looks through

bool is_byte(DType dtype) { return dtype == i8 || dtype == u8; }

std::int64_t from_front(std::int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

/// Dequantised bytes, in the target: scale * (bytes - zero).
struct Real {
  Value bytes, scale, zero;
  std::int64_t axis = -1;  ///< of the scales; -1: one for all
};

/// Puts the elements of a value where they belong; none: they lie there.
using Move = std::function<Value(Value)>;

Value moved(const Move& move, const Value& x) { return move ? move(x) : x; }

/// move(scale * sums + bias), in the target: sums are i32, bias may be missing.
struct Scaled {
  Value sums, scale, bias;
  Move move;
};

/// move(numbers): whole numbers (f32, in the target) that were made bytes by adding a zero point of
/// the source.
struct Whole {
  Value numbers;
  ValueId zero;
  Move move;
};

/// A value of the target before it was moved.
struct Unmoved {
  Value value;
  Move move;
};

/// How a value is to be quantised: nodes of the source.
struct Steps {
  DType dtype = u8;
  ValueId scale, zero;
};

class Quantised {
 public:
  explicit Quantised(const Graph& graph)
      : graph_(graph), weight_only_(weight_only_nodes(graph)), readers_(graph.nodes().size()) {
    const auto read = [&](ValueId id, std::int32_t reader) {
      if (id.node >= 0) readers_[static_cast<std::size_t>(id.node)].push_back(reader);
    };
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const ValueId id : graph.nodes()[i].inputs) read(id, static_cast<std::int32_t>(i));
    }
    for (const GraphOutput& output : graph.outputs()) read(output.value, -1);
  }

  Result<bool> visit(Rewriter& rewriter, std::int32_t index, const Node& node) {
    const ValueId id{index, 0};
    if (const auto* conv = node.op.as<op::Conv>()) return integer_conv(rewriter, id, node, *conv);
    if (const auto* dot = node.op.as<op::DotGeneral>())
      return integer_dot(rewriter, id, node, *dot);
    if (const auto* dequantize = node.op.as<op::Dequantize>())
      return real_again(rewriter, index, node, *dequantize);
    const auto* quantize = node.op.as<op::Quantize>();
    if (!quantize || !is_byte(quantize->dtype) || quantize->block != 0) return false;
    const Steps steps{quantize->dtype, node.inputs[1],
                      node.inputs.size() > 2 ? node.inputs[2] : ValueId()};
    if (graph_.type(steps.scale).elements() != 1 || !is_positive(steps.scale)) return false;
    if (graph_.type(node.inputs[0]).dtype != f32 || graph_.type(steps.scale).dtype != f32)
      return false;
    const auto bytes = bytes_of(rewriter, node.inputs[0], steps, 0);
    if (!bytes) return false;
    rewriter.replace(index, Values{*bytes});
    bytes_[id] = *bytes;
    return true;
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }
  bool is_weight(ValueId id) const { return weight_only_[static_cast<std::size_t>(id.node)]; }
  /// Of a number that is known: only then bytes are in the order of what they stand for.
  bool is_positive(ValueId id) const {
    const auto* constant = node(id).op.as<op::Constant>();
    return constant &&
           load_datum(constant->value.dtype(), constant->value.data(), 0).number.real() > 0;
  }
  static Value at(Rewriter& rewriter, ValueId id) {
    return id.node < 0 ? Value() : rewriter.target().handle(rewriter(id));
  }
  static Value scalar(const Value& x) { return x && x.rank() == 1 ? reshape(x, {}) : x; }

  /// Two constants of the same bytes, or the same value, or both missing.
  bool same(ValueId a, ValueId b) const {
    if (a == b) return true;
    if (a.node < 0 || b.node < 0) return false;
    const auto *x = node(a).op.as<op::Constant>(), *y = node(b).op.as<op::Constant>();
    if (!x || !y || x->value.dtype() != y->value.dtype() || x->value.bytes() != y->value.bytes())
      return false;
    return std::equal(x->value.data(), x->value.data() + x->value.bytes(), y->value.data());
  }

  // ---- products ---------------------------------------------------------------------------------

  /// The value as dequantised bytes, seen through views.
  std::optional<Real> real_of(Rewriter& rewriter, ValueId id, int depth = 0) const {
    const Node& n = node(id);
    if (n.results.size() != 1 || n.results[0].dtype != f32 || depth > deepest) return std::nullopt;
    if (const auto* dequantize = n.op.as<op::Dequantize>()) {
      const Type& type = graph_.type(n.inputs[0]);
      if (!is_byte(type.dtype) || dequantize->block != 0) return std::nullopt;
      Real real{at(rewriter, n.inputs[0]), at(rewriter, n.inputs[1]),
                n.inputs.size() > 2 ? at(rewriter, n.inputs[2]) : Value()};
      if (real.scale.dtype() != f32) return std::nullopt;
      if (graph_.type(n.inputs[1]).elements() != 1)
        real.axis = from_front(dequantize->axis, type.rank());
      return real;
    }
    const auto* transposed = n.op.as<op::Transpose>();
    const auto* reshaped = n.op.as<op::Reshape>();
    if (!transposed && !reshaped) return std::nullopt;
    auto real = real_of(rewriter, n.inputs[0], depth + 1);
    if (!real || (reshaped && real->axis >= 0)) return std::nullopt;
    if (reshaped) {
      real->bytes = reshape(real->bytes, reshaped->shape);
      return real;
    }
    real->bytes = transpose(real->bytes, transposed->perm);
    if (real->axis >= 0)
      real->axis = std::find(transposed->perm.begin(), transposed->perm.end(), real->axis) -
                   transposed->perm.begin();
    return real;
  }

  void replace(Rewriter& rewriter, ValueId id, Scaled scaled) {
    Value real = cast(scaled.sums, f32) * scaled.scale;
    if (scaled.bias) real = real + scaled.bias;
    rewriter.replace(id.node, Values{moved(scaled.move, real)});
    scaled_[id] = std::move(scaled);
  }

  // conv(s (x - p), t (w - q)) + b = s t conv(x - p, w - q) + b
  Result<bool> integer_conv(Rewriter& rewriter, ValueId id, const Node& n, const op::Conv& conv) {
    if (n.results[0].dtype != f32 || conv.channels_last) return false;
    const auto x = real_of(rewriter, n.inputs[0]), w = real_of(rewriter, n.inputs[1]);
    if (!x || !w || x->axis >= 0) return false;
    if (conv.transposed) return transposed_conv(rewriter, id, n, *x, *w);
    if (w->axis > 0) return false;
    Shape along_channels(static_cast<std::size_t>(n.results[0].rank()), Dim(1));
    along_channels[1] = n.results[0].shape[1];
    Graph& graph = rewriter.target();
    const op::IntegerConv integer{.strides = conv.strides,
                                  .pad_low = conv.pad_low,
                                  .pad_high = conv.pad_high,
                                  .dilations = conv.dilations,
                                  .groups = conv.groups};
    Scaled scaled{graph.add_one(integer, {x->bytes, w->bytes, x->zero, w->zero}), {}, {}};
    scaled.scale =
        scalar(x->scale) * (w->axis < 0 ? scalar(w->scale) : reshape(w->scale, along_channels));
    if (n.inputs.size() > 2 && n.inputs[2].node >= 0)
      scaled.bias = reshape(at(rewriter, n.inputs[2]), along_channels);
    replace(rewriter, id, std::move(scaled));
    return true;
  }

  // The same in the form of phases, whose channels are the products' results: elements are moved
  // behind all that is done to each.
  Result<bool> transposed_conv(Rewriter& rewriter, ValueId id, const Node& n, const Real& x,
                               const Real& w) {
    const auto phases = phases_of(graph_, n);
    if (!phases || (w.axis >= 0 && (w.axis != 1 || phases->groups > 1))) return false;
    const bool plain = !w.zero || (w.axis < 0 && known_integer(rewriter.target(), w.zero) == 0.0);
    if (!phases->are_whole() && !plain) return false;
    const auto rank = n.results[0].rank();
    Axes to_front{rank - 1, rank - 2};
    for (int axis = 0; axis + 2 < rank; ++axis) to_front.push_back(axis);
    Shape along_channels(static_cast<std::size_t>(rank), Dim(1));
    along_channels[1] = phases->channels();
    const auto of_channels = [&](const Value& operand) {
      const Value all = channel_operand(operand, *phases);
      return all.rank() == 0 ? all : reshape(all, along_channels);
    };
    const op::Conv conv = plain_convolution(*phases);
    const op::IntegerConv integer{.strides = conv.strides,
                                  .pad_low = conv.pad_low,
                                  .pad_high = conv.pad_high,
                                  .dilations = conv.dilations,
                                  .groups = conv.groups};
    const Value zero = w.zero && w.axis >= 0 ? channel_operand(w.zero, *phases) : w.zero;
    const Value weights = transpose(phase_weights(w.bytes, *phases), to_front);
    Scaled scaled{rewriter.target().add_one(integer, {x.bytes, weights, x.zero, zero}), {}, {}};
    scaled.scale = scalar(x.scale) * (w.axis < 0 ? scalar(w.scale) : of_channels(w.scale));
    if (n.inputs.size() > 2 && n.inputs[2].node >= 0)
      scaled.bias = of_channels(at(rewriter, n.inputs[2]));
    scaled.move = [rank, phases = *phases](const Value& y) {
      const Value joined = joined_phases(transpose(y, to_channels_last(rank)), phases);
      return transpose(joined, to_channels_first(rank));
    };
    replace(rewriter, id, std::move(scaled));
    return true;
  }

  /// The axes of a dot as a matmul has them: batches first, rows of a along its last axis.
  /// Gives the axis of b that is summed; nothing for any other dot.
  std::optional<std::int64_t> summed_axis(const Node& n, const op::DotGeneral& dot) const {
    const int a_rank = graph_.type(n.inputs[0]).rank(), b_rank = graph_.type(n.inputs[1]).rank();
    const auto batches = static_cast<std::int64_t>(dot.a_batch.size());
    if (dot.a_contract.size() != 1 || from_front(dot.a_contract[0], a_rank) != a_rank - 1 ||
        a_rank < 2 || b_rank != batches + 2 || (batches > 0 && a_rank != b_rank))
      return std::nullopt;
    for (std::int64_t i = 0; i < batches; ++i) {
      const auto k = static_cast<std::size_t>(i);
      if (from_front(dot.a_batch[k], a_rank) != i || from_front(dot.b_batch[k], b_rank) != i)
        return std::nullopt;
    }
    return from_front(dot.b_contract[0], b_rank);
  }

  // dot(s (a - p), t (b - q)) = s t dot(a - p, b - q)
  Result<bool> integer_dot(Rewriter& rewriter, ValueId id, const Node& n,
                           const op::DotGeneral& dot) {
    if (n.results[0].dtype != f32) return false;
    const auto summed = summed_axis(n, dot);
    if (!summed) return false;
    const auto a = real_of(rewriter, n.inputs[0]);
    auto b = real_of(rewriter, n.inputs[1]);
    if (!a || !b || a->axis >= 0 || b->axis == *summed || (is_weight(n.inputs[0]))) return false;
    const int rank = b->bytes.rank();
    if (b->axis >= 0 && b->axis < rank - 2) return false;
    if (*summed == rank - 1) {
      Axes perm;
      for (int i = 0; i < rank - 2; ++i) perm.push_back(i);
      perm.push_back(rank - 1), perm.push_back(rank - 2);
      b->bytes = transpose(b->bytes, perm);
    }
    Scaled scaled{
        rewriter.target().add_one(op::IntegerMatmul{}, {a->bytes, b->bytes, scalar(a->zero),
                                                        b->axis < 0 ? scalar(b->zero) : b->zero}),
        {},
        {},
        {}};
    scaled.scale = scalar(a->scale) * (b->axis < 0 ? scalar(b->scale) : b->scale);
    replace(rewriter, id, std::move(scaled));
    return true;
  }

  /// What the value is as scaled sums: a product made above, sums of the graph times a weight, or
  /// these plus a weight.
  std::optional<Scaled> scaled_of(Rewriter& rewriter, ValueId id) const {
    const auto known = scaled_.find(id);
    if (known != scaled_.end()) return known->second;
    const Node& n = node(id);
    if (n.inputs.size() != 2) return std::nullopt;
    for (std::size_t k = 0; k < 2; ++k) {
      const ValueId x = n.inputs[k], other = n.inputs[1 - k];
      if (!is_weight(other) || graph_.type(x).shape != n.results[0].shape) continue;
      const Value weight = at(rewriter, other);
      if (n.op.is<op::Mul>() && node(x).op.is<op::Cast>() &&
          graph_.type(node(x).inputs[0]).dtype == i32)
        return Scaled{at(rewriter, node(x).inputs[0]), weight, {}, {}};
      if (!n.op.is<op::Add>()) continue;
      auto scaled = scaled_of(rewriter, x);
      if (!scaled || scaled->bias || scaled->move) continue;
      scaled->bias = weight;
      return scaled;
    }
    return std::nullopt;
  }

  // dequantize(cast(y + p, bytes), s, p) = s y for whole y + p in the range of bytes
  Result<bool> real_again(Rewriter& rewriter, std::int32_t index, const Node& n,
                          const op::Dequantize& dequantize) {
    const auto made = bytes_.find(n.inputs[0]);
    if (made == bytes_.end() || dequantize.block != 0 || n.results[0].dtype != f32 ||
        graph_.type(n.inputs[1]).elements() != 1 || graph_.type(n.inputs[1]).dtype != f32 ||
        !stays_in_kernel(index))
      return false;
    const auto steps = whole_.find(made->second.id());
    if (steps == whole_.end()) return false;
    const auto& [whole, zero, move] = steps->second;
    const ValueId wanted = n.inputs.size() > 2 ? n.inputs[2] : ValueId();
    if (!same(wanted, zero) || (move && !becomes_bytes(index))) return false;
    const Value real = whole * scalar(at(rewriter, n.inputs[1]));
    const Value there = moved(move, real);
    if (move) unmoved_.insert_or_assign(there.id(), Unmoved{real, move});
    rewriter.replace(index, Values{there});
    return true;
  }

  /// Nobody else wants the bytes, and what reads the number that they stand for follows in the
  /// kernel of the product that they come from: all else that it reads is there before. Anywhere
  /// else bytes are what should be stored.
  bool stays_in_kernel(std::int32_t dequantize) {
    const auto readers = [&](std::int32_t index) -> const std::vector<std::int32_t>& {
      return readers_[static_cast<std::size_t>(index)];
    };
    const ValueId bytes = graph_.nodes()[static_cast<std::size_t>(dequantize)].inputs[0];
    if (readers(bytes.node).size() != 1) return false;
    const std::int32_t product = source_of(node(bytes).inputs[0]);
    return std::ranges::all_of(readers(dequantize), [&](std::int32_t index) {
      if (index < 0) return false;
      const Node& reader = graph_.nodes()[static_cast<std::size_t>(index)];
      if (reader.op.is<op::Quantize>() || reader.op.is<op::Concat>()) return true;
      return reader.op.info().traits.elementwise &&
             std::ranges::all_of(reader.inputs,
                                 [&](ValueId id) { return source_of(id) <= product; });
    });
  }

  /// Is the number only read to make other bytes of it? Then it need not be moved itself.
  bool becomes_bytes(std::int32_t dequantize) const {
    return std::ranges::all_of(
        readers_[static_cast<std::size_t>(dequantize)], [&](std::int32_t index) {
          const auto is = [&](std::int32_t reader, auto tag) {
            return reader >= 0 &&
                   graph_.nodes()[static_cast<std::size_t>(reader)].op.is<decltype(tag)>();
          };
          if (is(index, op::Quantize{})) return true;
          return is(index, op::Concat{}) &&
                 std::ranges::all_of(readers_[static_cast<std::size_t>(index)],
                                     [&](std::int32_t next) { return is(next, op::Quantize{}); });
        });
  }

  /// The last node that the value is made of point by point; -1: weights. Chains that no kernel
  /// would hold are not followed to their end.
  std::int32_t source_of(ValueId id, int depth = 0) {
    constexpr int longest = 128;
    if (id.node < 0 || is_weight(id)) return -1;
    const auto known = sources_.find(id.node);
    if (known != sources_.end()) return known->second;
    const Node& n = node(id);
    std::int32_t source = id.node;
    const bool by_point =
        n.op.info().traits.elementwise || n.op.is<op::Quantize>() || n.op.is<op::Dequantize>();
    if (by_point && depth < longest) {
      source = -1;
      for (const ValueId input : n.inputs) source = std::max(source, source_of(input, depth + 1));
    }
    return sources_[id.node] = source;
  }

  static std::optional<double> known_integer(const Graph& graph, const Value& value) {
    const auto* constant = graph.node(value.id()).op.as<op::Constant>();
    if (!constant) return std::nullopt;
    return static_cast<double>(
        load_datum(constant->value.dtype(), constant->value.data(), 0).integer);
  }

  // ---- bytes again ------------------------------------------------------------------------------

  /// quantize(id, steps).
  std::optional<Value> bytes_of(Rewriter& rewriter, ValueId id, const Steps& steps, int depth) {
    if (auto moved = moved_bytes(rewriter, id, steps, depth)) return moved;
    const bool relu = node(id).op.is<op::Relu>();
    const ValueId x = relu ? node(id).inputs[0] : id;
    auto scaled = scaled_of(rewriter, x);
    // What users feed is divided as they would.
    if (!scaled && (node(x).op.is<op::Input>() || is_weight(x))) return std::nullopt;
    Graph& graph = rewriter.target();
    const Value inverse = graph.constant(f32, 1) / scalar(at(rewriter, steps.scale));
    Value y;
    Move move;
    if (scaled) {
      // (scale sums + bias) / step
      y = cast(scaled->sums, f32) * (scaled->scale * inverse);
      if (scaled->bias) y = y + scaled->bias * inverse;
      move = scaled->move;
    } else {
      y = at(rewriter, x);
      const auto before = unmoved_.find(y.id());
      if (before != unmoved_.end()) y = before->second.value, move = before->second.move;
      y = y * inverse;
    }
    return narrowed(rewriter, round(y), steps, relu, move);
  }

  // y + zero as bytes, which casts keep in their range; relu(x) / step = max(x / step, 0)
  Value narrowed(Rewriter& rewriter, Value y, const Steps& steps, bool relu, const Move& move) {
    Graph& graph = rewriter.target();
    if (relu) y = max(y, graph.constant(f32, 0));
    const double least = steps.dtype == u8 ? 0 : -128, most = steps.dtype == u8 ? 255 : 127;
    const bool shifts = steps.zero.node >= 0;
    const Value zero = shifts ? scalar(at(rewriter, steps.zero)) : graph.constant(steps.dtype, 0);
    const std::optional<double> known = known_integer(graph, zero);
    const Value shift = known ? graph.constant(f32, *known) : cast(zero, f32);
    const auto limit = [&](double bound) {
      if (known) return graph.constant(f32, bound - *known);
      return graph.constant(f32, bound) - shift;
    };
    const Value bytes = moved(move, cast(known == 0.0 ? y : y + shift, steps.dtype));
    whole_.insert_or_assign(bytes.id(),
                            Whole{clamp(y, limit(least), limit(most)), steps.zero, move});
    return bytes;
  }

  // quantize(f(dequantize(x, s, p)), s, p) = f(x) for what takes its results from its operands
  std::optional<Value> moved_bytes(Rewriter& rewriter, ValueId id, const Steps& steps, int depth) {
    const Node& n = node(id);
    if (depth > deepest || n.results.size() != 1 || n.inputs.empty() || n.results[0].dtype != f32)
      return std::nullopt;
    if (n.op.is<op::Dequantize>()) {
      const ValueId zero = n.inputs.size() > 2 ? n.inputs[2] : ValueId();
      if (graph_.type(n.inputs[0]).dtype != steps.dtype || !same(n.inputs[1], steps.scale) ||
          !same(zero, steps.zero))
        return std::nullopt;
      return at(rewriter, n.inputs[0]);
    }
    if (n.op.is<op::Concat>()) return joined_bytes(rewriter, n, steps, depth);
    const auto* pool = n.op.as<op::WindowReduce>();
    const bool moves = n.op.is<op::Transpose>() || n.op.is<op::Reshape>() || n.op.is<op::Slice>() ||
                       n.op.is<op::Gather>() || (pool && pool->kind == Reduction::max);
    const bool relu = n.op.is<op::Relu>();
    if (!moves && !relu) return std::nullopt;
    const auto bytes = moved_bytes(rewriter, n.inputs[0], steps, depth + 1);
    if (!bytes) return std::nullopt;
    Graph& graph = rewriter.target();
    if (relu) {
      const Value zero =
          steps.zero.node >= 0 ? scalar(at(rewriter, steps.zero)) : graph.constant(steps.dtype, 0);
      return max(*bytes, zero);
    }
    Values inputs{*bytes};
    for (std::size_t k = 1; k < n.inputs.size(); ++k) inputs.push_back(at(rewriter, n.inputs[k]));
    return graph.add(n.op, inputs)[0];
  }

  // quantize(concat(x, y)) = concat(quantize(x), quantize(y))
  std::optional<Value> joined_bytes(Rewriter& rewriter, const Node& n, const Steps& steps,
                                    int depth) {
    Values parts;
    for (const ValueId input : n.inputs) {
      const auto part = bytes_of(rewriter, input, steps, depth + 1);
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    return rewriter.target().add(n.op, parts)[0];
  }

  const Graph& graph_;
  const std::vector<bool> weight_only_;
  std::vector<std::vector<std::int32_t>> readers_;  ///< by node; -1: an output
  std::map<ValueId, Scaled> scaled_;                ///< by value of the source
  std::map<std::int32_t, std::int32_t> sources_;
  std::map<ValueId, Value> bytes_;      ///< by quantised value of the source: as it is made now
  std::map<ValueId, Whole> whole_;      ///< by bytes of the target
  std::map<ValueId, Unmoved> unmoved_;  ///< by value of the target
};

}  // namespace

Result<Graph> quantised(Graph graph) {
  const auto& nodes = graph.nodes();
  const bool any = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.op.is<op::Quantize>() || node.op.is<op::Dequantize>();
  });
  if (!any) return graph;
  Quantised rules(graph);
  return rewrite(graph,
                 [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                   return rules.visit(rewriter, index, node);
                 });
}

}  // namespace rlx::passes
