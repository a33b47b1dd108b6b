// Attention and rotary embeddings against NumPy, every mask, and what they refuse.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

const Tensor q = pattern({2, 4, 3, 4}, 1), k = pattern({2, 2, 5, 4}, 2),
             v = pattern({2, 2, 5, 3}, 3);

Tensor transposed(const Tensor& x, const Axes& perm) {
  Dims dims;
  for (const std::int64_t axis : perm) dims.push_back(x.dims()[axis]);
  Tensor result(x.dtype(), dims);
  store_all<double>({x.dtype(), result.dims(), result.mutable_data()},
                    permuted<double>(load_all<double>(x), x.dims(), perm));
  return result;
}

TEST(Attention, shares_keys_among_groups_of_queries) {
  expect_answer(results_of(op::Attention{}, {q, k, v})[0], numpy::attention);
}

TEST(Attention, is_causal_up_to_the_last_key_unless_told_otherwise) {
  expect_answer(results_of(op::Attention{.causal = true}, {q, k, v})[0], numpy::attention_causal);
}

TEST(Attention, fully_masked_rows_are_zeros) {
  const op::Attention attention{.scale = 0.25, .softcap = 2, .causal = true, .causal_offset = -1};
  const Tensor result = results_of(attention, {q, k, v})[0];
  expect_answer(result, numpy::attention_offset);
  EXPECT_EQ(result.as<float>()[0], 0);
}

TEST(Attention, slides_a_window_behind_each_query) {
  expect_answer(results_of(op::Attention{.window = 1}, {q, k, v})[0], numpy::attention_window);
}

TEST(Attention, takes_additive_and_bool_masks) {
  expect_answer(results_of(op::Attention{}, {q, k, v, pattern({4, 3, 5}, 4)})[0],
                numpy::attention_bias);
  Tensor visible(boolean, {2, 1, 1, 5});
  const Tensor noise = pattern({2, 1, 1, 5}, 5);
  for (int i = 0; i < 10; ++i) visible.mutable_data()[i] = std::byte(noise.as<float>()[i] > 0);
  expect_answer(results_of(op::Attention{.causal = true}, {q, k, v, visible})[0],
                numpy::attention_bool);
}

TEST(Attention, bshd_is_the_same_with_axes_swapped) {
  const Axes swap{0, 2, 1, 3};
  const Tensor result =
      results_of(op::Attention{.causal = true, .bshd = true},
                 {transposed(q, swap), transposed(k, swap), transposed(v, swap)})[0];
  expect_answer(transposed(result, swap), numpy::attention_causal);
}

TEST(Attention, costs_four_flops_for_each_score_and_width) {
  const Type query{f32, {2, 4, 3, 8}}, key{f32, {2, 2, 5, 8}};
  const std::vector<const Type*> inputs{&query, &key, &key};
  const std::vector<Type> results{query};
  const Op attention = op::Attention{};
  EXPECT_EQ(attention.info().cost(attention.attributes(), inputs, results).flops,
            4.0 * 2 * 4 * 3 * 5 * 8);
}

TEST(Attention, the_body_takes_symbolic_sequences) {
  Graph graph;
  const Value sym_q = graph.input("q", f32, {"b", 4, "s", 8}),
              sym_k = graph.input("k", f32, {"b", 2, "t", 8});
  const Op attention = op::Attention{.causal = true, .window = 3};
  const std::vector<Value> inputs{sym_q, sym_k, sym_k};
  EXPECT_EQ(attention.info().body(attention.attributes(), graph, inputs)[0].type().text(),
            "f32[b,4,s,8]");
}

TEST(Attention, refuses_with_sentences) {
  EXPECT_EQ(refusal_of(op::Attention{}, {Tensor(f32, {2, 3, 3, 4}), k, v}),
            "The query heads (3) of attention are no multiple of its key heads (2).");
  EXPECT_EQ(
      refusal_of(op::Attention{}, {q, k, Tensor(f32, {2, 2, 6, 3})}),
      "The operands of attention do not fit: q f32[2,4,3,4], k f32[2,2,5,4], v f32[2,2,6,3].");
  EXPECT_EQ(refusal_of(op::Attention{}, {q, k, v, Tensor(f32, {3, 5, 5})}),
            "The mask f32[3,5,5] of attention does not broadcast to f32[2,4,3,5].");
  EXPECT_EQ(refusal_of(op::Attention{}, {q, k, v, Tensor(i32, {3, 5})}),
            "A mask of attention is bool or f32, not i32[3,5].");
  EXPECT_EQ(refusal_of(op::Attention{}, {Tensor(f32, {4, 3, 4}), k, v}),
            "The op attention takes [B, H, S, D] operands, not f32[4,3,4].");
}

Tensor table(double (*function)(double)) {
  std::vector<double> values;
  for (int i = 0; i < 8; ++i) values.push_back(function(i / 3.0));
  Tensor tensor(f32, {1, 4, 2});
  store_all<double>({f32, tensor.dims(), tensor.mutable_data()}, values);
  return tensor;
}

TEST(Rope, turns_halves_or_neighbours_and_keeps_the_rest) {
  const Tensor x = pattern({2, 3, 4, 6}, 1), cosines = table(std::cos), sines = table(std::sin);
  expect_answer(results_of(op::Rope{.rotary = 4}, {x, cosines, sines})[0], numpy::rope_halves);
  expect_answer(results_of(op::Rope{.rotary = 4, .interleaved = true}, {x, cosines, sines})[0],
                numpy::rope_neighbours);
  const Tensor swapped = transposed(x, {0, 2, 1, 3});
  expect_answer(
      transposed(results_of(op::Rope{.rotary = 4, .bshd = true}, {swapped, cosines, sines})[0],
                 {0, 2, 1, 3}),
      numpy::rope_halves);
}

TEST(Rope, refuses_with_sentences) {
  const Tensor x(f32, {2, 3, 4, 6}), half(f32, {1, 4, 3});
  EXPECT_EQ(refusal_of(op::Rope{.rotary = 8}, {x, half, half}),
            "The rotary width (8) of rope is odd or wider than f32[2,3,4,6].");
  EXPECT_EQ(refusal_of(op::Rope{.rotary = 4}, {x, half, half}),
            "The table f32[1,4,3] of rope is not [B or 1, S, (2)] for f32[2,3,4,6].");
}

}  // namespace
}  // namespace rlx
