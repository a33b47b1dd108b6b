// The calls of a compiled program, and what they say when they are called wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(i % 13) - 6) * 0.25f;
  return values;
}

/// y = softmax(x) * 2, z = sum of x over rows.
Graph two_outputs() {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 5});
  const Value y = softmax(x);
  graph.output("y", y + y);
  graph.output("z", sum(x, {1}));
  return graph;
}

CompiledGraph compiled(const Graph& graph, CompileOptions options = {}) {
  static Session session(Device::cpu);
  return session.compile(graph, options).value();
}

TEST(Program, lists_inputs_and_outputs) {
  const CompiledGraph program = compiled(two_outputs(), {.dims = {{"rows", 3}}});
  ASSERT_EQ(program.inputs().size(), 1u);
  EXPECT_EQ(program.inputs()[0].name, "x");
  EXPECT_EQ(program.inputs()[0].dims, (Dims{3, 5}));
  ASSERT_EQ(program.outputs().size(), 2u);
  EXPECT_EQ(program.outputs()[1].dims, (Dims{3}));
}

TEST(Program, unbound_symbols_are_bound_by_run) {
  CompiledGraph program = compiled(two_outputs());
  EXPECT_EQ(program.inputs()[0].dims, (Dims{-1, 5}));
  for (const std::int64_t rows : {1, 4, 1, 7}) {
    const std::vector<float> x = ramp(static_cast<std::size_t>(rows) * 5);
    const Outputs outputs = program.run({{"x", Tensor::of<float>({rows, 5}, x)}}).value();
    EXPECT_EQ(outputs["y"].dims(), (Dims{rows, 5}));
    EXPECT_NEAR(outputs["z"].as<float>()[0], std::accumulate(x.begin(), x.begin() + 5, 0.0f), 1e-5);
    const auto y = outputs["y"].as<float>();
    EXPECT_NEAR(std::accumulate(y.begin(), y.begin() + 5, 0.0f), 2, 1e-5);
  }
}

TEST(Program, every_way_to_run_gives_the_same) {
  CompiledGraph program = compiled(two_outputs(), {.dims = {{"rows", 3}}});
  const std::vector<float> x = ramp(15);
  const Tensor tensor = Tensor::of<float>({3, 5}, x);
  const Outputs expected = program.run({{"x", x}}).value();
  const auto equals = [&](const float* data, std::size_t output) {
    const auto wanted = expected[output].as<float>();
    return std::equal(wanted.begin(), wanted.end(), data);
  };

  const NamedInput named{"x", tensor};
  const auto views = program.run_raw(std::span(&named, 1)).value();
  EXPECT_TRUE(equals(views[0].as<float>(), 0));

  const void* slots[] = {x.data()};
  const auto slices = program.run_slots(slots).value();
  EXPECT_EQ(slices[1].length, 12);
  EXPECT_TRUE(equals(reinterpret_cast<const float*>(program.arena_ptr() + slices[1].offset), 1));

  std::vector<float> y(15), z(3);
  void* results[] = {y.data(), z.data()};
  ASSERT_TRUE(program.run_into(slots, results).ok());
  EXPECT_TRUE(equals(y.data(), 0));
  EXPECT_TRUE(equals(z.data(), 1));

  const int only[] = {1};
  const Outputs picked = program.run_read_outputs(std::span(&named, 1), only).value();
  ASSERT_EQ(picked.size(), 1u);
  EXPECT_TRUE(equals(picked[0].as<float>().data(), 1));

  const std::vector<float> row = program.read_output_row(0, 2, 5).value();
  EXPECT_TRUE(std::equal(row.begin(), row.end(), expected["y"].as<float>().begin() + 10));
}

TEST(Program, only_the_asked_outputs_are_computed) {
  CompiledGraph program = compiled(two_outputs(), {.dims = {{"rows", 2}}, .outputs = {"z"}});
  ASSERT_EQ(program.outputs().size(), 1u);
  EXPECT_EQ(program.run({{"x", ramp(10)}}).value().size(), 1u);
}

TEST(Program, wrong_calls_are_sentences) {
  CompiledGraph program = compiled(two_outputs(), {.dims = {{"rows", 3}}});
  EXPECT_THAT(program.run({}).error().message, HasSubstr("The input (x) is missing"));
  EXPECT_THAT(program.run({{"q", ramp(15)}}).error().message,
              HasSubstr("There is no input (q); the inputs are: x"));
  EXPECT_THAT(program.run({{"x", ramp(14)}}).error().message,
              HasSubstr("has 15 elements and was given (14)"));
  EXPECT_THAT(program.run({{"x", Tensor(f64, {3, 5})}}).error().message,
              HasSubstr("is f32 and was given f64"));
  EXPECT_THAT(program.run({{"x", Tensor(f32, {5, 3})}}).error().message,
              HasSubstr("has the dims [3,5] and was given [5,3]"));
  EXPECT_THAT(program.set_param("w", ramp(3)).error().message,
              HasSubstr("There is no param (w); the params are: none"));
  EXPECT_THAT(program.read_output_row(0, 3, 5).error().message, HasSubstr("lies outside"));
  EXPECT_THAT(program.read_output_row(2, 0, 5).error().message,
              HasSubstr("There is no output (2)"));
  Session session(Device::cpu);
  EXPECT_THAT(session.compile(two_outputs(), {.dims = {{"row", 3}}}).error().message,
              HasSubstr("no symbol (row); it has: rows"));
  EXPECT_THAT(session.compile(two_outputs(), {.outputs = {"q"}}).error().message,
              HasSubstr("no output (q); it has: y, z"));
  EXPECT_EQ(Session(Device::tpu).compile(two_outputs()).error().kind, ErrorKind::not_available);
}

TEST(Program, each_call_says_what_a_missing_device_means) {
  using Missing = DevicePolicy::Missing;
  const CompileOptions strict{.missing = Missing::strict}, fallback{.missing = Missing::fallback};
  Session asks(Device::tpu);
  EXPECT_FALSE(asks.compile(two_outputs()).ok());
  const auto replaced = asks.compile(two_outputs(), fallback);
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  EXPECT_EQ(replaced->device(), Device::cpu);
  EXPECT_EQ(asks.device(), Device::cpu);
  EXPECT_FALSE(asks.compile(two_outputs()).ok()) << "the call before has changed no policy";

  Session gives(Device::tpu, {.devices = {.missing = Missing::fallback}});
  EXPECT_TRUE(gives.compile(two_outputs()).ok());
  const auto refused = gives.compile(two_outputs(), strict);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::not_available);

  auto bound = asks.compile(two_outputs(), {.dims = {{"rows", 2}}, .missing = Missing::fallback});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  const DeviceChoice why = bound->explain()->devices;
  EXPECT_EQ(why.device, Device::cpu);
  EXPECT_THAT(why.reason, HasSubstr("in place of tpu (not available: not built in)"));
}

TEST(Program, explains_the_kernels_inside_of_a_loop) {
  constexpr std::int64_t length = 6;
  const auto body = std::make_shared<Graph>();
  body->input("step", i64, {});
  const Value carry = body->input("carry", f32, {32, 32});
  body->output("next", tanh(matmul(carry, softmax(carry, {.axis = 0}))));
  Graph graph;
  const Value start = graph.input("start", f32, {32, 32});
  graph.output("y", graph.add_one(op::Scan{.body = body, .length = length, .carries = 1}, {start}));
  const CompiledGraph program = compiled(graph);
  const Explanation plan = program.explain().value();
  const auto loop = std::ranges::find(plan.kernels, "loop", &Explanation::Kernel::name);
  ASSERT_NE(loop, plan.kernels.end());
  EXPECT_EQ(loop->iterations, length);
  EXPECT_FALSE(loop->assumes_iterations);
  ASSERT_GE(loop->inside.size(), 2U);
  double each = 0, flops = 0;
  for (const Explanation::Kernel& kernel : loop->inside) {
    EXPECT_GT(kernel.predicted_us, 0);
    EXPECT_FALSE(kernel.writes.empty()) << kernel.region;
    each += kernel.predicted_us, flops += kernel.flops;
  }
  EXPECT_NEAR(loop->flops, length * flops, 1e-9 * loop->flops);
  EXPECT_GE(loop->predicted_us, length * each * (1 - 1e-9) - 1);
  const auto inside = static_cast<std::int64_t>(loop->inside.size());
  const auto outside = static_cast<std::int64_t>(plan.kernels.size()) - 1;
  EXPECT_EQ(plan.planned_io.kernel_launches, length * inside + outside);
}

TEST(Program, a_param_without_a_value_is_named) {
  Graph graph;
  graph.output("y", matmul(graph.input("x", f32, {2, 2}), graph.param("weight", f32, {2, 2})));
  CompiledGraph program = compiled(graph);
  EXPECT_THAT(program.run({{"x", ramp(4)}}).error().message,
              HasSubstr("The param (weight) has no value"));
  EXPECT_THAT(program.set_param("weight", ramp(3)).error().message,
              HasSubstr("f32[2,2] and was given (3) elements"));
}

TEST(Program, clones_share_weights_until_one_detaches) {
  Graph graph;
  graph.output("y", matmul(graph.input("x", f32, {1, 2}), graph.param("w", f32, {2, 1})));
  CompiledGraph first = compiled(graph);
  first.set_param("w", std::vector<float>{1, 10}).value();
  CompiledGraph second = first.clone().value();
  second.set_param("w", std::vector<float>{2, 20}).value();
  const std::vector<float> x = {1, 1};
  EXPECT_EQ(first.run({{"x", x}}).value()["y"].as<float>()[0], 11);
  EXPECT_EQ(second.run({{"x", x}}).value()["y"].as<float>()[0], 22);
}

TEST(Program, clones_run_concurrently) {
  Graph graph;
  const Value x = graph.input("x", f32, {64, 64});
  graph.output("y", softmax(matmul(x, x)));
  CompiledGraph program = compiled(graph);
  const std::vector<float> values = ramp(64 * 64);
  const Outputs expected = program.run({{"x", values}}).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, clone = std::make_shared<CompiledGraph>(program.clone().value())] {
      for (int i = 0; i < 50; ++i) {
        const Outputs outputs = clone->run({{"x", values}}).value();
        const auto a = outputs[0].as<float>(), b = expected[0].as<float>();
        wrong += !std::equal(a.begin(), a.end(), b.begin());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Program, survives_its_graph_and_session) {
  CompiledGraph program = [] {
    Session session(Device::cpu);
    Graph graph;
    graph.output("y", graph.input("x", f32, {3}) + graph.constant(f32, 1));
    Graph moved = std::move(graph);
    return session.compile(moved).value();
  }();
  EXPECT_EQ(program.run({{"x", std::vector<float>{1, 2, 3}}}).value()[0].as<float>()[2], 4);
}

TEST(Program, data_decides_shapes) {
  Graph graph;
  const Value x = graph.input("x", f32, {6});
  const Value positions = graph.add_one(op::NonZero{}, {x});  // i64[1, count]
  graph.output("picked", gather(x, reshape(positions, {-1})) * graph.constant(f32, 10));
  CompiledGraph program = compiled(graph);
  EXPECT_EQ(program.run({{"x", Tensor::of<float>({6}, {0, 1, 0, 2, 3, 0})}}).value()[0].dims(),
            (Dims{3}));
  const Outputs outputs = program.run({{"x", Tensor::of<float>({6}, {5, 0, 0, 0, 0, 7})}}).value();
  EXPECT_THAT(outputs[0].as<float>(), ::testing::ElementsAre(50, 70));
}

TEST(Program, results_behind_data_stay_as_they_are_while_somebody_holds_them) {
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  const Value places = reshape(graph.add_one(op::NonZero{}, {x}), {-1});
  graph.output("before", x * graph.constant(f32, 2));
  graph.output("picked", gather(x, places) * graph.constant(f32, 10));
  CompiledGraph program = compiled(graph);
  const Outputs first = program.run({{"x", Tensor::of<float>({3}, {1, 0, 3})}}).value();
  const Outputs second = program.run({{"x", Tensor::of<float>({3}, {4, 0, 5})}}).value();
  EXPECT_THAT(first[0].as<float>(), ::testing::ElementsAre(2, 0, 6));
  EXPECT_THAT(first[1].as<float>(), ::testing::ElementsAre(10, 30));
  EXPECT_THAT(second[0].as<float>(), ::testing::ElementsAre(8, 0, 10));
  EXPECT_THAT(second[1].as<float>(), ::testing::ElementsAre(40, 50));
}

/// Behind some maps each round keeps what is not zero, less one, and its sum; the result is what
/// the last round keeps and all sums.
Graph rounds_of_picks(const std::string& name, int rounds, int maps) {
  Graph graph;
  Value left = graph.input(name, f32, {8});
  for (int map = 0; map < maps; ++map) left = sqrt(left * left);
  std::vector<Value> sums;
  for (int round = 0; round < rounds; ++round) {
    const Value positions = graph.add_one(op::NonZero{}, {left});
    left = gather(left, reshape(positions, {-1}));
    left = left - graph.constant(f32, 1);
    sums.push_back(sum(left, {0}, true));
  }
  for (const Value sum : sums) left = left + sum;
  graph.output("y", left);
  return graph;
}

// Each stage numbers its values anew, and hands on what those before computed.
TEST(Program, many_stages_hand_over_values_under_their_own_names) {
  const Tensor x = Tensor::of<float>({8}, {1, 2, 3, 4, 5, 6, 7, 20});
  constexpr int rounds = 12;
  float sums = 0;
  for (int round = 1; round <= rounds; ++round)
    for (const float value : x.as<float>())
      sums += std::max(value - static_cast<float>(round), 0.0f);
  // What the maps gave has the number of a later stage's value; or the input has such a name.
  for (const char* name : {"x", "carried_1_0"}) {
    for (int maps = 0; maps < 8; ++maps) {
      CompiledGraph program = compiled(rounds_of_picks(name, rounds, maps));
      const auto outputs = program.run({{name, x}});
      ASSERT_TRUE(outputs.ok()) << outputs.error().message;
      EXPECT_THAT(outputs.value()[0].as<float>(), ::testing::ElementsAre(20 - rounds + sums));
    }
  }
}

// Nothing is handed over that hangs on weights alone: the first part would compute it in each run,
// and the second could not pack it.
TEST(Program, parts_compute_from_weights_for_themselves) {
  Graph graph;
  const Value mask = graph.input("mask", f32, {3}), x = graph.input("x", f32, {3, 2});
  const Value w = graph.param("w", f32, {1, 2}, Tensor::of<float>({1, 2}, {1, 10}));
  const Value places = reshape(graph.add_one(op::NonZero{}, {mask}), {-1});
  graph.output("y", matmul(gather(x, places, 0), transpose(w, {1, 0})));
  CompiledGraph program = compiled(graph);
  const Tensor first_and_last = Tensor::of<float>({3}, {1, 0, 1});
  const Tensor rows = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const std::vector<NamedInput> inputs{{"mask", first_and_last}, {"x", rows}};
  EXPECT_THAT(program.run(inputs).value()[0].as<float>(), ::testing::ElementsAre(21, 65));
  EXPECT_EQ(program.explain().value().kernels.front().name, "host");
  ASSERT_TRUE(program.set_param("w", std::vector<float>{2, 0}).ok());
  EXPECT_THAT(program.run(inputs).value()[0].as<float>(), ::testing::ElementsAre(2, 10));
}

TEST(Program, parts_that_data_splits_are_told_of_together) {
  Graph graph;
  const Value x = exp(graph.input("x", f32, {40}));
  const Value positions = graph.add_one(op::NonZero{}, {x});
  graph.output("picked", exp(gather(x, reshape(positions, {-1}))));
  CompiledGraph program = compiled(graph);
  EXPECT_EQ(program.report().kernels, 0);  // nothing has run
  const Tensor ones = Tensor::of<float>({40}, std::vector<float>(40, 1));
  const std::vector<NamedInput> inputs{{"x", ones}};
  const auto profile = program.profile(inputs, 3).value();
  EXPECT_EQ(program.report().stages, 2);
  EXPECT_EQ(program.report().kernels, 2);
  const Explanation plan = program.explain().value();
  ASSERT_EQ(plan.kernels.size(), 3u);
  ASSERT_EQ(profile.size(), 3u);
  EXPECT_EQ(plan.kernels[1].name, "host");
  EXPECT_EQ(plan.kernels[1].region, "non_zero");
  EXPECT_EQ(plan.planned_io.sync_points, 1);
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(profile[i].name, plan.kernels[i].name);
    EXPECT_GT(profile[i].median_us, 0);
    EXPECT_GT(plan.kernels[i].predicted_us, 0);
    sum += plan.kernels[i].predicted_us;
  }
  EXPECT_GE(plan.predicted_ms * 1e3, sum * (1 - 1e-9));
  const MemoryReport memory = program.query_memory();
  EXPECT_EQ(memory.arena_bytes, plan.memory.arena_bytes);
  std::int64_t end = 0;
  for (const Explanation::Buffer& buffer : plan.buffers)
    if (buffer.storage == "arena") end = std::max(end, buffer.offset + buffer.bytes);
  EXPECT_LE(end, memory.arena_bytes);
  EXPECT_GT(end, memory.arena_bytes / 2);
}

TEST(Program, programs_by_shape_are_kept) {
  Session session(Device::cpu);
  CompileCache cache(session, two_outputs(), 2);
  const auto first = cache.get({.dims = {{"rows", 1}}}).value();
  EXPECT_EQ(cache.get({.dims = {{"rows", 1}}}).value(), first);
  cache.get({.dims = {{"rows", 2}}}).value();
  cache.get({.dims = {{"rows", 3}}}).value();
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.misses(), 3u);
}

}  // namespace
}  // namespace rlx
