// Sums of bytes against the reference's cast and reduction, and weights made of them.
#include "plan/byte_sums.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "graph/op_info.hpp"
#include "plan/weight_jobs.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

Tensor bytes_of(DType dtype, const Dims& dims, unsigned seed) {
  std::mt19937 random(seed);
  Tensor tensor(dtype, dims);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.mutable_data()[i] = static_cast<std::byte>(random());
  return tensor;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// The sum by the reference.
Tensor reduced(const Tensor& bytes, const Axes& axes, bool keep_dims) {
  const Tensor wide = evaluate(op::Cast{i32}, std::span(&bytes, 1)).value()[0];
  return evaluate(op::Reduce{Reduction::sum, axes, keep_dims}, std::span(&wide, 1)).value()[0];
}

void expect_as_reduced(const Tensor& bytes, const Axes& axes, bool keep_dims, bool straight) {
  Graph graph;
  const Value w = graph.param("w", bytes.dtype(), bytes.dims());
  const Value total = sum(cast(w, i32), axes, keep_dims);
  EXPECT_EQ(byte_sum(graph, total.id()).has_value(), straight);
  const WeightValues::Params params{{"w", bytes}};
  WeightValues values(graph, params);
  EXPECT_TRUE(same(values.take(total.id()).value().value(), reduced(bytes, axes, keep_dims)));
}

TEST(ByteSums, equal_the_reduction_of_the_cast) {
  struct Case {
    Dims dims;
    Axes axes;
    bool straight = true;
  };
  const Case cases[] = {{{7, 5}, {-2}},
                        {{1, 1}, {0}},
                        {{129, 513}, {-2}},
                        {{128, 512}, {0}},
                        {{300, 1030}, {-2}},
                        {{6, 3, 5, 3}, {1, 2, 3}},
                        {{6, 131}, {-1}},
                        {{3, 130, 17}, {1}},
                        {{4, 9, 3}, {0, 1}},
                        {{5, 6, 7}, {-1, 0, 1}},
                        {{0, 5}, {0}, false},
                        {{5, 0}, {0}, false},
                        {{3, 4, 5}, {0, 2}, false}};
  unsigned seed = 1;
  for (const Case& each : cases) {
    for (const DType dtype : {i8, u8}) {
      SCOPED_TRACE(fmt::format("{} [{}] over [{}]", name_of(dtype), fmt::join(each.dims, ","),
                               fmt::join(each.axes, ",")));
      ++seed;
      expect_as_reduced(bytes_of(dtype, each.dims, seed), each.axes, seed % 4 < 2, each.straight);
    }
  }
}

TEST(ByteSums, the_largest_bytes_fit) {
  for (const DType dtype : {i8, u8}) {
    Tensor bytes(dtype, {1000, 3});
    std::memset(bytes.mutable_data(), dtype == i8 ? 0x80 : 0xff, bytes.bytes());
    expect_as_reduced(bytes, {0}, false, true);
    expect_as_reduced(bytes, {1}, true, true);
  }
}

TEST(ByteSums, nothing_else_is_one) {
  Graph graph;
  const Value bytes = graph.param("b", i8, {4, 6}), words = graph.param("w", i16, {4, 6});
  const Value few = graph.param("f", i4, {4, 6});
  const auto is_sum = [&](const Value& x) { return byte_sum(graph, x.id()).has_value(); };
  EXPECT_TRUE(is_sum(sum(cast(bytes, i32), {0})));
  EXPECT_FALSE(is_sum(sum(cast(bytes, i64), {0})));
  EXPECT_FALSE(is_sum(sum(cast(words, i32), {0})));
  EXPECT_FALSE(is_sum(sum(cast(few, i32), {0})));
  EXPECT_FALSE(is_sum(sum(bytes, {0})));
  EXPECT_FALSE(is_sum(reduce(cast(bytes, i32), Reduction::max, {0})));
  EXPECT_FALSE(is_sum(cast(bytes, i32)));
}

TEST(ByteSums, a_cast_that_others_read_is_computed_once) {
  Graph graph;
  const Value w = graph.param("w", i8, {9, 4}), wide = cast(w, i32);
  const Value both = wide * sum(wide, {0}, true);
  const WeightValues::Params params{{"w", bytes_of(i8, {9, 4}, 3)}};
  WeightValues values(graph, params);
  const Tensor got = values.take(both.id()).value().value();
  const Tensor plain = evaluate(op::Cast{i32}, std::span(&params.at("w"), 1)).value()[0];
  const Tensor operands[] = {plain, reduced(params.at("w"), {0}, true)};
  EXPECT_TRUE(same(got, evaluate(op::Mul{}, operands).value()[0]));
}

TEST(ByteSums, a_missing_param_is_named) {
  Graph graph;
  const Value total = sum(cast(graph.param("w", i8, {9, 4}), i32), {0});
  const WeightValues::Params none;
  WeightValues values(graph, none);
  EXPECT_FALSE(values.take(total.id()).value().has_value());
  EXPECT_EQ(values.missing, "w");
}

// One source, packed, copied, summed, and a value that is kept whole and copied, too.
TEST(WeightJobs, make_all_of_one_source_on_any_count_of_threads) {
  constexpr std::int64_t rows = 130, columns = 70;
  Graph graph;
  const Value w = graph.param("w", i8, {rows, columns}), total = sum(cast(w, i32), {0}, true);
  const WeightValues::Params params{{"w", bytes_of(i8, {rows, columns}, 5)}};
  const Tensor& source = params.at("w");
  const WeightValues common(graph, params);
  WeightPlan packed{.view = View::dense(w.id(), {rows, columns}), .dtype = i8, .packed = true};
  packed.k_extents = {rows}, packed.k_strides = {columns}, packed.n = columns;
  packed.layout = {columns, rows, 64, i8, 4, rows};
  packed.bytes = static_cast<std::int64_t>(codegen::packed_bytes(packed.layout, 1));
  const WeightPlan copied{
      .view = View::dense(w.id(), {rows, columns}), .dtype = i8, .bytes = rows * columns};
  const WeightPlan sums{
      .view = View::dense(total.id(), {1, columns}), .dtype = i32, .bytes = columns * 4};
  const Tensor wanted_sums = reduced(source, {0}, true);
  std::vector<std::byte> wanted(static_cast<std::size_t>(packed.bytes));
  pack_panels(packed, source, 0, 0, packed.layout.panels(), wanted.data());
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<std::byte> panels(wanted.size(), std::byte{1}), copy(source.bytes());
    std::vector<std::byte> copied_sums(wanted_sums.bytes());
    std::shared_ptr<const std::byte> whole;
    WeightJobs jobs(params, {});
    jobs.derive_whole(sums, graph, common, std::span(&source, 1), &whole);
    jobs.derive(sums, graph, common, std::span(&source, 1), copied_sums.data());
    jobs.add(packed, source, panels.data());
    jobs.add(copied, source, copy.data());
    ASSERT_TRUE(jobs.run(pool).ok());
    EXPECT_TRUE(panels == wanted);
    EXPECT_EQ(std::memcmp(copy.data(), source.data(), copy.size()), 0);
    ASSERT_NE(whole, nullptr);
    EXPECT_EQ(std::memcmp(whole.get(), wanted_sums.data(), wanted_sums.bytes()), 0);
    EXPECT_EQ(std::memcmp(copied_sums.data(), wanted_sums.data(), wanted_sums.bytes()), 0);
  }
}

/// A product of bytes whose x has a zero point, with the weight in the graph or given.
Graph product_of_bytes(const Tensor& bytes, bool given) {
  Graph graph;
  const Value x = graph.input("x", u8, {3, 45}), zero = graph.input("zero", u8, {});
  const Value w = given ? graph.input("w", bytes.dtype(), {45, 37})
                        : graph.param("w", bytes.dtype(), {45, 37}, bytes);
  graph.output("y", graph.add_one(op::IntegerMatmul{}, {x, w, zero}));
  return graph;
}

TEST(ByteSums, a_weight_gives_the_products_of_an_input) {
  Tensor zero(u8, {});
  zero.mutable_data()[0] = std::byte{131};
  const Tensor x = bytes_of(u8, {3, 45}, 6);
  for (const DType dtype : {i8, u8}) {
    const Tensor w = bytes_of(dtype, {45, 37}, 7);
    Session session(Device::cpu);
    auto prepared = session.compile(product_of_bytes(w, false)).value();
    auto given = session.compile(product_of_bytes(w, true)).value();
    const auto got = prepared.run({{"x", x}, {"zero", zero}}).value(),
               want = given.run({{"x", x}, {"zero", zero}, {"w", w}}).value();
    EXPECT_TRUE(same(got["y"], want["y"]));
  }
}

}  // namespace
}  // namespace rlx::plan
