// Attention with every mask of the specification.
#include <cmath>
#include <limits>

#include "ops/attention.hpp"
#include "ops/norm.hpp"

namespace rlx {
namespace {

struct AttentionShape {
  Dim batch, heads, kv_heads, queries, keys, width, value_width;
};

Status check_heads(const AttentionShape& s) {
  if (s.heads.is_static() && s.kv_heads.is_static() &&
      (s.kv_heads.value() < 1 || s.heads.value() % s.kv_heads.value())) {
    return bad_input("The query heads ({}) of attention are no multiple of its key heads ({}).",
                     s.heads.value(), s.kv_heads.value());
  }
  return {};
}

Result<AttentionShape> attention_shape(const op::Attention& a, const Type& q, const Type& k,
                                       const Type& v) {
  for (const Type* type : {&q, &k, &v}) {
    if (type->rank() != 4) {
      return bad_input("The op attention takes {} operands, not {}.",
                       a.bshd ? "[B, S, H, D]" : "[B, H, S, D]", type->text());
    }
  }
  const HeadAxes axes(a.bshd);
  const AttentionShape s{q.shape[0],
                         q.shape[axes.heads],
                         k.shape[axes.heads],
                         q.shape[axes.sequence],
                         k.shape[axes.sequence],
                         q.shape[3],
                         v.shape[3]};
  const bool fits = compatible(q.shape[0], k.shape[0]) && compatible(q.shape[0], v.shape[0]) &&
                    compatible(s.width, k.shape[3]) &&
                    compatible(s.kv_heads, v.shape[axes.heads]) &&
                    compatible(s.keys, v.shape[axes.sequence]);
  if (!fits)
    return bad_input("The operands of attention do not fit: q {}, k {}, v {}.", q.text(), k.text(),
                     v.text());
  RLX_TRY(check_heads(s));
  return s;
}

Status check_mask(const Type& mask, const AttentionShape& s, DType dtype) {
  if (mask.dtype != boolean && mask.dtype != dtype) {
    return bad_input("A mask of attention is bool or {}, not {}.", name_of(dtype), mask.text());
  }
  const Type scores{mask.dtype, {s.batch, s.heads, s.queries, s.keys}};
  auto shape = broadcast_shapes(mask.shape, scores.shape);
  if (!shape.ok() || shape->size() != 4 ||
      !std::equal(shape->begin(), shape->end(), scores.shape.begin(), compatible)) {
    return bad_input("The mask {} of attention does not broadcast to {}.", mask.text(),
                     scores.text());
  }
  return {};
}

/// One head of one batch item on concrete data.
struct HeadView {
  const double* data;
  std::int64_t row_stride;
  const double* row(std::int64_t i) const { return data + i * row_stride; }
};

HeadView head_view(const std::vector<double>& values, std::span<const std::int64_t> dims, bool bshd,
                   std::int64_t batch, std::int64_t head) {
  const Dims strides = strides_of(dims);
  const HeadAxes axes(bshd);
  return {values.data() + batch * strides[0] + head * strides[axes.heads], strides[axes.sequence]};
}

// Whether the attributes alone let query i see key j.
bool sees(const op::Attention& a, std::int64_t i, std::int64_t j, std::int64_t queries,
          std::int64_t keys) {
  if (a.causal && j > i + a.causal_offset.value_or(keys - queries)) return false;
  if (a.window >= 0) {
    const std::int64_t position = j - (keys - queries);
    if (position > i || position < i - a.window) return false;
  }
  return true;
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// exp(s - max) / sum; where every score is -inf zeros, or NaN if asked for.
void softmax_or_zeros(std::vector<double>& scores, bool blind_rows_are_nan) {
  double max = -INFINITY, sum = 0;
  for (const double score : scores) max = std::isnan(score) ? score : std::max(max, score);
  if (max == -INFINITY) return scores.assign(scores.size(), blind_rows_are_nan ? NAN : 0.0);
  for (double& score : scores) sum += score = std::exp(score - max);
  for (double& score : scores) score /= sum;
}

/// The mask of an evaluation: visibility or an additive bias at [b, h, i, j], or none.
class MaskReader {
 public:
  MaskReader(const EvalArgs& args, const Dims& scores) {
    if (!args.has(3)) return;
    is_boolean_ = args.in(3).dtype == boolean;
    values_ = load_all<double>(args.in(3));
    strides_ = broadcast_strides(args.in(3).dims, scores);
  }
  double apply(double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (values_.empty()) return score;
    const double value =
        values_[b * strides_[0] + h * strides_[1] + i * strides_[2] + j * strides_[3]];
    if (is_boolean_) return value != 0 ? score : -INFINITY;
    return score + value;
  }

 private:
  bool is_boolean_ = false;
  std::vector<double> values_;
  Dims strides_;
};

double scale_of(const op::Attention& a, std::int64_t width) {
  return a.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
}

Status evaluate_attention(const op::Attention& a, const EvalArgs& args) {
  const TensorView &q = args.in(0), &k = args.in(1), &v = args.in(2);
  const HeadAxes axes(a.bshd);
  const std::int64_t batch = q.dims[0], heads = q.dims[axes.heads], queries = q.dims[axes.sequence];
  const std::int64_t kv_heads = k.dims[axes.heads], keys = k.dims[axes.sequence], width = q.dims[3],
                     value_width = v.dims[3];
  const std::vector<double> q_all = load_all<double>(q), k_all = load_all<double>(k),
                            v_all = load_all<double>(v);
  const MaskReader mask(args, {batch, heads, queries, keys});
  std::vector<double> result(args.out(0).elements(), 0.0), scores(keys);
  for (std::int64_t bh = 0; bh < batch * heads; ++bh) {
    const std::int64_t b = bh / heads, h = bh % heads, kv = h / (heads / kv_heads);
    const HeadView q_head = head_view(q_all, q.dims, a.bshd, b, h),
                   k_head = head_view(k_all, k.dims, a.bshd, b, kv);
    const HeadView v_head = head_view(v_all, v.dims, a.bshd, b, kv),
                   out_head = head_view(result, args.out(0).dims, a.bshd, b, h);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = dot(q_head.row(i), k_head.row(j), width) * scale_of(a, width);
        if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
        scores[j] = sees(a, i, j, queries, keys) ? mask.apply(score, b, h, i, j) : -INFINITY;
      }
      softmax_or_zeros(scores, a.blind_rows_are_nan);
      double* out = result.data() + (out_head.row(i) - result.data());
      for (std::int64_t j = 0; j < keys; ++j) {
        if (scores[j] == 0) continue;
        for (std::int64_t d = 0; d < value_width; ++d) out[d] += scores[j] * v_head.row(j)[d];
      }
    }
  }
  store_all<double>(args.out(0), result);
  return {};
}

// The body sees queries as [B, kv heads, group, Sq, D], so that a group shares its keys without
// copies.
Value grouped(Value x, const op::Attention& a, const Dim& kv_heads, const Dim& group) {
  const HeadAxes axes(a.bshd);
  const Shape& s = x.shape();
  if (a.bshd) return transpose(reshape(x, {s[0], s[1], kv_heads, group, s[3]}), {0, 2, 3, 1, 4});
  return reshape(x, {s[0], kv_heads, group, s[axes.sequence], s[3]});
}

// Visible (bool [Sq, Skv]) by causality and window, or none.
Value visibility(const op::Attention& a, Graph& graph, const Dim& queries, const Dim& keys) {
  if (!a.causal && a.window < 0) return {};
  const Value i = graph.add_one(op::Iota{i64, {queries, 1}, 0}, {});
  const Value j = graph.add_one(op::Iota{i64, {1, keys}, 1}, {});
  const auto number = [&](std::int64_t value) {
    return graph.constant(Tensor::scalar<std::int64_t>(value));
  };
  // Dims that are not bound yet are read from a value that has them.
  const auto dim_value = [&](const Dim& dim, Value line, std::int64_t axis) {
    if (dim.is_static()) return number(dim.value());
    const Value dims = graph.add_one(op::ShapeOf{}, {line});
    return reshape(slice(dims, {axis}, {axis + 1}, {1}), {});
  };
  const auto difference = [&] { return dim_value(keys, j, 1) - dim_value(queries, i, 0); };
  Value visible;
  if (a.causal)
    visible = less_equal(j, i + (a.causal_offset ? number(*a.causal_offset) : difference()));
  if (a.window >= 0) {
    const Value position = j - difference();
    const Value inside =
        logical_and(less_equal(position, i), less_equal(i - number(a.window), position));
    visible = visible ? logical_and(visible, inside) : inside;
  }
  return visible;
}

// A mask that broadcasts to [B, Hq, Sq, Skv] as one for [B, kv heads, group, Sq, Skv].
Value grouped_mask(Value mask, const Dim& kv_heads, const Dim& group) {
  Shape shape = mask.shape();
  if (shape.size() < 3) return mask;
  const std::size_t heads = shape.size() - 3;
  if (shape[heads] == Dim(1)) {
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(heads), Dim(1));
  } else {
    shape[heads] = group;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(heads), kv_heads);
  }
  return reshape(mask, std::move(shape));
}

// Softmax over the last axis that gives zeros where every score is -inf: the maximum is then taken
// as 0, the sum as 1.
Value masked_softmax(Value scores) {
  Graph& graph = scores.graph();
  const auto constant = [&](double value) { return graph.constant(scores.dtype(), value); };
  const Value max = max_over(scores, {-1}, true);
  const Value hidden = equal(max, constant(-INFINITY));
  const Value powers = exp(scores - select(hidden, constant(0), max));
  return powers * reciprocal(select(hidden, constant(1), sum(powers, {-1}, true)));
}

Value masked_scores(const op::Attention& a, Value scores, Value mask, const Dim& kv_heads,
                    const Dim& group) {
  Graph& graph = scores.graph();
  const Value nothing = graph.constant(scores.dtype(), -INFINITY);
  if (a.softcap > 0) {
    const Value cap = graph.constant(scores.dtype(), a.softcap);
    scores = cap * tanh(scores / cap);
  }
  if (mask && mask.dtype() == boolean)
    scores = select(grouped_mask(mask, kv_heads, group), scores, nothing);
  if (mask && mask.dtype() != boolean)
    scores = scores + cast(grouped_mask(mask, kv_heads, group), scores.dtype());
  const Value visible = visibility(a, graph, scores.shape()[3], scores.shape()[4]);
  return visible ? select(visible, scores, nothing) : scores;
}

}  // namespace

// softmax(mask(softcap(q k^T scale))) v, in f32 at least
template <>
struct Rules<op::Attention> {
  using A = op::Attention;
  static constexpr std::string_view name = "attention";
  static constexpr Arity arity{3, 4};
  static constexpr OpTraits traits{.composite = true};
  static constexpr auto fields = std::tuple{field("scale", &A::scale),
                                            field("softcap", &A::softcap),
                                            field("causal", &A::causal),
                                            field("causal_offset", &A::causal_offset),
                                            field("window", &A::window),
                                            field("bshd", &A::bshd),
                                            field("blind_rows_are_nan", &A::blind_rows_are_nan)};
  static Result<std::vector<Type>> infer(const A& a, const InferArgs& args) {
    RLX_TRY(require(is_float(args[0].dtype), name, "floats", args[0]));
    RLX_TRY(require_same_dtype(name, args[0], args[1]));
    RLX_TRY(require_same_dtype(name, args[0], args[2]));
    RLX_ASSIGN(const AttentionShape s, attention_shape(a, args[0], args[1], args[2]));
    if (args.has(3)) RLX_TRY(check_mask(args[3], s, args[0].dtype));
    Type result = args[0];
    result.shape[3] = s.value_width;
    return std::vector<Type>{std::move(result)};
  }
  static Status eval(const A& a, const EvalArgs& args) { return evaluate_attention(a, args); }
  static Values body(const A& a, Graph& graph, std::span<const Value> inputs) {
    const HeadAxes axes(a.bshd);
    const Dim kv_heads = inputs[1].shape()[axes.heads],
              group = floor_div(inputs[0].shape()[axes.heads], kv_heads);
    const Dim queries = inputs[0].shape()[axes.sequence], width = inputs[0].shape()[3];
    const DType wide = wide_dtype(inputs[0].dtype());
    // Scores are never rounded to a narrow type: the operands are widened first.
    const Value q = grouped(widened(inputs[0]), a, kv_heads, group), k = widened(inputs[1]),
                v = widened(inputs[2]);
    const op::DotGeneral by_key{
        .a_batch = {0, 1}, .b_batch = {0, axes.heads}, .a_contract = {4}, .b_contract = {3}};
    Value scores = graph.add_one(by_key, {q, k});  // [B, kv, group, Sq, Skv]
    if (!a.scale && !width.is_static())
      throw Exception(
          unsupported("Attention of an unbound width ({}) needs a scale.", width.text()));
    scores = scores * graph.constant(wide, scale_of(a, width.value()));
    scores = masked_scores(a, scores, inputs.size() > 3 ? inputs[3] : Value(), kv_heads, group);
    const op::DotGeneral by_value{.a_batch = {0, 1},
                                  .b_batch = {0, axes.heads},
                                  .a_contract = {4},
                                  .b_contract = {axes.sequence}};
    const Value shares =
        a.blind_rows_are_nan ? softmax(scores, {.axis = -1}) : masked_softmax(scores);
    Value result = graph.add_one(by_value, {shares, v});  // [B, kv, group, Sq, Dv]
    Shape shape = inputs[0].shape();
    shape[3] = inputs[2].shape()[3];
    if (a.bshd) result = transpose(result, {0, 3, 1, 2, 4});
    return {cast(reshape(result, std::move(shape)), inputs[0].dtype())};
  }
  static OpCost cost(const A& a, std::span<const Type* const> inputs,
                     std::span<const Type> results) {
    const HeadAxes axes(a.bshd);
    const Dims q = inputs[0]->dims(), k = inputs[1]->dims(), v = inputs[2]->dims();
    const double scores = static_cast<double>(q[0] * q[axes.heads]) *
                          static_cast<double>(q[axes.sequence] * k[axes.sequence]);
    return {2 * scores * static_cast<double>(q[3] + v[3]), bytes_of(inputs, results)};
  }
  static std::vector<Sample> samples();
};

std::vector<Sample> Rules<op::Attention>::samples() {
  const auto heads = [](DType dtype, std::int64_t h, std::int64_t s, std::int64_t d) {
    return Type{dtype, {2, h, s, d}};
  };
  const Type q = heads(f32, 4, 5, 8), k = heads(f32, 2, 7, 8), bias{f32, {4, 5, 7}},
             visible{boolean, {2, 1, 5, 7}};
  std::vector<Sample> list;
  for (const DType dtype : {f32, f64, f16, bf16}) {
    list.push_back(
        {.op = A{},
         .inputs = {heads(dtype, 3, 5, 8), heads(dtype, 3, 7, 8), heads(dtype, 3, 7, 6)}});
  }
  list.push_back({.op = A{.causal = true}, .inputs = {q, k, k}});
  list.push_back({.op = A{.scale = 0.5, .softcap = 3, .causal = true, .causal_offset = -2},
                  .inputs = {q, k, k}});
  list.push_back({.op = A{.window = 2}, .inputs = {q, k, k}});
  // More queries than keys: the first rows see nothing.
  const Type few = heads(f32, 2, 5, 8);
  list.push_back({.op = A{.causal = true, .window = 1}, .inputs = {heads(f32, 4, 7, 8), few, few}});
  list.push_back({.op = A{}, .inputs = {q, k, k, bias}});
  list.push_back({.op = A{}, .inputs = {q, k, k, visible}});
  list.push_back({.op = A{.causal = true}, .inputs = {q, k, k, Type{boolean, {5, 7}}}});
  const Type q_last{f32, {2, 5, 4, 8}}, k_last{f32, {2, 7, 2, 8}};
  list.push_back({.op = A{.causal = true, .bshd = true},
                  .inputs = {q_last, k_last, k_last, Type{f32, {2, 4, 1, 7}}}});
  return list;
}
RLX_OP(op::Attention, "attention")

OpList attention_ops() {
  static const OpInfo* const list[] = {&info_of<op::Attention>(), &info_of<op::Rope>()};
  return list;
}

}  // namespace rlx
