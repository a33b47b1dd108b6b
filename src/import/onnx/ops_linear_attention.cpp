// Attention as a recurrence over a state, and attention with subgraphs of the model inside.
#include <cmath>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// ---- LinearAttention ----------------------------------------------------------------------------

// One step: S <- exp(g) S; v <- beta (v - S^T k); S <- S + k v^T; o = scale S^T q.
struct Recurrence {
  std::int64_t q_heads = 1, kv_heads = 1;
  double scale = 1;
  bool decays = false, corrects = false;
};

// [B, H, d] -> [B, H, d, 1] and [B, H, 1, d].
Value as_column(const Value& x) { return unsqueeze_axes(x, {3}); }
Value as_row(const Value& x) { return unsqueeze_axes(x, {2}); }

// State [B, H, dk, dv] read by a row [B, H, dk]: [B, H, dv].
Value read_state(const Value& state, const Value& row) { return sum(state * as_column(row), {2}); }

// The body of the scan: (step, state, q, k, v, decay?, beta?) -> (state, o).
std::shared_ptr<const Graph> step_graph(const Recurrence& r, const std::vector<Type>& types) {
  Graph graph;
  graph.input("step", i64, {});
  Values in;
  for (std::size_t i = 0; i < types.size(); ++i) {
    in.push_back(graph.input("operand" + std::to_string(i), types[i].dtype, types[i].shape));
  }
  Value state = in[0], value = in[3];
  const Value &query = in[1], &key = in[2];
  std::size_t next = 4;
  if (r.decays) state = state * as_column(exp(in[next++]));
  if (r.corrects) value = in[next] * (value - read_state(state, key));
  state = state + as_column(key) * as_row(value);
  Value seen = state;
  if (r.q_heads != r.kv_heads) {
    // Every state serves a group of query heads.
    const Shape& s = state.shape();
    const std::int64_t group = r.q_heads / r.kv_heads;
    const Value apart = reshape(state, {s[0], s[1], 1, s[2], s[3]});
    seen =
        reshape(broadcast(apart, {s[0], s[1], group, s[2], s[3]}), {s[0], r.q_heads, s[2], s[3]});
  }
  graph.output("state", state);
  graph.output("o", read_state(seen, query) * graph.constant(f32, r.scale));
  return std::make_shared<const Graph>(std::move(graph));
}

// [B, T, H*D] -> [T, B, H, D] as f32.
Value steps_of(const Value& x, std::int64_t heads) {
  require_rank(x, 3);
  if (heads <= 0) fail("The number of heads ({}) is not positive.", heads);
  const Shape& s = x.shape();
  const Value apart = reshape(x, {s[0], s[1], heads, floor_div(s[2], heads)});
  return transpose(cast(apart, f32), {1, 0, 2, 3});
}

Recurrence recurrence_of(NodeContext& c) {
  Recurrence r;
  r.q_heads = c.integer("q_num_heads");
  r.kv_heads = c.integer("kv_num_heads");
  if (r.q_heads <= 0 || r.kv_heads <= 0 || r.q_heads % r.kv_heads != 0) {
    fail("({}) query heads are no multiple of ({}).", r.q_heads, r.kv_heads);
  }
  const std::string rule = c.text("update_rule", "gated_delta");
  r.decays = rule == "gated" || rule == "gated_delta";
  r.corrects = rule == "delta" || rule == "gated_delta";
  if (!r.decays && !r.corrects && rule != "linear") fail("The rule ({}) is unknown.", rule);
  if (r.decays != c.has(4) || r.corrects != c.has(5)) {
    fail("Decay or beta do not fit the rule ({}).", rule);
  }
  c.ignore({"chunk_size"});
  return r;
}

void linear_attention(NodeContext& c) {
  const Value q = c.in(0), k = c.in(1), v = c.in(2);
  if (q.rank() != 3 || k.rank() != 3 || v.rank() != 3) {
    fail("It takes [B,T,H*D], not {}.", q.type().text());
  }
  Recurrence r = recurrence_of(c);
  const auto key_size = static_dim(k, 2) / r.kv_heads, value_size = static_dim(v, 2) / r.kv_heads;
  const double scale = c.real("scale", 0);
  r.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(key_size));
  const Shape state_shape{q.shape()[0], r.kv_heads, key_size, value_size};
  const DType state_dtype = c.has(3) ? c.in(3).dtype() : q.dtype();
  Values operands;
  operands.push_back(c.has(3) ? cast(c.in(3), f32) : broadcast(c.scalar(f32, 0), state_shape));
  operands.push_back(steps_of(q, r.q_heads));
  operands.push_back(steps_of(k, r.kv_heads));
  operands.push_back(steps_of(v, r.kv_heads));
  if (r.decays) operands.push_back(steps_of(c.in(4), r.kv_heads));
  if (r.corrects) operands.push_back(steps_of(c.in(5), static_dim(c.in(5), 2)));
  std::vector<Type> types;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    types.push_back(operands[i].type());
    if (i > 0) types.back().shape.erase(types.back().shape.begin());
  }
  op::Scan scan;
  scan.body = step_graph(r, types);
  scan.length = static_dim(q, 1);
  scan.carries = 1;
  scan.scanned = static_cast<std::int64_t>(operands.size()) - 1;
  const Values results = c.add_all(scan, operands);
  const Value rows = transpose(results[1], {1, 0, 2, 3});
  c.set(0, cast(reshape(rows, {q.shape()[0], q.shape()[1], r.q_heads * value_size}), q.dtype()));
  c.set(1, cast(results[0], state_dtype));
}

// ---- FlexAttention ------------------------------------------------------------------------------

Value modified(NodeContext& c, const char* name, const Value& x) {
  const GraphProto* graph = c.subgraph(name);
  if (!graph) return x;
  const Values results = c.importer().inline_graph(c.frame(), *graph, {x});
  if (results.size() != 1) fail("The graph ({}) gives ({}) results.", name, results.size());
  return results[0];
}

Value repeated_heads(const Value& x, const Dim& heads) {
  const Shape& s = x.shape();
  if (s[1] == heads) return x;
  if (s[1] == Dim(0)) fail("There are no heads.");
  const Dim group = floor_div(heads, s[1]);
  const Value apart = reshape(x, {s[0], s[1], 1, s[2], s[3]});
  return reshape(broadcast(apart, {s[0], s[1], group, s[2], s[3]}), {s[0], heads, s[2], s[3]});
}

void flex_attention(NodeContext& c) {
  const Value q = c.in(0), k = c.in(1), v = c.in(2);
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    fail("It takes [B,H,S,D], not {}.", q.type().text());
  }
  const double scale = c.real("scale", 1 / std::sqrt(static_cast<double>(static_dim(q, 3))));
  const DType precise = c.element_type("softmax_precision", q.dtype() == f64 ? f64 : f32);
  if (!c.has_attribute("score_mod") && !c.has_attribute("prob_mod")) {
    c.set(attention(q, k, v, {}, {.scale = scale}));
    return;
  }
  const auto wide = [&](const Value& x) { return x.dtype() == precise ? x : cast(x, precise); };
  const Value keys = transpose(repeated_heads(wide(k), q.shape()[1]), {0, 1, 3, 2});
  const Value scores = matmul(wide(q), keys) * c.scalar(precise, scale);
  const Value odds = modified(c, "prob_mod", softmax(modified(c, "score_mod", scores)));
  const Value y = matmul(odds, repeated_heads(wide(v), q.shape()[1]));
  c.set(y.dtype() == q.dtype() ? y : cast(y, q.dtype()));
}

constexpr OpEntry entries[] = {{"LinearAttention", 1, linear_attention},
                               {"FlexAttention", 1, flex_attention, "ai.onnx.preview"}};

}  // namespace

OpEntries linear_attention_entries() { return entries; }

}  // namespace rlx::onnx
