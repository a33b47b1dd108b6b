// Contractions against NumPy and ONNX Runtime, and what they refuse.
#include "ops/numeric.hpp"
#include "ops/numpy_answers.hpp"

namespace rlx {
namespace {

using namespace testing;

const op::DotGeneral rows_by_columns{.a_contract = {1}, .b_contract = {0}};

TEST(DotGeneral, multiplies_stacks_of_matrices) {
  const op::DotGeneral dot{.a_batch = {0}, .b_batch = {0}, .a_contract = {2}, .b_contract = {1}};
  expect_answer(results_of(dot, {pattern({2, 3, 4}, 1), pattern({2, 4, 5}, 2)})[0],
                numpy::batched_matmul);
}

TEST(DotGeneral, takes_batch_and_contracting_axes_anywhere) {
  const op::DotGeneral dot{.a_batch = {-1}, .b_batch = {0}, .a_contract = {0}, .b_contract = {1}};
  expect_answer(results_of(dot, {pattern({3, 4, 2}, 1), pattern({2, 3, 5}, 2)})[0],
                numpy::outer_axes);
}

TEST(DotGeneral, keeps_symbolic_dims) {
  Graph graph;
  const Value a = graph.input("a", f32, {"batch", 4}), b = graph.input("b", f32, {4, 7});
  EXPECT_EQ(graph.add_one(rows_by_columns, {a, b}).type().text(), "f32[batch,7]");
}

TEST(DotGeneral, wraps_integers) {
  const Tensor a = Tensor::of<std::int8_t>({1, 2}, {100, 100}),
               b = Tensor::of<std::int8_t>({2, 1}, {2, 1});
  expect_values(results_of(rows_by_columns, {a, b})[0], {1, 1}, {300 - 256});
}

TEST(DotGeneral, adds_narrow_floats_exactly_and_rounds_once) {
  // 2048 ones: a sum kept in f16 would stop at 2048 only by luck, one kept in bf16 stops at 256.
  Tensor ones(bf16, {1, 2048}), column(bf16, {2048, 1});
  store_all<double>({bf16, ones.dims(), ones.mutable_data()}, std::vector<double>(2048, 1));
  store_all<double>({bf16, column.dims(), column.mutable_data()}, std::vector<double>(2048, 1));
  expect_values(results_of(rows_by_columns, {ones, column})[0], {1, 1}, {2048}, 0);
}

TEST(DotGeneral, an_empty_sum_is_zero) {
  expect_values(results_of(rows_by_columns, {Tensor(f32, {2, 0}), Tensor(f32, {0, 1})})[0], {2, 1},
                {0, 0});
}

TEST(DotGeneral, refuses_with_sentences) {
  const Tensor a(f32, {2, 3}), b(f32, {4, 5});
  EXPECT_EQ(refusal_of(rows_by_columns, {a, b}),
            "The contracting dims of dot_general differ: axis (1) of f32[2,3] against axis (0) of "
            "f32[4,5].");
  EXPECT_EQ(refusal_of(op::DotGeneral{.a_contract = {5}, .b_contract = {0}}, {a, b}),
            "Axis (5) is outside the rank (2) of f32[2,3].");
  EXPECT_EQ(refusal_of(op::DotGeneral{.a_contract = {1}}, {a, b}),
            "The op dot_general has (1) contracting axes of f32[2,3] and (0) of f32[4,5].");
  EXPECT_EQ(refusal_of(op::DotGeneral{.a_contract = {1, 1}, .b_contract = {0, 1}},
                       {a, Tensor(f32, {3, 3})}),
            "Axis (1) of f32[2,3] is named twice in dot_general.");
  EXPECT_EQ(refusal_of(rows_by_columns, {a, Tensor(f64, {3, 5})}),
            "The op dot_general wants equal dtypes and was given f32[2,3] and f64[3,5].");
  EXPECT_EQ(refusal_of(rows_by_columns, {Tensor(boolean, {2, 3}), Tensor(boolean, {3, 2})}),
            "The op dot_general takes numbers or complex numbers, not bool[2,3].");
}

TEST(IntegerMatmul, subtracts_scalar_zero_points) {
  const Tensor a = pattern({2, 3, 4}, 1, u8, 100), b = pattern({4, 5}, 2, i8, 3);
  const Tensor a_zero = Tensor::scalar<std::uint8_t>(97), b_zero = Tensor::scalar<std::int8_t>(4);
  expect_answer(results_of(op::IntegerMatmul{}, {a, b, a_zero, b_zero})[0], numpy::integer_matmul);
}

TEST(IntegerMatmul, subtracts_zero_points_by_row_and_column) {
  const Tensor a = pattern({2, 3, 4}, 1, u8, 100), b = pattern({4, 5}, 2, i8, 3);
  Tensor first_a(u8, {3, 4});
  std::copy(a.data(), a.data() + 12, first_a.mutable_data());
  const auto result = results_of(op::IntegerMatmul{},
                                 {first_a, b, pattern({3}, 3, u8, 97), pattern({5}, 4, i8, 2)});
  expect_answer(result[0], numpy::integer_matmul_by_row);
}

TEST(IntegerMatmul, refuses_with_sentences) {
  const Tensor a(u8, {3, 4}), b(u8, {4, 5});
  EXPECT_EQ(refusal_of(op::IntegerMatmul{}, {a, Tensor(u8, {3, 5})}),
            "The inner dims of integer_matmul differ: u8[3,4] against u8[3,5].");
  EXPECT_EQ(
      refusal_of(op::IntegerMatmul{}, {a, b, Tensor(u8, {4})}),
      "A zero point u8[4] of integer_matmul is neither a scalar nor one for each row of u8[3,4].");
  EXPECT_EQ(refusal_of(op::IntegerMatmul{}, {Tensor(i32, {3, 4}), b}),
            "The op integer_matmul takes i8 or u8, not i32[3,4].");
}

}  // namespace
}  // namespace rlx
