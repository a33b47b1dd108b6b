// Attention, rotary embedding, caches, gated units.
#include <cmath>
#include <limits>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct AttentionParts {
  Value q, k, v;  ///< [B, H, S, D], or [B, S, H, D] with bshd
  Value mask;     ///< bool or additive, or none
  op::Attention attributes;
  bool flat = false;  ///< the model's q, k, v have three axes
};

void read_operands(NodeContext& c, AttentionParts& a) {
  a.q = c.in(0);
  a.k = c.in(1);
  a.v = c.in(2);
  a.flat = a.q.rank() == 3;
  const auto q_heads = c.integer("q_num_heads", 0), kv_heads = c.integer("kv_num_heads", 0);
  if (a.flat) {
    a.q = with_heads(a.q, q_heads);
    a.k = with_heads(a.k, kv_heads);
    a.v = with_heads(a.v, kv_heads);
    a.attributes.bshd = !c.has(4) && !c.wants(3);
    if (!a.attributes.bshd) {
      a.q = swap_heads(a.q);
      a.k = swap_heads(a.k);
      a.v = swap_heads(a.v);
    }
  }
  if (a.q.rank() != 4 || a.k.rank() != 4 || a.v.rank() != 4) {
    fail("It takes q, k and v of three or of four axes, not {}, {} and {}.", c.in(0).type().text(),
         c.in(1).type().text(), c.in(2).type().text());
  }
  if (c.has(4) != c.has(5)) fail("Past keys and values come together.");
  if (c.has(4)) {
    a.k = concat({c.in(4), a.k}, 2);
    a.v = concat({c.in(5), a.v}, 2);
  }
}

Dim length_of(const AttentionParts& a, const Value& x) {
  return x.shape()[a.attributes.bshd ? 1 : 2];
}

// A mask may end before the last keys, which are then masked.
Value mask_of(NodeContext& c, const AttentionParts& a) {
  Value mask = c.optional(3);
  if (!mask) return mask;
  if (mask.rank() == 0) fail("The mask has no axes.");
  const Dim keys = length_of(a, a.k), covered = mask.shape().back();
  if (keys.is_static() && covered.is_static() && covered.value() < keys.value()) {
    if (covered.value() == 1 && c.version() < 24) return mask;
    Axes low(static_cast<std::size_t>(mask.rank()), 0), high = low;
    high.back() = keys.value() - covered.value();
    const Value fill = mask.dtype() == boolean ? c.graph().constant(Tensor::scalar(false))
                                               : c.scalar(mask.dtype(), -infinity);
    mask = c.add(op::Pad{low, high}, {mask, fill});
  }
  return mask;
}

// Query positions [.., Sq, 1] and key positions [Skv] where the queries begin at `offset`.
struct Positions {
  Value query, key;
};

Positions positions(NodeContext& c, const AttentionParts& a, const Value& offset) {
  const Value query = c.add(op::Iota{i64, {length_of(a, a.q), 1}, 0}, {});
  return {query + offset, c.add(op::Iota{i64, {length_of(a, a.k)}, 0}, {})};
}

// Causal and sliding masks by positions. Without a cache the queries begin at key 0, behind a cache
// at its length; with lengths of a static cache each item has a begin of its own.
void read_masks(NodeContext& c, AttentionParts& a) {
  const bool causal = c.flag("is_causal");
  const auto left = c.integer("left_window_size", -1), right = c.integer("right_window_size", -1);
  a.mask = mask_of(c, a);
  const DType dtype = a.q.dtype();
  Value offset = c.scalar(i64, 0);
  if (c.has(4)) {
    offset = c.scalar(i64, static_cast<double>(static_dim(c.in(4), 2)));
  } else if (c.has(6)) {
    const Value lengths = reshape(cast(c.in(6), i64), {a.q.shape()[0], 1, 1, 1});
    const Value key = c.add(op::Iota{i64, {length_of(a, a.k)}, 0}, {});
    a.mask = mask_where(c, a.mask, less(key, lengths), dtype);
    const Dim queries = length_of(a, a.q);
    if (!queries.is_static()) fail_unsupported("The number of queries must be known.");
    offset = lengths - c.scalar(i64, static_cast<double>(queries.value()));
  }
  if (causal && !c.has(6)) {
    a.attributes.causal = true;
    a.attributes.causal_offset = c.has(4) ? static_dim(c.in(4), 2) : 0;
  }
  const Positions at = positions(c, a, offset);
  if (causal && c.has(6)) {
    a.mask = mask_where(c, a.mask, less_equal(at.key, at.query), dtype);
  }
  if (left >= 0) {
    const Value first = at.query - c.scalar(i64, static_cast<double>(left));
    a.mask = mask_where(c, a.mask, less_equal(first, at.key), dtype);
  }
  if (right >= 0) {
    const Value last = at.query + c.scalar(i64, static_cast<double>(right));
    a.mask = mask_where(c, a.mask, less_equal(at.key, last), dtype);
  }
}

// Keys or values of grouped heads, each repeated for its queries.
Value repeated_heads(const Value& x, const Dim& heads) {
  const Shape& s = x.shape();
  if (s[1] == heads) return x;
  if (s[1] == Dim(0)) fail("There are no heads.");
  const Dim each = floor_div(heads, s[1]);
  const Value apart = reshape(x, {s[0], s[1], 1, s[2], s[3]});
  return reshape(broadcast(apart, {s[0], s[1], each, s[2], s[3]}), {s[0], heads, s[2], s[3]});
}

// The scores as the fourth result: plain, with softcap, with the mask, or after the softmax.
Value scores(NodeContext& c, const AttentionParts& a, std::int64_t mode) {
  const Value k = repeated_heads(a.k, a.q.shape()[1]);
  const double scale =
      a.attributes.scale.value_or(1 / std::sqrt(static_cast<double>(static_dim(a.q, 3))));
  Value s = matmul(a.q, transpose(k, {0, 1, 3, 2})) * scalar_like(c, a.q, scale);
  if (mode == 0) return s;
  const double cap = a.attributes.softcap;
  if (cap > 0) s = tanh(s / scalar_like(c, s, cap)) * scalar_like(c, s, cap);
  if (mode == 1) return s;
  Value mask = a.mask;
  if (a.attributes.causal) {
    const auto offset = static_cast<double>(a.attributes.causal_offset.value_or(0));
    const Positions at = positions(c, a, c.scalar(i64, offset));
    mask = mask_where(c, mask, less_equal(at.key, at.query), s.dtype());
  }
  const Value masked_out = c.scalar(s.dtype(), -infinity);
  if (mask) s = mask.dtype() == boolean ? select(mask, s, masked_out) : s + mask;
  if (mode == 2) return s;
  const Value peak = max_over(s, {3}, true), nothing = equal(peak, masked_out);
  return select(nothing, scalar_like(c, s, 0), softmax(select(nothing, scalar_like(c, s, 0), s)));
}

void attention_node(NodeContext& c) {
  AttentionParts a;
  a.attributes.scale = c.optional_real("scale");
  a.attributes.softcap = c.real("softcap", 0);
  c.ignore({"softmax_precision"});
  const auto mode = c.integer("qk_matmul_output_mode", 0);
  read_operands(c, a);
  read_masks(c, a);
  const Value y = attention(a.q, a.k, a.v, a.mask, a.attributes);
  const Value rows = a.attributes.bshd || !a.flat ? y : swap_heads(y);
  const Shape& s = rows.shape();
  c.set(0, a.flat ? reshape(rows, {s[0], s[1], s[2] * s[3]}) : y);
  if (c.wants(1)) c.set(1, a.attributes.bshd ? swap_heads(a.k) : a.k);
  if (c.wants(2)) c.set(2, a.attributes.bshd ? swap_heads(a.v) : a.v);
  if (c.wants(3)) c.set(3, scores(c, a, mode));
}

// ---- rotary embedding ---------------------------------------------------------------------------

void rotary_embedding(NodeContext& c) {
  Value x = c.in(0), cosine = c.in(1), sine = c.in(2);
  op::Rope attributes;
  attributes.interleaved = c.flag("interleaved");
  const auto heads = c.integer("num_heads", 0);
  const bool flat = x.rank() == 3;
  const Shape shape = x.shape();
  if (flat) x = with_heads(x, heads);
  attributes.bshd = flat;
  const auto rotary = c.integer("rotary_embedding_dim", 0);
  attributes.rotary = rotary > 0 ? rotary : static_dim(x, 3);
  if (c.has(3)) {
    cosine = gather(cosine, c.in(3));
    sine = gather(sine, c.in(3));
  }
  const Value y = c.add(attributes, {x, cosine, sine});
  c.set(flat ? reshape(y, shape) : y);
}

// ---- caches and small blocks --------------------------------------------------------------------

// Rows of `update` go to the rows of the cache that begin at an index of each item.
void tensor_scatter(NodeContext& c) {
  const Value cache = c.in(0), update = c.in(1);
  const auto axis = normal_axis(c.integer("axis", -2), cache.rank());
  const std::string mode = c.text("mode", "linear");
  Value rows = c.add(op::Iota{i64, update.shape(), axis}, {});
  if (c.has(2)) {
    Shape batch(static_cast<std::size_t>(cache.rank()), Dim(1));
    batch[0] = cache.shape()[0];
    rows = rows + reshape(cast(c.in(2), i64), batch);
  }
  if (mode == "circular") {
    const auto length = static_dim(cache, axis);
    rows = c.add(op::Mod{}, {rows, c.scalar(i64, static_cast<double>(length))});
  } else if (mode != "linear") {
    fail("The mode ({}) is unknown.", mode);
  }
  c.set(c.add(op::ScatterElements{axis, ScatterMode::assign}, {cache, rows, update}));
}

void swiglu(NodeContext& c) { c.set(c.add(op::Swish{c.real("alpha", 1)}, {c.in(0)}) * c.in(1)); }

// A depthwise convolution over the last k-1 steps of the past and the new ones.
void causal_conv_with_state(NodeContext& c) {
  const Value x = c.in(0), w = c.in(1);
  if (x.rank() != 3 || w.rank() != 3) fail("It takes [B,C,L], not {}.", x.type().text());
  const auto past = static_dim(w, 2) - 1;
  const Value before =
      c.has(3) ? c.in(3) : broadcast(scalar_like(c, x, 0), {x.shape()[0], x.shape()[1], past});
  const Value whole = concat({before, x}, 2);
  op::Conv attributes;
  attributes.groups = static_dim(x, 1);
  Value y = conv(whole, w, attributes, c.optional(2));
  const std::string activation = c.text("activation", "none");
  if (activation == "silu" || activation == "swish") {
    y = silu(y);
  } else if (activation != "none") {
    fail("The activation ({}) is unknown.", activation);
  }
  c.set(0, y);
  const auto length = static_dim(whole, 2);
  if (c.wants(1)) c.set(1, slice_axis(whole, 2, length - past, length));
}

constexpr OpEntry entries[] = {
    {"Attention", 23, attention_node},
    {"RotaryEmbedding", 23, rotary_embedding},
    {"TensorScatter", 24, tensor_scatter},
    {"SwiGLU", 1, swiglu},
    {"CausalConvWithState", 1, causal_conv_with_state},
};

}  // namespace

OpEntries attention_entries() { return entries; }

}  // namespace rlx::onnx
