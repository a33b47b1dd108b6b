// One over the sum of a softmax leaves the rows of a chain for the results of its second product.
#include "plan/row_factor.hpp"

#include <gtest/gtest.h>

#include <random>

namespace rlx::plan {
namespace {

constexpr std::int64_t heads = 2, queries = 3, keys = 5, width = 4, values = 6;

/// softmax(a b) c + 1, with `shares` as the last node of the rows.
loop::Kernel chain_kernel(ScalarNode shares) {
  loop::Kernel kernel;
  kernel.buffers = {{DType::f32, heads * queries * width},
                    {DType::f32, heads * width * keys},
                    {DType::f32, heads * queries * keys, true, true},
                    {DType::f32, heads * keys * values},
                    {DType::f32, heads * queries * values, true},
                    {DType::f32, heads * queries, true, true}};
  loop::Chain chain;
  loop::Contraction &first = chain.first, &second = chain.second;
  first.batch_extents = second.batch_extents = {heads};
  first.m_extents = second.m_extents = {queries};
  first.a_batch_strides = {queries * width};
  first.a_m_strides = {width};
  first.k_extents = {width};
  first.a_k_strides = {1};
  first.b_buffer = 1;
  first.b_batch_strides = {width * keys};
  first.b_k_strides = {keys};
  first.n = keys;
  const loop::Access rows{2, 0, {queries * keys, keys, 1}, {}, {}, 0};
  first.nodes = {{.op = ScalarOp::accumulator}};
  first.stores = {{rows, 0}};
  loop::Nest& nest = first.row_epilogue;
  nest.extents = {heads, queries, keys};
  nest.parallel_dims = 2;
  nest.accesses = {rows};
  nest.nodes = {{.op = ScalarOp::load, .index = 0},
                {.op = ScalarOp::reduce, .a = 0, .reduce_kind = ReduceKind::max},
                {.op = ScalarOp::sub, .a = 0, .b = 1},
                {.op = ScalarOp::exp, .a = 2},
                {.op = ScalarOp::reduce, .a = 3, .reduce_kind = ReduceKind::sum},
                {.op = ScalarOp::reciprocal, .a = 4},
                shares};
  nest.stores = {{rows, 6}};
  second.a_buffer = 2;
  second.a_batch_strides = {queries * keys};
  second.a_m_strides = {keys};
  second.k_extents = {keys};
  second.a_k_strides = {1};
  second.b_buffer = 3;
  second.b_batch_strides = {keys * values};
  second.b_k_strides = {values};
  second.n = values;
  second.nodes = {{.op = ScalarOp::constant, .value = 1},
                  {.op = ScalarOp::accumulator},
                  {.op = ScalarOp::add, .a = 1, .b = 0}};
  second.stores = {{{4, 0, {queries * values, values, 1}, {}, {}, 0}, 2}};
  kernel.body = std::move(chain);
  return kernel;
}

std::vector<float> results(const loop::Kernel& kernel) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::vector<float>> buffers;
  std::vector<void*> pointers;
  for (const loop::Buffer& buffer : kernel.buffers) {
    std::vector<float> numbers(static_cast<std::size_t>(buffer.elements));
    for (float& number : numbers) number = buffer.written ? 0 : uniform(random);
    buffers.push_back(std::move(numbers));
  }
  for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
  loop::interpret(kernel, pointers.data());
  return buffers[4];
}

TEST(RowFactor, is_taken_out_and_changes_no_result) {
  for (const auto& [a, b] : {std::pair{3, 5}, std::pair{5, 3}}) {
    loop::Kernel kernel = chain_kernel({.op = ScalarOp::mul, .a = a, .b = b});
    const std::vector<float> wanted = results(kernel);
    auto& chain = std::get<loop::Chain>(kernel.body);
    const auto found = find_row_factor(chain, false);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->powers, 3);
    EXPECT_EQ(found->factor, 5);
    take_out_row_factor(chain, *found, 5);
    EXPECT_EQ(chain.first.row_epilogue.stores.size(), 2U);
    EXPECT_EQ(chain.first.row_epilogue.nodes.size(), 6U);
    const std::vector<float> got = results(kernel);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5F) << i;
  }
}

TEST(RowFactor, is_taken_out_of_rows_that_are_rounded) {
  loop::Kernel kernel = chain_kernel({.op = ScalarOp::mul, .a = 3, .b = 5});
  auto& chain = std::get<loop::Chain>(kernel.body);
  loop::Nest& rows = chain.first.row_epilogue;
  rows.nodes.push_back({.op = ScalarOp::cast, .dtype = DType::bf16, .a = 6});
  rows.stores[0].node = 7;
  const std::vector<float> wanted = results(kernel);
  const auto found = find_row_factor(chain, false);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->rounded);
  EXPECT_FALSE(find_row_factor(chain, true));
  take_out_row_factor(chain, *found, 5);
  ASSERT_EQ(rows.nodes.size(), 7U);
  EXPECT_EQ(rows.stores[0].node, 6);
  EXPECT_EQ(rows.nodes[6].op, ScalarOp::cast);
  EXPECT_EQ(rows.nodes[6].a, 3);
  const std::vector<float> got = results(kernel);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-2F) << i;
}

TEST(RowFactor, stays_where_rows_are_no_powers_or_differ_in_more_than_a_factor) {
  const ScalarNode shares{.op = ScalarOp::mul, .a = 3, .b = 5};
  loop::Kernel scores = chain_kernel({.op = ScalarOp::mul, .a = 0, .b = 5});
  EXPECT_FALSE(find_row_factor(std::get<loop::Chain>(scores.body), false));
  loop::Kernel sums = chain_kernel({.op = ScalarOp::add, .a = 3, .b = 5});
  EXPECT_FALSE(find_row_factor(std::get<loop::Chain>(sums.body), false));
  loop::Kernel large = chain_kernel(shares);  // powers of what no maximum was taken off from
  std::get<loop::Chain>(large.body).first.row_epilogue.nodes[1].reduce_kind = ReduceKind::min;
  EXPECT_FALSE(find_row_factor(std::get<loop::Chain>(large.body), false));
  loop::Kernel kept = chain_kernel(shares);  // somebody else reads the shares
  auto& stores = std::get<loop::Chain>(kept.body).first.row_epilogue.stores;
  stores.push_back(stores[0]);
  EXPECT_FALSE(find_row_factor(std::get<loop::Chain>(kept.body), false));
}

}  // namespace
}  // namespace rlx::plan
