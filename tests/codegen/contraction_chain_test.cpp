// Chains of two contractions: attention's scores, their epilogues, and the product with the values.
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

/// softmax(q k^T * scale + mask) v over [batch, heads, rows, width], all views of [batch, rows,
/// heads, width]; keys and values of `shared` heads each serve heads / shared of them.
struct Attention {
  std::int64_t batch = 1, heads = 1, shared = 1, queries = 1, keys = 1, width = 16, values = 16;
  DType dtype = f32;
  std::int64_t gap = 0;  ///< elements behind each local row
  bool factors = false;  ///< one over the sum of a row meets the results instead of the rows
  bool rounded = false;  ///< with factors: rows are kept as bf16
  double far = 0;        ///< the mask counts so many times, and so much is taken off everywhere
};

ScalarId add_softmax(loop::Nest& rows, std::int32_t buffer, std::vector<std::int64_t> strides) {
  rows.accesses.push_back({buffer, 0, strides, {}, {}, 0});
  const auto reduce = [&](ReduceKind kind, ScalarId x) {
    return add_node(rows.nodes, {.op = ScalarOp::reduce, .a = x, .reduce_kind = kind});
  };
  const ScalarId x = add_node(rows.nodes, {.op = ScalarOp::load, .index = 0});
  const ScalarId max = reduce(ReduceKind::max, x);
  const ScalarId difference = add_node(rows.nodes, {.op = ScalarOp::sub, .a = x, .b = max});
  const ScalarId power = add_node(rows.nodes, {.op = ScalarOp::exp, .a = difference});
  const ScalarId sum = reduce(ReduceKind::sum, power);
  const ScalarId share = add_node(rows.nodes, {.op = ScalarOp::div, .a = power, .b = sum});
  rows.stores.push_back({{buffer, 0, std::move(strides), {}, {}, 0}, share});
  return share;
}

loop::Kernel attention(const Attention& a) {
  const std::int64_t group = a.heads / a.shared, row = a.keys + a.gap;
  loop::Kernel kernel;
  kernel.buffers = {{a.dtype, a.batch * a.queries * a.heads * a.width, false},
                    {a.dtype, a.batch * a.keys * a.shared * a.width, false},
                    {a.dtype, a.batch * a.keys * a.shared * a.values, false},
                    {f32, a.batch * a.keys, false},
                    {f32, a.batch * a.heads * a.queries * row, true, true},
                    {f32, a.batch * a.heads * a.queries * a.values, true}};
  loop::Chain chain;
  loop::Contraction &first = chain.first, &second = chain.second;
  const std::int64_t q_row = a.heads * a.width, k_row = a.shared * a.width,
                     v_row = a.shared * a.values, out_row = a.heads * a.values;
  first.batch_extents = second.batch_extents = {a.batch, a.shared};
  first.m_extents = second.m_extents = {group, a.queries};
  first.a_buffer = 0;
  first.a_batch_strides = {a.queries * q_row, group * a.width};
  first.a_m_strides = {a.width, q_row};
  first.k_extents = {a.width};
  first.a_k_strides = first.b_k_strides = {1};
  first.b_buffer = 1;
  first.b_batch_strides = {a.keys * k_row, a.width};
  first.n = a.keys;
  first.b_n_stride = k_row;
  const std::vector<std::int64_t> scores{a.heads * a.queries * row, group * a.queries * row,
                                         a.queries * row, row, 1};
  first.accesses = {{3, 0, {a.keys, 0, 0, 0, 1}, {}, {}, 0}};
  const ScalarId sum = add_node(first.nodes, {.op = ScalarOp::accumulator});
  const ScalarId scale = add_node(first.nodes, {.op = ScalarOp::constant, .value = 0.3});
  const ScalarId scaled = add_node(first.nodes, {.op = ScalarOp::mul, .a = sum, .b = scale});
  const ScalarId mask = add_node(first.nodes, {.op = ScalarOp::load, .index = 0});
  ScalarId masked = add_node(first.nodes, {.op = ScalarOp::add, .a = scaled, .b = mask});
  if (a.far > 0) {
    const ScalarId far = add_node(first.nodes, {.op = ScalarOp::constant, .value = a.far});
    const ScalarId wide = add_node(first.nodes, {.op = ScalarOp::mul, .a = mask, .b = far});
    const ScalarId sum_of_both =
        add_node(first.nodes, {.op = ScalarOp::add, .a = scaled, .b = wide});
    masked = add_node(first.nodes, {.op = ScalarOp::sub, .a = sum_of_both, .b = far});
  }
  first.stores = {{{4, 0, scores, {}, {}, 0}, masked}};
  first.row_epilogue.extents = {a.batch, a.shared, group, a.queries, a.keys};
  first.row_epilogue.parallel_dims = 4;
  add_softmax(first.row_epilogue, 4, scores);

  second.a_buffer = 4;
  second.a_batch_strides = {scores[0], scores[1]};
  second.a_m_strides = {scores[2], row};
  second.k_extents = {a.keys};
  second.a_k_strides = {1};
  second.b_buffer = 2;
  second.b_batch_strides = {a.keys * v_row, a.values};
  second.b_k_strides = {v_row};
  second.n = a.values;
  second.stores = {
      {{5, 0, {a.queries * out_row, group * a.values, a.values, out_row, 1}, {}, {}, 0},
       add_node(second.nodes, {.op = ScalarOp::accumulator})}};
  if (a.factors) {
    kernel.buffers.push_back({f32, a.batch * a.heads * a.queries, true, true});
    const std::vector<std::int64_t> strides{a.heads * a.queries, group * a.queries, a.queries, 1,
                                            0};
    loop::Nest& rows = first.row_epilogue;
    const ScalarId total = rows.nodes.back().b, power = rows.nodes.back().a;
    rows.nodes.back() = {.op = ScalarOp::reciprocal, .a = total};
    rows.stores = {{rows.stores[0].access, power},
                   {{6, 0, strides, {}, {}, 0}, static_cast<ScalarId>(rows.nodes.size() - 1)}};
    second.accesses = {{6, 0, strides, {}, {}, 0}};
    const ScalarId factor = add_node(second.nodes, {.op = ScalarOp::load, .index = 0});
    second.stores[0].node =
        add_node(second.nodes, {.op = ScalarOp::mul, .a = second.stores[0].node, .b = factor});
    if (a.rounded) {
      kernel.buffers.push_back({bf16, a.batch * a.heads * a.queries * row, true, true});
      second.a_buffer = rows.stores[0].access.buffer = 7;
      rows.stores[0].node = add_node(rows.nodes, {.op = ScalarOp::cast, .dtype = bf16, .a = power});
    }
  }
  kernel.body = std::move(chain);
  return kernel;
}

TEST(ContractionChain, heads_of_every_shape) {
  for (const Attention& shape : {
           Attention{.heads = 3, .queries = 24, .keys = 64, .width = 32, .values = 32},
           Attention{.batch = 2, .heads = 2, .shared = 2, .queries = 7, .keys = 70, .width = 20},
           Attention{.batch = 2, .heads = 6, .shared = 2, .queries = 1, .keys = 33, .values = 24},
           Attention{.heads = 4, .queries = 61, .keys = 130, .width = 8, .values = 70, .gap = 14},
           Attention{.queries = 1, .keys = 1, .width = 5, .values = 3},
           Attention{.queries = 131, .keys = 257, .width = 64, .values = 64, .gap = 15},
           Attention{.heads = 5, .queries = 100, .keys = 150, .width = 9, .values = 41},
       }) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " heads, " << shape.queries << " queries, "
                                      << shape.keys << " keys");
    expect_as_interpreted(attention(shape), 2e-5);
  }
}

/// Rows with a gap end in whole registers, which other code serves than those without.
TEST(ContractionChain, factors_of_rows_meet_the_results) {
  for (const Attention& shape : {
           Attention{.heads = 3, .queries = 49, .keys = 49, .width = 32, .values = 32, .gap = 31},
           Attention{.heads = 3, .queries = 9, .keys = 49, .width = 32, .values = 32},
           Attention{.batch = 2, .heads = 6, .shared = 2, .queries = 1, .keys = 33, .gap = 15},
           Attention{.heads = 2, .queries = 30, .keys = 196, .values = 32, .gap = 12},
           Attention{.queries = 7, .keys = 1, .width = 5, .values = 3, .gap = 15},
           Attention{.queries = 7, .keys = 64, .values = 48, .gap = 16, .far = 1e4},
           Attention{.queries = 7, .keys = 70, .values = 17, .gap = 10, .far = 3e38},
       }) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " heads, " << shape.queries << " queries, "
                                      << shape.keys << " keys, far " << shape.far);
    Attention with = shape;
    with.factors = true;
    expect_as_interpreted(attention(with), 2e-5);
  }
}

TEST(ContractionChain, rows_are_kept_as_bf16) {
  for (Attention shape : {
           Attention{.heads = 3, .queries = 49, .keys = 64, .width = 32, .values = 32},
           Attention{.heads = 3, .queries = 128, .keys = 128, .width = 32, .values = 32, .gap = 32},
           Attention{.heads = 2, .queries = 37, .keys = 96, .width = 64, .values = 40, .gap = 32},
           Attention{.batch = 2, .heads = 6, .shared = 2, .queries = 1, .keys = 33, .gap = 15},
           Attention{.heads = 2, .queries = 50, .keys = 70, .values = 17, .gap = 10, .far = 1e4},
       }) {
    SCOPED_TRACE(::testing::Message() << shape.queries << " queries, " << shape.keys << " keys");
    shape.factors = shape.rounded = true;
    for (const DType dtype : {f32, bf16}) {
      shape.dtype = dtype;
      expect_as_interpreted(attention(shape), 1e-2);
    }
  }
}

TEST(ContractionChain, rows_of_one_very_small_number_are_even) {
  // Scores vanish beside what is taken off: every key counts the same.
  loop::Kernel kernel =
      attention({.queries = 5, .keys = 40, .gap = 8, .factors = true, .far = 3e38});
  auto& nodes = std::get<loop::Chain>(kernel.body).first.nodes;
  for (ScalarNode& node : nodes) {
    if (node.op == ScalarOp::load) node = {.op = ScalarOp::constant, .value = 0};
  }
  std::get<loop::Chain>(kernel.body).first.accesses.clear();
  expect_as_interpreted(kernel, 2e-5);
}

TEST(ContractionChain, large_matrices_are_added_to_scores) {
  for (const std::int64_t shared : {1, 4}) {
    const Attention shape{
        .heads = 4, .shared = shared, .queries = 150, .keys = 130, .gap = 14, .factors = true};
    loop::Kernel kernel = attention(shape);
    const std::int64_t head = shape.queries * shape.keys;
    kernel.buffers[3].elements = shape.heads * head;
    std::get<loop::Chain>(kernel.body).first.accesses[0].strides = {0, shape.heads / shared * head,
                                                                    head, shape.keys, 1};
    expect_as_interpreted(kernel, 2e-5);
  }
}

TEST(ContractionChain, narrow_operands_are_widened_in_panels) {
  for (const DType dtype : {f16, bf16}) {
    expect_as_interpreted(
        attention({.batch = 2, .heads = 4, .shared = 2, .queries = 19, .keys = 50, .dtype = dtype}),
        2e-5);
  }
}

TEST(ContractionChain, panels_beyond_the_scratch_are_made_one_at_a_time) {
  expect_as_interpreted(attention({.queries = 26, .keys = 1100, .width = 80, .values = 16}), 2e-5);
}

TEST(ContractionChain, without_a_row_epilogue) {
  loop::Kernel kernel = attention({.heads = 2, .queries = 50, .keys = 40});
  std::get<loop::Chain>(kernel.body).first.row_epilogue = {};
  expect_as_interpreted(kernel, 2e-5);
}

TEST(ContractionChain, its_text_names_both_stages_and_the_local_rows) {
  const std::string text = loop::to_text(attention({.queries = 2, .keys = 3}));
  EXPECT_NE(text.find("chain\ncontraction"), std::string::npos);
  EXPECT_NE(text.find("b4 f32[6] written local"), std::string::npos);
}

}  // namespace
}  // namespace rlx::codegen::testing
