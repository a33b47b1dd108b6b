// Queued and pipelined runs, cancelling, limits, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "base/message.hpp"
#include "rlx/custom.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;
using testing::message;

/// y = table[index] doubled: an index outside fails.
Graph lookup() {
  Graph graph;
  const Value index = graph.input("index", i64, {3});
  const Tensor table = Tensor::of<float>({4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Value rows = gather(graph.constant(table), index, 0);
  graph.output("y", rows + rows);
  return graph;
}

Tensor index(std::int64_t i) { return Tensor::of<std::int64_t>({3}, {i, 0, i}); }

class Queue : public ::testing::Test {
 protected:
  Session session{Device::cpu, {.threads = 2}};
};

TEST_F(Queue, runs_come_back_in_order) {
  CompiledGraph program = session.compile(lookup()).value();
  for (int i = 0; i < 4; ++i) {
    const Tensor value = index(i);
    ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"index", value}}).ok());
  }
  const std::vector<Outputs> outputs = program.sync_pending().value();
  ASSERT_EQ(outputs.size(), 4u);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(outputs[static_cast<std::size_t>(i)]["y"].as<float>()[0], 4.0f * i);
  EXPECT_TRUE(program.sync_pending().value().empty());
}

TEST_F(Queue, a_failure_is_told_with_its_index) {
  CompiledGraph program = session.compile(lookup()).value();
  for (const int i : {1, 2, 100, 3})
    ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"index", index(i)}}).ok());
  EXPECT_THAT(message(program.sync_pending()), HasSubstr("while running queued run (2)"));
  EXPECT_TRUE(program.run({{"index", index(1)}}).ok()) << "usable afterwards";
}

TEST_F(Queue, other_calls_wait_for_sync) {
  CompiledGraph program = session.compile(lookup()).value();
  const Tensor first = index(1);
  ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"index", first}}).ok());
  EXPECT_EQ(message(program.run({{"index", first}})),
            "There are queued runs (1): call sync_pending first.");
  EXPECT_EQ(message(program.clone()), "There are queued runs (1): call sync_pending first.");
  ASSERT_TRUE(program.sync_pending().ok());
  EXPECT_TRUE(program.run({{"index", first}}).ok());
}

TEST_F(Queue, pipelined_runs_give_each_its_own) {
  CompiledGraph program = session.compile(lookup()).value();
  std::vector<std::vector<NamedInput>> sets;
  std::vector<Tensor> indices;
  for (int i = 0; i < 40; ++i) indices.push_back(index(i % 4));
  for (const Tensor& tensor : indices) sets.push_back({{"index", tensor}});
  const std::vector<Outputs> outputs = program.run_pipelined(sets).value();
  ASSERT_EQ(outputs.size(), 40u);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(outputs[static_cast<std::size_t>(i)]["y"].as<float>()[0], 4.0f * (i % 4));
  const Tensor bad = index(7);
  sets[3] = {{"index", bad}};
  EXPECT_THAT(message(program.run_pipelined(sets)), HasSubstr("while running input set (3)"));
  EXPECT_TRUE(program.run_pipelined({}).value().empty());
}

/// A long chain of products that do not fold.
Graph long_chain(int steps, std::int64_t size = 256) {
  Graph graph;
  Value x = graph.input("x", f32, {size, size});
  const Value w = graph.param("w", f32, {size, size}, Tensor(f32, {size, size}));
  for (int i = 0; i < steps; ++i) x = matmul(x, w);
  graph.output("y", x);
  return graph;
}

/// Cancels, again and again, until the work has come back; gives what it said.
Error cancelled_error(CompiledGraph& program, const std::function<Result<Outputs>()>& work) {
  std::atomic<bool> is_over = false;
  Error said;
  std::thread runner([&] {
    while (said.message.empty()) {
      const auto outputs = work();
      if (!outputs.ok()) said = outputs.error();
    }
    is_over = true;
  });
  while (!is_over) {
    program.cancel();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  runner.join();
  return said;
}

TEST_F(Queue, a_run_is_cancelled_from_another_thread) {
  CompiledGraph program = session.compile(long_chain(400)).value();
  const Tensor x(f32, {256, 256});
  const Error error = cancelled_error(program, [&] { return program.run({{"x", x}}); });
  EXPECT_EQ(error.kind, ErrorKind::cancelled);
  EXPECT_EQ(error.message, "The run was cancelled.");
  EXPECT_TRUE(program.run({{"x", x}}).ok()) << "usable afterwards";
}

/// Cancels runs whose first element of y is made until one ends before it made the last.
bool is_cut_inside(CompiledGraph& program, std::span<const void* const> slots,
                   std::vector<float>& y) {
  void* results[] = {y.data()};
  bool is_cut = false;
  for (int attempt = 0; attempt < 100 && !is_cut; ++attempt) {
    std::ranges::fill(y, 1.0f);
    std::atomic<bool> is_over = false;
    std::thread watcher([&] {
      while (!is_over && std::atomic_ref(y[0]).load() != 0) std::this_thread::yield();
      program.cancel();
    });
    const Status status = program.run_into(slots, results);
    is_over = true;
    watcher.join();
    is_cut = !status.ok() && status.error().kind == ErrorKind::cancelled && y.back() != 0;
  }
  return is_cut;
}

/// The run is cancelled when its one kernel has begun to write; where the watching thread comes in
/// time, the kernel does not write its last elements.
TEST_F(Queue, a_long_kernel_is_cancelled_inside) {
  constexpr std::int64_t size = 1536;
  Graph graph;
  const Value x = graph.input("x", f32, {size, size});
  graph.output("y", matmul(x, graph.input("w", f32, {size, size})));
  Session alone(Device::cpu, {.threads = 1});  // many threads would not be long about it
  CompiledGraph program = alone.compile(graph).value();
  ASSERT_EQ(program.report().kernels, 1);
  const Tensor zeros(f32, {size, size});
  const void* slots[] = {zeros.data(), zeros.data()};
  std::vector<float> y(size * size);
  EXPECT_TRUE(is_cut_inside(program, slots, y));
  void* results[] = {y.data()};
  ASSERT_TRUE(program.run_into(slots, results).ok());
  EXPECT_EQ(std::ranges::count(y, 0.0f), size * size) << "usable afterwards";
}

/// The same of a layer on one row: its last steps are not made, neither where they are one work
/// item (as they are on one thread) nor where each is a kernel's run.
TEST_F(Queue, a_long_recurrent_layer_is_cancelled_inside) {
  constexpr std::int64_t steps = 40000, units = 128;
  Graph graph;
  const Value x = graph.input("x", f32, {steps, 1, 1});
  const Value w = graph.constant(Tensor(f32, {1, units, 1}));
  const Value r = graph.constant(Tensor(f32, {1, units, units}));
  graph.output("y", graph.add_one(op::Rnn{}, {x, w, r}));
  for (const int threads : {1, 2}) {
    CompiledGraph program = session.compile(graph, {.threads = threads}).value();
    if (threads == 1) {
      ASSERT_THAT(program.stage_text("lir").value(), HasSubstr("\"cancel\""));
    }
    const Tensor zeros(f32, {steps, 1, 1});
    const void* slots[] = {zeros.data()};
    std::vector<float> y(steps * units);
    EXPECT_TRUE(is_cut_inside(program, slots, y));
    void* results[] = {y.data()};
    ASSERT_TRUE(program.run_into(slots, results).ok());
    EXPECT_EQ(std::ranges::count(y, 0.0f), steps * units) << "usable afterwards";
  }
}

TEST_F(Queue, cancelling_drops_what_is_queued) {
  CompiledGraph program = session.compile(long_chain(100)).value();
  const Tensor x(f32, {256, 256});
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"x", x}}).ok());
  program.cancel();
  const auto outputs = program.sync_pending();
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().kind, ErrorKind::cancelled);
  EXPECT_THAT(message(outputs), HasSubstr("The run was cancelled. - while running queued run ("));
  EXPECT_TRUE(program.run({{"x", x}}).ok());
}

/// while (count < limit) { x = x w; ++count }
Value multiplied(Graph& graph, Value x, Value w, Value limit) {
  const auto carried = [&](Graph& inner) {
    return Values{inner.input("count", i64, {}), inner.input("x", f32, x.shape()),
                  inner.input("w", f32, w.shape()), inner.input("limit", i64, {})};
  };
  Graph condition, body;
  const Values seen = carried(condition), v = carried(body);
  condition.output("goes_on", less(seen[0], seen[3]));
  body.output("count", v[0] + body.constant(i64, 1));
  body.output("x", matmul(v[1], v[2]));
  body.output("w", v[2]);
  body.output("limit", v[3]);
  const std::vector<ValueId> results =
      graph
          .try_add(op::While{std::make_shared<const Graph>(std::move(condition)),
                             std::make_shared<const Graph>(std::move(body))},
                   std::vector<ValueId>{graph.constant(i64, 0).id(), x.id(), w.id(), limit.id()},
                   "", "")
          .value();
  return graph.handle(results[1]);
}

constexpr std::int64_t forever = std::int64_t{1} << 60;

// The body is one kernel of 2 threads here and of 1 there: the team must agree on the last
// iteration.
TEST_F(Queue, an_endless_loop_is_cancelled) {
  for (const std::int64_t size : {4, 256}) {
    Graph graph;
    const Value x = graph.input("x", f32, {size, size}), w = graph.input("w", f32, {size, size});
    graph.output("y", multiplied(graph, x, w, graph.input("limit", i64, {})));
    CompiledGraph program = session.compile(graph).value();
    const Tensor values(f32, {size, size});
    const Tensor endless = Tensor::scalar(forever), short_one = Tensor::scalar(std::int64_t{3});
    const Error error = cancelled_error(
        program, [&] { return program.run({{"x", values}, {"w", values}, {"limit", endless}}); });
    EXPECT_EQ(error.kind, ErrorKind::cancelled);
    EXPECT_EQ(error.message, "The run was cancelled.");
    EXPECT_TRUE(program.run({{"x", values}, {"w", values}, {"limit", short_one}}).ok());
  }
}

/// An op that counts its calls; the third one cancels the program.
struct Canceller {
  CompiledGraph* program = nullptr;
  int calls = 0;
  CustomOps ops;

  Canceller() {
    CustomOp op{.name = "test.cancel"};
    op.infer = [](const CustomAttributes&, std::span<const Type> in) -> Result<std::vector<Type>> {
      return std::vector<Type>{in[0]};
    };
    op.eval = [this](const CustomAttributes&, std::span<const TensorView> in,
                     std::span<const MutableTensorView> out) -> Status {
      std::copy_n(in[0].data, in[0].bytes(), out[0].data);
      if (++calls == 3) program->cancel();
      return {};
    };
    EXPECT_TRUE(ops.add(std::move(op)).ok());
  }
};

/// By the count of the iterations: the fourth one does not come to the op.
TEST_F(Queue, a_loop_ends_with_the_iteration_that_is_cancelled) {
  Canceller canceller;
  Graph graph, condition, body;
  const Value count = body.input("count", i64, {});
  body.output("count", custom(canceller.ops, "test.cancel", {count}) + body.constant(i64, 1));
  condition.output("goes_on",
                   less(condition.input("count", i64, {}), condition.constant(i64, forever)));
  graph.output("y", graph.add_one(op::While{std::make_shared<const Graph>(std::move(condition)),
                                            std::make_shared<const Graph>(std::move(body))},
                                  {graph.input("x", i64, {})}));
  CompiledGraph program = session.compile(graph).value();
  canceller.program = &program;
  const Tensor zero = Tensor::scalar(std::int64_t{0});
  EXPECT_EQ(message(program.run({{"x", zero}})), "The run was cancelled.");
  EXPECT_EQ(canceller.calls, 3);
}

/// The carry's dims are the data's, so that the host runs the loop: list = 1 + places of the
/// numbers in it that are not 0, without an end.
TEST_F(Queue, a_loop_that_the_host_runs_is_cancelled) {
  Canceller canceller;
  Graph graph, body;
  body.input("step", i64, {});
  body.input("condition", boolean, {});
  const Value list = body.input("list", i64, {"n"});
  const Value places = squeeze(body.add_one(op::NonZero{}, {list}), {0});
  body.output("condition", body.constant(boolean, 1));
  body.output("list", custom(canceller.ops, "test.cancel", {places}) + body.constant(i64, 1));
  graph.output("y", graph.add_one(op::HostLoop{std::make_shared<const Graph>(std::move(body)), 1},
                                  {Value(), Value(), graph.input("x", i64, {3})}));
  CompiledGraph program = session.compile(graph).value();
  canceller.program = &program;
  const Tensor start = Tensor::of<std::int64_t>({3}, {1, 2, 3});
  const auto outputs = program.run({{"x", start}});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(outputs.error().message, "The run was cancelled.");
  EXPECT_EQ(canceller.calls, 3);
}

TEST_F(Queue, a_program_that_data_splits_is_cancelled) {
  Graph graph;
  const Value x = graph.input("x", f32, {6});
  const Value places = reshape(graph.add_one(op::NonZero{}, {x}), {-1});
  const Value picked = reshape(gather(x, places), {1, -1});
  const Value column = transpose(picked, {1, 0});  // dims of the second part: [count, 1]
  const Value limit = graph.input("limit", i64, {});
  Graph condition, body;
  {
    const Value count = condition.input("count", i64, {});
    condition.input("x", f32, {Dim::unknown(), 1});
    const Value most = condition.input("limit", i64, {});
    condition.output("goes_on", less(count, most));
    const Value next = body.input("count", i64, {});
    const Value row = body.input("x", f32, {Dim::unknown(), 1});
    const Value same = body.input("limit", i64, {});
    body.output("count", next + body.constant(i64, 1));
    body.output("x", tanh(row));
    body.output("limit", same);
  }
  const std::vector<ValueId> results =
      graph
          .try_add(op::While{std::make_shared<const Graph>(std::move(condition)),
                             std::make_shared<const Graph>(std::move(body))},
                   std::vector<ValueId>{graph.constant(i64, 0).id(), column.id(), limit.id()}, "",
                   "")
          .value();
  graph.output("y", graph.handle(results[1]));
  CompiledGraph program = session.compile(graph).value();
  const Tensor values = Tensor::of<float>({6}, {0, 1, 0, 2, 3, 0});
  const Tensor endless = Tensor::scalar(forever), once = Tensor::scalar(std::int64_t{1});
  const Error error =
      cancelled_error(program, [&] { return program.run({{"x", values}, {"limit", endless}}); });
  EXPECT_EQ(error.kind, ErrorKind::cancelled) << error.message;
  const Outputs outputs = program.run({{"x", values}, {"limit", once}}).value();
  EXPECT_EQ(outputs[0].dims(), (Dims{3, 1}));
  EXPECT_FLOAT_EQ(outputs[0].as<float>()[2], std::tanh(3.0f));
}

TEST_F(Queue, lanes_of_pipelined_runs_are_cancelled) {
  CompiledGraph program = session.compile(long_chain(100)).value();
  const Tensor x(f32, {256, 256});
  const std::vector<std::vector<NamedInput>> sets(12, {{"x", x}});
  const Error error = cancelled_error(program, [&]() -> Result<Outputs> {
    const auto outputs = program.run_pipelined(sets);
    if (!outputs.ok()) return outputs.error();
    return Outputs();
  });
  EXPECT_EQ(error.kind, ErrorKind::cancelled);
  EXPECT_THAT(error.message, HasSubstr("The run was cancelled. - while running input set ("));
  EXPECT_EQ(program.run_pipelined(sets).value().size(), sets.size()) << "usable afterwards";
}

TEST_F(Queue, a_cancel_without_a_run_ends_nothing_later) {
  CompiledGraph program = session.compile(lookup()).value();
  program.cancel();
  EXPECT_TRUE(program.run({{"index", index(1)}}).ok());
  ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"index", index(2)}}).ok());
  EXPECT_EQ(program.sync_pending().value().size(), 1u);
  program.cancel();
  ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"index", index(3)}}).ok());
  EXPECT_EQ(program.sync_pending().value().size(), 1u);
}

TEST_F(Queue, a_program_goes_while_its_runs_are_queued) {
  const Tensor x(f32, {256, 256});
  CompiledGraph program = session.compile(long_chain(100)).value();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(program.commit_no_wait(std::vector<NamedInput>{{"x", x}}).ok());
}

TEST(Limits, a_program_that_would_exceed_the_session_is_an_error) {
  Graph small;
  const Value x = small.input("x", f32, {64, 1024});
  small.output("y", x + x);
  Session unlimited(Device::cpu, {.threads = 1});
  const MemoryReport memory = unlimited.compile(small).value().query_memory();
  // Room for two and a half of them.
  const std::int64_t limit = (memory.arena_bytes + memory.scratch_bytes) * 5 / 2;
  SessionOptions options;
  options.threads = 1;
  options.memory_limit_bytes = limit;
  Session session(Device::cpu, options);
  EXPECT_THAT(message(session.compile(long_chain(2, 1024))),
              HasSubstr("of the session's limit of " + std::to_string(limit) + " bytes"));
  const auto program = session.compile(small);
  ASSERT_TRUE(program.ok()) << message(program);
  std::vector<CompiledGraph> clones;
  std::string said;
  for (int i = 0; i < 8 && said.empty(); ++i) {
    auto clone = program->clone();
    if (clone.ok()) {
      clones.push_back(*std::move(clone));
    } else {
      said = clone.error().message;
    }
  }
  EXPECT_EQ(clones.size(), 1u);
  EXPECT_THAT(said, HasSubstr("The arena and scratch need ("));
  clones.clear();
  EXPECT_TRUE(program->clone().ok()) << "what is freed can be had again";
}

TEST(Messages, a_session_tells_what_it_compiles) {
  std::vector<std::string> said;
  SessionOptions options;
  options.log = [&](LogLevel level, std::string_view text) {
    said.push_back(std::string(name_of(level)) + ": " + std::string(text));
  };
  Session session(Device::cpu, options);
  ASSERT_TRUE(session.compile(lookup()).ok());
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.back(), HasSubstr("info: Compiled a program of 1 kernels"));
}

}  // namespace
}  // namespace rlx
