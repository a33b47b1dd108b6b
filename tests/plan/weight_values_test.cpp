// Values that weights are computed from: who owns them, and how long they live.
#include "plan/weight_values.hpp"

#include <gtest/gtest.h>

#include "graph/winograd.hpp"
#include "plan/weight_pieces.hpp"
#include "plan/weight_slices.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

Tensor numbers(std::initializer_list<float> values) {
  Tensor tensor(f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(tensor.mutable_data()));
  return tensor;
}

float first(const Tensor& tensor) { return *reinterpret_cast<const float*>(tensor.data()); }

TEST(WeightValues, several_readers_make_a_value_common) {
  Graph graph;
  const Value a = graph.param("a", f32, {2}), shared = a + a, left = shared * a,
              right = exp(shared), deep = left + a;
  Owners owners(graph);
  owners.add(deep.id());
  owners.add(right.id());
  EXPECT_TRUE(owners.is_common(a.id()));
  EXPECT_TRUE(owners.is_common(shared.id()));
  EXPECT_FALSE(owners.is_common(left.id()));
  EXPECT_FALSE(owners.is_common(right.id()));
  owners.add_common(deep.id());
  EXPECT_TRUE(owners.is_common(left.id()));
  EXPECT_FALSE(owners.is_common(right.id()));
}

TEST(WeightValues, a_value_taken_reads_the_common_ones) {
  Graph graph;
  const Value a = graph.param("a", f32, {2}), shared = a + a, own = shared * a, top = own + own;
  const WeightValues::Params params{{"a", numbers({3, 4})}};
  WeightValues common(graph, params);
  ASSERT_TRUE(common.value(shared.id()).ok());
  WeightValues values(graph, params, &common);
  const auto taken = values.take(top.id()).value();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(first(*taken), 36);
  EXPECT_EQ(taken->shared_data().use_count(), 1) << "nobody else keeps it";
  // Common values stay; what was taken is computed again.
  EXPECT_EQ(first(common.value(shared.id()).value().value()), 6);
  EXPECT_EQ(first(values.take(top.id()).value().value()), 36);
}

TEST(WeightValues, a_missing_param_is_named) {
  Graph graph;
  const Value a = graph.param("a", f32, {2}), sum = a + a;
  const WeightValues::Params none;
  WeightValues values(graph, none);
  EXPECT_FALSE(values.value(sum.id()).value().has_value());
  EXPECT_EQ(values.missing, "a");
}

/// Filters as Winograd's products read them, by the graph's evaluation.
std::vector<std::byte> packed_whole(const WeightPlan& weight, const Tensor& value) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(weight.bytes));
  std::vector<WeightPiece> pieces;
  add_pieces(weight, value, bytes.data(), pieces);
  for (const WeightPiece& piece : pieces) write_piece(piece);
  return bytes;
}

TEST(WeightSlices, columns_at_a_time_give_the_bytes_of_the_whole) {
  constexpr std::int64_t channels = 300, columns = 83, points = 36;
  Graph graph;
  const Value filters = graph.param("w", f32, {columns, channels, 3, 3});
  const Value base = graph.add_one(op::WinogradFilters{4}, {filters});
  Tensor w(f32, {columns, channels, 3, 3});
  auto* to = reinterpret_cast<float*>(w.mutable_data());
  for (std::int64_t i = 0; i < w.elements(); ++i)
    to[i] = static_cast<float>((i * 2654435761 % 1000) - 500) / 300;
  const WeightValues::Params params{{"w", w}};
  WeightValues values(graph, params);
  const auto value = columnwise(graph, base.id(), values);
  ASSERT_TRUE(value.has_value());
  for (const std::int64_t group : {1, 2}) {
    WeightPlan weight{.view = View::dense(base.id(), {points, channels, columns}),
                      .packed = true,
                      .from = group == 2 ? std::optional(f32) : std::nullopt,
                      .batch_extents = {points},
                      .batch_strides = {channels * columns},
                      .k_extents = {channels},
                      .k_strides = {columns},
                      .n = columns};
    weight.layout = {columns, channels, 16, group == 2 ? DType::bf16 : f32, group, channels};
    weight.bytes = static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, points));
    const auto whole = packed_whole(weight, values.value(base.id()).value().value());
    std::vector<std::byte> sliced(whole.size(), std::byte{1});
    const WeightTarget target{&weight, sliced.data()};
    const std::int64_t step = columns_at_a_time(*value, {&target, 1});
    EXPECT_GE(step, 16);
    EXPECT_LT(step, columns);
    SliceMemory memory;
    memory.reserve(value->bytes(step));
    for (std::int64_t first = 0; first < columns; first += step)
      ASSERT_TRUE(
          pack_columns(*value, first, std::min(columns, first + step), {&target, 1}, memory).ok());
    EXPECT_TRUE(sliced == whole);
    weight.n_stride = columns, weight.k_strides = {1};
    EXPECT_EQ(columns_at_a_time(*value, {&target, 1}), 0) << "columns do not lie side by side";
  }
}

/// Two products read one computed weight, one its own, and one a weight that a map reads, too.
Graph layers(bool given) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 8});
  const Value w = given ? graph.input("w", f32, {8, 8}) : graph.param("w", f32, {8, 8});
  const Value shared = w * w, own = exp(w), both = w + shared;
  graph.output("y", matmul(matmul(x, shared), shared) + matmul(x, own));
  graph.output("z", matmul(x, both) + slice(both, {0, 0}, {4, 8}));
  return graph;
}

Tensor steps(const Dims& dims, int period) {
  Tensor tensor(f32, dims);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    reinterpret_cast<float*>(tensor.mutable_data())[i] = static_cast<float>(i % period) / 8 - 0.25f;
  return tensor;
}

TEST(WeightValues, a_param_gives_what_an_input_gives) {
  const Tensor x = steps({4, 8}, 5), w = steps({8, 8}, 7);
  for (const int threads : {1, 2}) {
    SessionOptions options;
    options.threads = threads;
    Session session(Device::cpu, options);
    auto prepared = session.compile(layers(false)).value();
    auto given = session.compile(layers(true)).value();
    const std::span weights(reinterpret_cast<const float*>(w.data()), 64);
    prepared.set_param("w", weights).value();
    const auto got = prepared.run({{"x", x}}).value(),
               want = given.run({{"x", x}, {"w", w}}).value();
    for (const char* name : {"y", "z"}) {
      for (std::size_t i = 0; i < 32; ++i)
        EXPECT_NEAR(reinterpret_cast<const float*>(got[name].data())[i],
                    reinterpret_cast<const float*>(want[name].data())[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace rlx::plan
