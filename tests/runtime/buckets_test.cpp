// Buckets and active extents: the same results as a program of the exact size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "base/message.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;
using testing::message;

Tensor noise(Dims dims, int seed) {
  Tensor tensor(f32, std::move(dims));
  auto* values = reinterpret_cast<float*>(tensor.mutable_data());
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    values[i] = static_cast<float>((i * 7919 + seed * 104729) % 1009) / 500.0f - 1;
  return tensor;
}

/// Rows stay apart: layer norm, a matmul, softmax over columns.
Graph per_row() {
  Graph graph;
  const Value x = graph.input("x", f32, {2, "rows", 16});
  const Value w = graph.param("w", f32, {16, 24}, noise({16, 24}, 3));
  graph.output("y", softmax(matmul(x, w)));
  graph.output("s", sum(x, {2}));
  return graph;
}

Graph sum_of_rows() {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 4});
  graph.output("y", sum(x, {0}));
  return graph;
}

void expect_same(const Outputs& actual, const Outputs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t k = 0; k < actual.size(); ++k) {
    ASSERT_EQ(actual[k].dims(), expected[k].dims());
    for (std::int64_t i = 0; i < actual[k].elements(); ++i)
      ASSERT_NEAR(actual[k].as<float>()[static_cast<std::size_t>(i)],
                  expected[k].as<float>()[static_cast<std::size_t>(i)], 1e-5);
  }
}

class Buckets : public ::testing::Test {
 protected:
  Outputs exact(const Graph& graph, std::int64_t rows, const Tensor& x) {
    return session.compile(graph, {.dims = {{"rows", rows}}}).value().run({{"x", x}}).value();
  }

  void serve_threads(bool in_background, std::int64_t bytes_limit) {
    BucketOptions options{.symbol = "rows", .largest = 16};
    options.in_background = in_background;
    options.bytes_limit = bytes_limit;
    BucketedCompileCache cache = BucketedCompileCache::make(session, per_row(), options).value();
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    std::vector<std::pair<Tensor, Outputs>> cases;
    for (const std::int64_t rows : {3, 7, 12}) {
      const Tensor x = noise({2, rows, 16}, static_cast<int>(rows));
      cases.emplace_back(x, exact(per_row(), rows, x));
    }
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 30; ++i) {
          const auto& [x, expected] = cases[static_cast<std::size_t>((i + t) % 3)];
          const auto outputs = cache.run_padded(std::vector<NamedInput>{{"x", x}});
          const float a = outputs.ok() ? (*outputs)["s"].as<float>()[2] : 1e9f;
          if (std::abs(a - expected["s"].as<float>()[2]) > 1e-5f) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }

  Session session{Device::cpu};
};

TEST_F(Buckets, pad_run_and_crop) {
  BucketedCompileCache cache =
      BucketedCompileCache::make(session, per_row(), {.symbol = "rows", .largest = 32}).value();
  for (const std::int64_t rows : {3, 5, 8, 4, 32, 17}) {
    const Tensor x = noise({2, rows, 16}, static_cast<int>(rows));
    const std::vector<NamedInput> inputs{{"x", x}};
    expect_same(cache.run_padded(inputs).value(), exact(per_row(), rows, x));
  }
  const BucketedCompileCache::Report report = cache.report();
  EXPECT_EQ(report.buckets, (std::vector<std::int64_t>{32, 4, 8}));
  EXPECT_EQ(report.misses, 3);
  EXPECT_EQ(report.hits, 3);
}

TEST_F(Buckets, share_weights_and_keep_to_their_limit) {
  BucketOptions options{.symbol = "rows", .ladder = {8, 16, 64}};
  BucketedCompileCache cache = BucketedCompileCache::make(session, per_row(), options).value();
  for (const std::int64_t rows : {8, 16, 64}) ASSERT_TRUE(cache.get(rows).ok());
  const std::int64_t all = cache.report().bytes;
  options.bytes_limit = all - 1;
  BucketedCompileCache small = BucketedCompileCache::make(session, per_row(), options).value();
  for (const std::int64_t rows : {8, 16, 64}) ASSERT_TRUE(small.get(rows).ok());
  EXPECT_EQ(small.report().evictions, 1);
  EXPECT_EQ(small.report().buckets, (std::vector<std::int64_t>{64, 16}));
  EXPECT_LE(small.report().bytes, options.bytes_limit);
}

/// The limit counts packed weights and arenas: the weights of five buckets fit once, not twice.
TEST_F(Buckets, pack_their_weights_once) {
  constexpr std::int64_t wide = 1024, weight_bytes = wide * wide * 4;
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", wide});
  graph.output("y", matmul(x, graph.param("w", f32, {wide, wide}, noise({wide, wide}, 3))));
  SessionOptions limited;
  limited.memory_limit_bytes = weight_bytes * 7 / 4;
  Session tight(Device::cpu, limited);
  const std::vector<std::int64_t> ladder{8, 16, 32, 64, 96};
  BucketedCompileCache cache =
      BucketedCompileCache::make(tight, graph, {.symbol = "rows", .ladder = ladder}).value();
  for (const std::int64_t rows : ladder) EXPECT_EQ(message(cache.get(rows)), "no error") << rows;
  EXPECT_GT(cache.report().bytes, 0);
  EXPECT_LT(cache.report().bytes, weight_bytes / 2);
}

TEST_F(Buckets, compile_in_the_background_while_a_larger_one_serves) {
  BucketOptions options{.symbol = "rows", .ladder = {4, 8, 16, 64}, .in_background = true};
  BucketedCompileCache cache = BucketedCompileCache::make(session, per_row(), options).value();
  const auto check = [&](std::int64_t rows) {
    const Tensor x = noise({2, rows, 16}, static_cast<int>(rows));
    expect_same(cache.run_padded(std::vector<NamedInput>{{"x", x}}).value(),
                exact(per_row(), rows, x));
  };
  check(50);  // nothing larger is there: compiled by the call
  EXPECT_EQ(cache.report().stand_ins, 0);
  for (const std::int64_t rows : {3, 13, 7}) check(rows);
  EXPECT_GE(cache.report().stand_ins, 1);
  cache.wait();
  const BucketedCompileCache::Report report = cache.report();
  EXPECT_THAT(report.buckets, ::testing::UnorderedElementsAre(4, 8, 16, 64));
  EXPECT_EQ(report.compiling, 0);
  for (const std::int64_t rows : {3, 13, 7}) check(rows);
  EXPECT_EQ(cache.report().hits, report.hits + 3);
}

/// What cannot be made in the background is no error while a larger bucket serves.
TEST_F(Buckets, a_larger_one_serves_where_the_background_fails) {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 4});
  graph.output("y", x + x);
  BucketOptions options{.symbol = "rows", .ladder = {8, 64}, .in_background = true};
  BucketedCompileCache free = BucketedCompileCache::make(session, graph, options).value();
  ASSERT_TRUE(free.get(64).ok());
  SessionOptions limited;
  limited.memory_limit_bytes = free.report().bytes + 128;  // one bucket, but not two
  Session tight(Device::cpu, limited);
  BucketedCompileCache cache = BucketedCompileCache::make(tight, graph, options).value();
  ASSERT_EQ(message(cache.get(64)), "no error");
  const Tensor x3 = noise({3, 4}, 1);
  for (int i = 1; i <= 2; ++i) {
    const Outputs outputs = cache.run_padded(std::vector<NamedInput>{{"x", x3}}).value();
    EXPECT_EQ(outputs["y"].dims(), (Dims{3, 4}));
    EXPECT_EQ(outputs["y"].as<float>()[11], 2 * x3.as<float>()[11]);
    cache.wait();
    EXPECT_EQ(cache.report().stand_ins, i);
  }
  EXPECT_EQ(cache.report().buckets, std::vector<std::int64_t>{64});
}

TEST_F(Buckets, what_mixes_rows_is_refused) {
  const auto refused = [&](const Graph& graph) {
    return message(BucketedCompileCache::make(session, graph, {.symbol = "rows"}));
  };
  EXPECT_THAT(refused(sum_of_rows()), HasSubstr("reduce mixes rows"));
  EXPECT_THAT(refused(sum_of_rows()), HasSubstr("showing that padding (rows) is harmless"));
  Graph between;
  const Value x = between.input("x", f32, {"rows", 4});
  between.output("y", matmul(x, transpose(x, {1, 0})));
  EXPECT_THAT(refused(between), HasSubstr("mixes rows"));
  Graph mean;
  const Value z = mean.input("x", f32, {"rows", 4});
  mean.output("y", z - rlx::mean(z, {0}, true));
  EXPECT_THAT(refused(mean), HasSubstr("mixes rows"));
  EXPECT_EQ(message(BucketedCompileCache::make(session, per_row(), {.symbol = "columns"})),
            "No input has a dim with the symbol (columns).");
  EXPECT_EQ(
      message(BucketedCompileCache::make(session, per_row(), {.symbol = "rows", .ladder = {8, 4}})),
      "The ladder of buckets (8,4) does not ascend.");
}

/// What rows do not reach may not follow their number either, at no size up to the largest.
TEST_F(Buckets, what_depends_on_the_number_of_rows_is_refused) {
  const auto refused = [&](const auto& result_of) {
    Graph graph;
    const Value x = graph.input("x", f32, {"rows", 16});
    graph.output("y", result_of(graph, x));
    return message(BucketedCompileCache::make(session, graph, {.symbol = "rows", .largest = 32}));
  };
  const auto numbers = [](Graph& graph, std::int64_t value) {
    return graph.constant(Tensor::of<std::int64_t>({1}, {value}));
  };
  const auto added = [](Graph& graph, Op op, const Values& inputs) {
    return graph.add(std::move(op), inputs)[0];
  };
  const auto rows_of = [&](Graph& graph, Value x) {
    return slice(added(graph, op::ShapeOf{}, {x}), {0}, {1});
  };
  // x[from:], and x and the sum of w[:rows].
  const auto behind = [&](std::int64_t from) {
    return [&, from](Graph& graph, Value x) {
      return added(graph, op::DynamicSliceRange{},
                   {x, numbers(graph, from), numbers(graph, op::slice_end), numbers(graph, 0)});
    };
  };
  const auto sum_before = [&](std::int64_t all) {
    return [&, all](Graph& graph, Value x) {
      const Value w = graph.param("w", f32, {all, 16}, noise({all, 16}, 3));
      const Value head = added(graph, op::DynamicSliceRange{},
                               {w, numbers(graph, 0), rows_of(graph, x), numbers(graph, 0)});
      return x + sum(head, {0});
    };
  };
  EXPECT_EQ(refused([](Graph&, Value x) { return x + x; }), "no error");
  EXPECT_THAT(refused(behind(-10)), HasSubstr("slice mixes rows"));
  EXPECT_THAT(refused(behind(-20)), HasSubstr("slice mixes rows")) << "12 rows are whole, 32 not";
  EXPECT_EQ(refused(behind(-64)), "no error");
  EXPECT_THAT(refused(sum_before(10)),
              HasSubstr("The graph has other nodes for another value of (rows)."));
  EXPECT_THAT(refused(sum_before(64)), HasSubstr("slice depends on the value of (rows)."));
  EXPECT_THAT(
      refused([&](Graph& graph, Value x) { return x * reshape(cast(rows_of(graph, x), f32), {}); }),
      HasSubstr("A constant of the graph depends on (rows)."));
}

TEST_F(Buckets, masks_allow_what_they_hide) {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 4});
  const Value mask = graph.input("mask", f32, {"rows", 1});
  graph.output("y", sum(x * mask, {0}));
  BucketedCompileCache cache =
      BucketedCompileCache::make(session, graph,
                                 {.symbol = "rows", .ladder = {8}, .masks = {"mask"}})
          .value();
  const Tensor x3 = noise({3, 4}, 1), m3 = Tensor::of<float>({3, 1}, {1, 0, 1});
  const std::vector<NamedInput> inputs{{"x", x3}, {"mask", m3}};
  const Outputs outputs = cache.run_padded(inputs).value();
  EXPECT_NEAR(outputs["y"].as<float>()[0], x3.as<float>()[0] + x3.as<float>()[8], 1e-6);
}

TEST_F(Buckets, say_what_is_wrong) {
  BucketedCompileCache cache =
      BucketedCompileCache::make(session, per_row(), {.symbol = "rows", .largest = 8}).value();
  EXPECT_EQ(message(cache.get(9)), "The rows (9) lie outside the ladder 1..8.");
  const Tensor narrow = noise({2, 3, 15}, 1);
  EXPECT_EQ(message(cache.run_padded(std::vector<NamedInput>{{"x", narrow}})),
            "The input (x) has (15) on axis 2 instead of 16.");
  EXPECT_EQ(message(cache.run_padded(std::vector<NamedInput>{})),
            "No input tells the symbol (rows).");
  const std::vector<float> plain(2 * 3 * 16);
  EXPECT_EQ(message(cache.run_padded(std::vector<NamedInput>{{"x", plain}})),
            "The input (x) needs dims: give a tensor.");
  Graph two = per_row();
  two.output("z", two.input("more", f32, {"rows", 2}) + two.constant(f32, 1));
  BucketedCompileCache both =
      BucketedCompileCache::make(session, two, {.symbol = "rows", .largest = 8}).value();
  const Tensor three = noise({2, 3, 16}, 1), four = noise({4, 2}, 1);
  EXPECT_EQ(message(both.run_padded(std::vector<NamedInput>{{"x", three}, {"more", four}})),
            "The input (more) has 4 rows and another has (3).");
}

TEST_F(Buckets, masks_and_symbols_must_fit) {
  EXPECT_EQ(
      message(BucketedCompileCache::make(session, per_row(), {.symbol = "rows", .masks = {"w"}})),
      "The mask (w) is no input with the symbol (rows).");
  Graph square;
  const Value x = square.input("x", f32, {"rows", "rows"});
  square.output("y", x + x);
  EXPECT_THAT(message(BucketedCompileCache::make(session, square, {.symbol = "rows"})),
              HasSubstr("The input (x) has the symbol (rows) twice."));
}

/// Hits, misses, stand-ins and evictions at the same time.
TEST_F(Buckets, serve_several_threads) {
  for (const bool in_background : {false, true}) serve_threads(in_background, 0);
  serve_threads(true, 1);  // one byte: every new bucket throws the others out
}

TEST_F(Buckets, an_active_extent_runs_the_live_rows) {
  CompiledGraph program = session.compile(per_row(), {.dims = {{"rows", 16}}}).value();
  const Tensor x = noise({2, 16, 16}, 5);
  const Outputs whole = program.run({{"x", x}}).value();
  ASSERT_TRUE(program.set_active_extent({{5, 16}}).ok());
  const Outputs live = program.run({{"x", x}}).value();
  std::vector<float> into(2 * 16 * 24, 7.0f), sums(2 * 16, 7.0f);
  const void* slots[] = {x.data()};
  void* results[] = {into.data(), sums.data()};
  ASSERT_TRUE(program.run_into(slots, results).ok());
  ASSERT_EQ(live["y"].dims(), whole["y"].dims());
  for (std::size_t i = 0; i < into.size(); ++i) {
    const bool is_live = i / 24 % 16 < 5;
    ASSERT_NEAR(live["y"].as<float>()[i], is_live ? whole["y"].as<float>()[i] : 0, 1e-6) << i;
    ASSERT_EQ(into[i], live["y"].as<float>()[i]) << i;
  }
  ASSERT_TRUE(program.set_active_extent(std::nullopt).ok());
  expect_same(program.run({{"x", x}}).value(), whole);
}

/// Inputs whose first rows are the live ones are read where they are, others are copied.
TEST_F(Buckets, an_active_extent_cuts_any_axis) {
  Graph graph;
  const Value a = graph.input("a", f32, {1, "rows", 6});
  const Value b = graph.input("b", f32, {3, "rows"});
  const Value c = graph.input("c", f32, {"rows"});
  const Value d = graph.input("d", f32, {3, 1});
  graph.output("y", sum(a, {0, 2}) + b * c + d);
  CompiledGraph program = session.compile(graph, {.dims = {{"rows", 8}}}).value();
  const Tensor ta = noise({1, 8, 6}, 1), tb = noise({3, 8}, 2), tc = noise({8}, 3),
               td = noise({3, 1}, 4);
  const std::vector<NamedInput> inputs{{"a", ta}, {"b", tb}, {"c", tc}, {"d", td}};
  const Outputs whole = program.run(inputs).value();
  ASSERT_TRUE(program.set_active_extent({{3, 8}}).ok());
  const Outputs live = program.run(inputs).value();
  for (std::size_t i = 0; i < 24; ++i)
    EXPECT_NEAR(live["y"].as<float>()[i], i % 8 < 3 ? whole["y"].as<float>()[i] : 0, 1e-5) << i;
}

TEST_F(Buckets, a_set_weight_reaches_the_active_extent) {
  CompiledGraph program = session.compile(per_row(), {.dims = {{"rows", 8}}}).value();
  const Tensor x = noise({2, 8, 16}, 5), w = noise({16, 24}, 11);
  ASSERT_TRUE(program.set_active_extent({{4, 8}}).ok());
  ASSERT_TRUE(program.set_param("w", w.as<float>()).ok());
  const Outputs live = program.run({{"x", x}}).value();
  ASSERT_TRUE(program.set_active_extent(std::nullopt).ok());
  const Outputs whole = program.run({{"x", x}}).value();
  EXPECT_NEAR(live["y"].as<float>()[30], whole["y"].as<float>()[30], 1e-6);
}

/// Of those used last nothing is compiled again; those before are gone with their memory.
TEST_F(Buckets, active_extents_that_were_seen_are_kept_within_bounds) {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 256});
  graph.output("y", x + graph.constant(f32, 1));
  const CompileOptions options{.dims = {{"rows", 64}}};
  const MemoryReport memory = session.compile(graph, options).value().query_memory();
  // The sixteen that are kept and one in the making fit beside the program, 24 do not.
  int compiled = 0;
  Session limited(Device::cpu,
                  {.memory_limit_bytes = 18 * (memory.arena_bytes + memory.scratch_bytes),
                   .log = [&](LogLevel, std::string_view) { ++compiled; }});
  CompiledGraph program = limited.compile(graph, options).value();
  const Tensor values = noise({64, 256}, 5);
  const auto expect_rows = [&](std::int64_t rows) {
    const auto status = program.set_active_extent({{rows, 64}});
    ASSERT_TRUE(status.ok()) << rows << ": " << status.error().message;
    const Outputs live = program.run({{"x", values}}).value();
    const auto end = static_cast<std::size_t>(rows * 256);
    for (std::size_t i = 0; i < 64 * 256; ++i)
      ASSERT_EQ(live["y"].as<float>()[i], i < end ? values.as<float>()[i] + 1 : 0) << i;
  };
  for (std::int64_t rows = 63; rows >= 40; --rows) expect_rows(rows);
  EXPECT_EQ(compiled, 25);
  for (const std::int64_t rows : {55, 40, 47, 64, 55}) expect_rows(rows);
  EXPECT_EQ(compiled, 25) << "the last sixteen are there";
  expect_rows(56);
  EXPECT_EQ(compiled, 26) << "the one before them is not";
}

TEST_F(Buckets, an_active_extent_is_of_the_symbol_that_has_the_value) {
  Graph graph;
  const Value x = graph.input("x", f32, {"batch", "rows"});
  graph.output("y", x * graph.constant(f32, 2));
  CompiledGraph program = session.compile(graph, {.dims = {{"batch", 3}, {"rows", 8}}}).value();
  const Tensor values = noise({3, 8}, 1);
  const auto live = [&](std::int64_t actual, std::int64_t upper) {
    EXPECT_TRUE(program.set_active_extent({{actual, upper}}).ok());
    const Outputs outputs = program.run({{"x", values}}).value();
    std::string shown;
    for (const float value : outputs["y"].as<float>()) shown += value == 0 ? '0' : 'x';
    return shown;
  };
  EXPECT_EQ(live(2, 3), "xxxxxxxxxxxxxxxx00000000");
  EXPECT_EQ(live(2, 8), "xx000000xx000000xx000000");
  // What cannot be leaves the extent as it was.
  EXPECT_FALSE(program.set_active_extent({{9, 8}}).ok());
  EXPECT_EQ(program.run({{"x", values}}).value()["y"].as<float>()[2], 0);
}

TEST_F(Buckets, an_active_extent_says_what_is_wrong) {
  CompiledGraph program = session.compile(per_row(), {.dims = {{"rows", 16}}}).value();
  EXPECT_EQ(message(program.set_active_extent({{5, 15}})),
            "No symbol is bound to (15); bound are: rows=16.");
  EXPECT_EQ(message(program.set_active_extent({{0, 16}})),
            "The active extent (0) lies outside 1..16.");
  EXPECT_EQ(message(program.set_active_extent({{17, 16}})),
            "The active extent (17) lies outside 1..16.");
  EXPECT_TRUE(program.set_active_extent({{16, 16}}).ok());
}

}  // namespace
}  // namespace rlx
