// Attention as ONNX Runtime fuses it (com.microsoft): with the products before it, with masks of
// padding, with caches of keys and values.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

void refuse_inputs(NodeContext& c, int first) {
  for (int i = first; i < c.input_count(); ++i) {
    if (c.has(i)) fail_unsupported("Its input {} is not supported.", i);
  }
}

Value range(NodeContext& c, const Dim& length) { return c.add(op::Iota{i64, {length}, 0}, {}); }

/// The dim as a number, i64 [].
Value length_of(NodeContext& c, const Value& x, std::int64_t axis) {
  const Dim& dim = x.shape()[static_cast<std::size_t>(axis)];
  if (dim.is_static()) return c.scalar(i64, static_cast<double>(dim.value()));
  return reshape(slice_axis(c.add(op::ShapeOf{}, {x}), 0, axis, axis + 1), {});
}

// ---- masks of padding ---------------------------------------------------------------------------

/// Part `i` of `n` of numbers [n B], for all heads, queries and keys.
Value of_items(const Value& numbers, std::int64_t i, std::int64_t n, const Dim& items) {
  const Value parts = reshape(numbers, {n, items});
  return reshape(cast(slice_axis(parts, 0, i, i + 1), i64), {items, 1, 1, 1});
}

/// Which of the keys hold words: from 0 or 1 for each, [B, T] or [B, S, T], or from where they end,
/// [B], and begin, [2 B].
Value holds_words(NodeContext& c, const Value& mask, const Dim& items, const Dim& keys) {
  const Shape& s = mask.shape();
  const Value zero = scalar_like(c, mask, 0);
  if (mask.rank() == 3) return greater(reshape(mask, {s[0], 1, s[1], s[2]}), zero);
  if (mask.rank() == 2) return greater(reshape(mask, {s[0], 1, 1, s[1]}), zero);
  if (mask.rank() == 1 && s[0] == items) return less(range(c, keys), of_items(mask, 0, 1, items));
  if (mask.rank() == 1 && s[0] == items * 2) {
    const Value at = range(c, keys);
    return logical_and(less(at, of_items(mask, 0, 2, items)),
                       less_equal(of_items(mask, 1, 2, items), at));
  }
  fail_unsupported("A mask of {} is not supported.", mask.type().text());
}

// ---- heads that have keys of their own ----------------------------------------------------------

struct Parts {
  Value q, k, v;         ///< [B, S, H, D]
  Value past_k, past_v;  ///< [B, H, P, D], or none
  Value words;           ///< a mask of padding, or none
  Value bias;            ///< of the scores, or none
};

struct Results {
  Value y;     ///< [B, S, H*D]
  Value k, v;  ///< [B, H, T, D] where a result or the past asks for it
};

Results attend(NodeContext& c, Parts p) {
  op::Attention attributes{.scale = c.optional_real("scale")};
  if (c.flag("unidirectional")) {
    attributes.causal = true;
    if (!p.past_k) attributes.causal_offset = 0;
  }
  attributes.bshd = !p.past_k && !c.wants(1);
  if (!attributes.bshd) {
    for (Value* x : {&p.q, &p.k, &p.v}) *x = swap_heads(*x);
  }
  if (p.past_k) {
    p.k = concat({p.past_k, p.k}, 2);
    p.v = concat({p.past_v, p.v}, 2);
  }
  // What hides a key is added to its scores: where all are hidden, all count.
  const double hidden = c.real("mask_filter_value", -10000);
  if (p.words) {
    const Dim& keys = p.k.shape()[attributes.bshd ? 1 : 2];
    const Value seen = holds_words(c, p.words, p.q.shape()[0], keys);
    const Value added = select(seen, scalar_like(c, p.q, 0), scalar_like(c, p.q, hidden));
    p.bias = p.bias ? p.bias + added : added;
  }
  Value y = attention(p.q, p.k, p.v, p.bias, attributes);
  if (!attributes.bshd) y = swap_heads(y);
  const Shape& s = y.shape();
  return {reshape(y, {s[0], s[1], s[2] * s[3]}), p.k, p.v};
}

/// Queries, keys and values beside one another, [B, S, 3 H*D], and a past [2, B, H, P, D].
void attend_to_product(NodeContext& c, const Value& product, Parts p, const Value& past) {
  require_rank(product, 3);
  const auto heads = c.integer("num_heads"), columns = static_dim(product, 2);
  const Axes sizes = c.integers("qkv_hidden_sizes", Axes(3, columns / 3));
  if (sizes.size() != 3 ||
      std::ranges::any_of(sizes, [&](auto n) { return n < 1 || n > columns; }) ||
      sizes[0] + sizes[1] + sizes[2] != columns)
    fail("Queries, keys and values do not fit {} columns.", columns);
  if (c.flag("do_rotary") || c.flag("past_present_share_buffer"))
    fail_unsupported("The attributes do_rotary and past_present_share_buffer are not supported.");
  p.q = with_heads(slice_axis(product, 2, 0, sizes[0]), heads);
  p.k = with_heads(slice_axis(product, 2, sizes[0], sizes[0] + sizes[1]), heads);
  p.v = with_heads(slice_axis(product, 2, sizes[0] + sizes[1], columns), heads);
  if (past) {
    require_rank(past, 5);
    p.past_k = squeeze(slice_axis(past, 0, 0, 1), {0});
    p.past_v = squeeze(slice_axis(past, 0, 1, 2), {0});
  }
  const Results r = attend(c, p);
  c.set(0, r.y);
  if (c.wants(1)) c.set(1, concat({unsqueeze(r.k, {0}), unsqueeze(r.v, {0})}, 0));
}

// (x, w, bias?, mask of padding?, past?, bias of the scores?)
void attention_node(NodeContext& c) {
  refuse_inputs(c, 6);
  c.ignore({"rotary_embedding_dim"});
  const Value product = matmul(c.in(0), c.in(1));
  attend_to_product(c, c.has(2) ? product + c.in(2) : product,
                    {.words = c.optional(3), .bias = c.optional(5)}, c.optional(4));
}

// (x, w, bias, x scale, w scale, mask of padding?, x zero?, w zero?, past?)
void quantised_attention(NodeContext& c) {
  const Value product = integer_product(c, {.a = c.in(0),
                                            .b = c.in(1),
                                            .a_scale = c.in(3),
                                            .b_scale = c.in(4),
                                            .a_zero = c.optional(6),
                                            .b_zero = c.optional(7)});
  attend_to_product(c, product + c.in(2), {.words = c.optional(5)}, c.optional(8));
}

// (q, k, v, bias?, mask of padding?, bias of the scores?, past k?, past v?): k and v as [B, S, H*D]
// or, of another sequence, [B, H, S, D]
void multi_head_attention(NodeContext& c) {
  refuse_inputs(c, 8);
  if (c.wants(3)) fail_unsupported("The scores as a result are not supported.");
  const auto heads = c.integer("num_heads");
  if (!c.has(1) || !c.has(2) || c.in(0).rank() != 3)
    fail_unsupported("Queries, keys and values in one operand are not supported.");
  std::int64_t begin = 0;
  const auto operand = [&](int i) {
    const Value x = c.in(i);
    if (x.rank() == 4) return swap_heads(x);
    if (!c.has(3)) return with_heads(x, heads);
    const auto columns = static_dim(x, 2);
    const Value part = slice_axis(c.in(3), 0, begin, begin + columns);
    begin += columns;
    return with_heads(x + part, heads);
  };
  Parts p;
  p.q = operand(0);
  p.k = operand(1);
  p.v = operand(2);
  p.words = c.optional(4);
  p.bias = c.optional(5);
  p.past_k = c.optional(6);
  p.past_v = c.optional(7);
  if (!p.past_k != !p.past_v) fail("Past keys and values come together.");
  const Results r = attend(c, p);
  c.set(0, r.y);
  c.set(1, r.k);
  c.set(2, r.v);
}

// ---- groups of heads that share keys, behind a cache --------------------------------------------

struct Grouped {
  Value q, k, v;  ///< [B, S, H, D], of k and v fewer heads
  Value at;       ///< position of each query, [B, S], or [1, S] where all begin at 0
};

Grouped grouped_operands(NodeContext& c) {
  const auto heads = c.integer("num_heads"), few = c.integer("kv_num_heads");
  if (c.has(1) != c.has(2)) fail("Keys and values come together.");
  if (c.has(1))
    return {with_heads(c.in(0), heads), with_heads(c.in(1), few), with_heads(c.in(2), few), {}};
  const Value all = with_heads(c.in(0), heads + 2 * few);
  return {slice_axis(all, 2, 0, heads),
          slice_axis(all, 2, heads, heads + few),
          slice_axis(all, 2, heads + few, heads + 2 * few),
          {}};
}

/// By angles [B, S, R/2].
std::int64_t columns_turned(const Value& angles) {
  require_rank(angles, 3);
  const auto half = static_dim(angles, 2);
  if (half < 1) fail("There are no angles.");
  return 2 * half;
}

/// Turns queries and keys by the angles of their positions.
void turn(NodeContext& c, Grouped& g) {
  const bool interleaved = c.flag("rotary_interleaved");
  if (!c.flag("do_rotary")) return;
  const Value at = c.has(9) ? c.in(9) : g.at;
  const Value cosine = gather(c.in(7), at), sine = gather(c.in(8), at);
  const op::Rope rope{.rotary = columns_turned(cosine), .interleaved = interleaved, .bshd = true};
  g.q = c.add(rope, {g.q, cosine, sine});
  g.k = c.add(rope, {g.k, cosine, sine});
}

/// The past [B, H, P, D] with the new rows [B, H, S, D] at their positions, and room behind them
/// where an item's past ended before P.
Value extended(NodeContext& c, const Value& past, const Value& rows, const Value& at) {
  const Shape& s = at.shape();
  const Value places = broadcast(reshape(at, {s[0], 1, s[1], 1}), rows.shape());
  return c.add(op::ScatterElements{2, ScatterMode::assign},
               {concat({past, rows}, 2), places, rows});
}

// (q, k?, v?, past k?, past v?, index of each item's last key, of the longest's, cosine?, sine?,
// positions?, bias of the scores?)
void group_query_attention(NodeContext& c) {
  refuse_inputs(c, 11);
  if (c.wants(3) || c.integer("qk_output", 0) != 0 || c.integer("smooth_softmax", 0) > 0 ||
      c.flag("sliding_window_cache") || c.text("k_quant_type", "NONE") != "NONE" ||
      c.text("v_quant_type", "NONE") != "NONE")
    fail_unsupported(
        "Scores as a result, a smooth softmax and quantised caches or such of windows "
        "are not supported.");
  c.ignore({"kv_cache_bit_width", "qk_norm_epsilon"});
  if (c.has(3) != c.has(4)) fail("Past keys and values come together.");
  if (c.has(3)) require_rank(c.in(3), 4);
  op::Attention attributes{.scale = c.optional_real("scale"), .softcap = c.real("softcap", 0)};
  const auto window = c.integer("local_window_size", -1);
  if (window < -1 || window == 0) fail("The window ({}) is neither -1 nor positive.", window);
  const bool causal = c.flag("causal", true);
  Grouped g = grouped_operands(c);
  const Dim items = g.q.shape()[0], queries = g.q.shape()[1];
  const bool begins = causal && (!c.has(3) || c.in(3).shape()[2] == Dim(0));
  Value mask = c.optional(10);
  if (begins) {
    g.at = reshape(range(c, queries), {1, queries});
    attributes.causal = true;
    if (window >= 0) attributes.window = window - 1;
  } else {
    const Value last = reshape(cast(c.in(5), i64), {items, 1}), one = c.scalar(i64, 1);
    const Value begin = max(last + one - length_of(c, g.q, 1), c.scalar(i64, 0));
    g.at = begin + range(c, queries);
    const Value query = reshape(g.at, {items, 1, queries, 1});
    const Value key = range(c, queries + (c.has(3) ? c.in(3).shape()[2] : Dim(0)));
    const Value until = causal ? query : reshape(last, {items, 1, 1, 1});
    mask = mask_where(c, mask, less_equal(key, until), g.q.dtype());
    if (window >= 0) {
      const Value before = query - c.scalar(i64, static_cast<double>(window));
      mask = mask_where(c, mask, less(before, key), g.q.dtype());
    }
  }
  turn(c, g);
  for (Value* x : {&g.q, &g.k, &g.v}) *x = swap_heads(*x);
  if (!begins && c.has(3)) {
    g.k = extended(c, c.in(3), g.k, g.at);
    g.v = extended(c, c.in(4), g.v, g.at);
  }
  const Value y = swap_heads(attention(g.q, g.k, g.v, mask, attributes));
  const Shape& s = y.shape();
  c.set(0, reshape(y, {s[0], s[1], s[2] * s[3]}));
  c.set(1, g.k);
  c.set(2, g.v);
}

// (x, positions [B, S] or where they begin [1], cosine, sine)
void rotary_embedding(NodeContext& c) {
  const Value x = c.in(0), given = c.in(1);
  const auto heads = c.integer("num_heads", 0), part = c.integer("rotary_embedding_dim", 0);
  if (c.real("scale", 1) != 1 || c.flag("is_packed_batching"))
    fail_unsupported("The attributes scale and is_packed_batching are not supported.");
  if (x.rank() != 3 && x.rank() != 4)
    fail("It turns [B,S,N*D] or [B,N,S,D], not {}.", x.type().text());
  const bool flat = x.rank() == 3;
  const Dim length = x.shape()[flat ? 1 : 2];
  const Value at = given.rank() == 1 ? reshape(given + range(c, length), {1, length}) : given;
  const Value cosine = gather(c.in(2), at), sine = gather(c.in(3), at);
  const auto turned = columns_turned(cosine);
  if (part > 0 && part != turned) fail("The angles turn {} columns, not {}.", turned, part);
  const op::Rope rope{.rotary = turned, .interleaved = c.flag("interleaved"), .bshd = flat};
  const Value apart = flat ? with_heads(x, heads > 0 ? heads : static_dim(x, 2) / turned) : x;
  c.set(reshape(c.add(rope, {apart, cosine, sine}), x.shape()));
}

constexpr OpEntry entries[] = {
    {"Attention", 1, attention_node, onnx_runtime},
    {"QAttention", 1, quantised_attention, onnx_runtime},
    {"MultiHeadAttention", 1, multi_head_attention, onnx_runtime},
    {"GroupQueryAttention", 1, group_query_attention, onnx_runtime},
    {"RotaryEmbedding", 1, rotary_embedding, onnx_runtime},
};

}  // namespace

OpEntries fused_attention_entries() { return entries; }

}  // namespace rlx::onnx
