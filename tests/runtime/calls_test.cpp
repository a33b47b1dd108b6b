// What calls say where they do not fit the program, which memory runs read and write, and that runs
// of one call go on at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/message.hpp"
#include "base/temporary_folder.hpp"
#include "rlx/custom.hpp"
#include "rlx/mapped.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;
using testing::message;
using ::testing::StartsWith;

/// y = 2x on f32[rows, 4].
Graph doubled() {
  Graph graph;
  const Value x = graph.input("x", f32, {"rows", 4});
  graph.output("y", x + x);
  return graph;
}

class Calls : public ::testing::Test {
 protected:
  Session session{Device::cpu, {.threads = 2}};
  CompiledGraph open = session.compile(doubled()).value();
  CompiledGraph bound = session.compile(doubled(), {.dims = {{"rows", 3}}}).value();
  std::vector<float> x = std::vector<float>(12, 1.5f);
};

TEST_F(Calls, that_need_bound_shapes_say_so) {
  const std::string needs = "This call needs bound shapes: compile with all dims given.";
  const void* slots[] = {x.data()};
  void* results[] = {x.data()};
  const Tensor value(f32, {3, 4});
  EXPECT_EQ(message(open.run_slots(slots)), needs);
  EXPECT_EQ(message(open.run_raw(std::vector<NamedInput>{{"x", value}})), needs);
  EXPECT_EQ(message(open.run_into(slots, results)), needs);
  EXPECT_EQ(message(open.bind_handle("x", value)), needs);
  EXPECT_EQ(message(open.set_gpu_handle_feed("x", 0)), needs);
  EXPECT_EQ(message(open.run_feed_gpu_handle({})), needs);
  EXPECT_EQ(message(open.set_active_extent({{1, 3}})), needs);
  EXPECT_EQ(message(open.moe_layers()), needs);
  EXPECT_EQ(message(open.read_output_row(0, 0, 4)), needs);
  EXPECT_EQ(message(open.stage_text("mir")), "The stage (mir) needs bound shapes: give the dims.");
  EXPECT_EQ(message(open.explain()),
            "An explanation needs bound shapes: give the dims, or run the program once.");
  EXPECT_EQ(message(session.compile(doubled(), CompileOptions().feed("y", "x"))),
            "Feeding outputs back needs bound shapes: give all dims.");
}

TEST_F(Calls, by_position_say_what_does_not_fit) {
  const void* slots[] = {x.data(), nullptr};
  void* results[] = {x.data(), nullptr};
  EXPECT_EQ(message(bound.run_slots(slots)), "The program has 1 inputs and was given (2).");
  EXPECT_EQ(message(bound.run_slots(std::span(slots).last(1))), "The input (x) is a null pointer.");
  EXPECT_EQ(message(bound.run_into(std::span(slots).first(1), results)),
            "The program has 1 outputs and was given (2).");
  EXPECT_EQ(message(bound.run_into(std::span(slots).first(1), std::span(results).last(1))),
            "The output (y) is a null pointer.");
  const int indices[] = {0, 1};
  EXPECT_EQ(message(bound.run_read_outputs(std::vector<NamedInput>{{"x", x}}, indices)),
            "There is no output (1): there are 1.");
}

TEST_F(Calls, of_other_kinds_say_what_is_wrong) {
  EXPECT_EQ(message(bound.profile(std::vector<NamedInput>{}, 1)), "The input (x) is missing.");
  EXPECT_EQ(message(bound.stage_text("air")),
            "There is no stage (air): hir, mir and lir are there.");
  EXPECT_EQ(message(bound.read_output_row(0, 3, 4)),
            "Row (3) of (4) elements lies outside the output's 12.");
  EXPECT_EQ(message(bound.run(std::vector<NamedInput>{{"x", x}, {"x", x}})),
            "The input (x) is given twice.");
  ASSERT_TRUE(bound.bind_handle("x", Tensor(f32, {3, 4})).ok());
  EXPECT_EQ(message(bound.set_active_extent({{1, 3}})),
            "A program with handles or states has no active extent.");
}

TEST_F(Calls, plain_floats_are_for_float_inputs_of_known_dims) {
  Graph graph;
  graph.output("y", graph.input("n", i64, {4}) + graph.constant(i64, 1));
  CompiledGraph whole = session.compile(graph).value();
  const std::vector<float> values{1, 2, 3, 4};
  EXPECT_EQ(message(whole.run({{"n", values}})),
            "The input (n) is i64: plain floats are accepted for float inputs alone.");
  EXPECT_EQ(message(open.run({{"x", x}})),
            "The input (x) has unbound dims: give a tensor, which has dims.");
  Graph half;
  half.output("y", cast(half.input("h", f16, {4}), f32));
  CompiledGraph program = session.compile(half).value();
  EXPECT_EQ(message(program.commit_no_wait(std::vector<NamedInput>{{"h", values}})),
            "The input (h) is f16: a queued run takes tensors of that dtype.");
  EXPECT_TRUE(program.sync_pending().value().empty());
}

TEST_F(Calls, rows_are_read_from_floats) {
  Graph graph;
  graph.output("y", graph.input("n", i64, {2, 2}) + graph.constant(i64, 1));
  CompiledGraph program = session.compile(graph).value();
  EXPECT_EQ(message(program.read_output_row(0, 0, 2)),
            "The output (y) is i64; rows are read from f32.");
  ASSERT_TRUE(bound.run({{"x", x}}).ok());
  EXPECT_EQ(bound.read_output_row(0, 2, 4).value(), std::vector<float>(4, 3.0f));
  EXPECT_FALSE(bound.read_output_row(0, 0, 0).ok());
  EXPECT_FALSE(bound.read_output_row(0, -1, 4).ok());
}

TEST_F(Calls, exact_programs_compute_in_f32) {
  EXPECT_EQ(message(session.compile(doubled(), {.precision = Precision::bf16, .exact = true})),
            "An exact program computes in f32: leave out the precision (bf16).");
}

TEST_F(Calls, typed_ones_take_the_declared_dtypes_alone) {
  Graph graph;
  graph.output("y", cast(graph.input("h", f16, {4}), f32));
  CompiledGraph program = session.compile(graph).value();
  const std::vector<float> values{1, 2, 3, 4};
  EXPECT_EQ(program.run({{"h", values}}).value()["y"].as<float>()[3], 4);
  EXPECT_EQ(message(program.run_typed(std::vector<NamedInput>{{"h", values}})),
            "The input (h) is f16, not f32.");
}

TEST_F(Calls, set_params_of_their_dtype) {
  Graph graph;
  graph.output("y", graph.input("x", f32, {2}) * cast(graph.param("n", i32, {2}), f32));
  CompiledGraph program = session.compile(graph).value();
  const std::int32_t numbers[] = {3, -4};
  EXPECT_EQ(message(program.set_param("n", std::vector<float>{3, -4})),
            "The param (n) is i32 and was given f32.");
  EXPECT_EQ(message(program.set_param_typed("n", std::as_bytes(std::span(numbers).first(1)), i32)),
            "The param (n) is i32[2] and was given (1) elements.");
  ASSERT_TRUE(program.set_param_typed("n", std::as_bytes(std::span(numbers)), i32).ok());
  const std::vector<float> ones{1, 1};
  EXPECT_EQ(program.run({{"x", ones}}).value()["y"].as<float>()[1], -4);
}

/// At any address that suits the dtype; what an input takes is not in the arena.
TEST_F(Calls, read_inputs_and_write_outputs_where_they_lie) {
  constexpr std::int64_t rows = 4096;
  CompiledGraph program = session.compile(doubled(), {.dims = {{"rows", rows}}}).value();
  EXPECT_LT(program.query_memory().arena_bytes, 2 * rows * 16) << "the output's alone";
  std::vector<float> in(rows * 4 + 16), out(rows * 4 + 16);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  for (const std::size_t offset : {0u, 1u, 7u}) {
    const void* slots[] = {in.data() + offset};
    void* results[] = {out.data() + offset};
    std::ranges::fill(out, -1.0f);
    ASSERT_TRUE(program.run_into(slots, results).ok());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool written = i >= offset && i < offset + rows * 4;
      ASSERT_EQ(out[i], written ? 2 * in[i] : -1) << i << " from " << offset;
    }
  }
}

/// Each of two runs waits for the other; one after the other they would wait in vain.
TEST_F(Calls, pipelined_runs_go_at_the_same_time) {
  std::atomic<int> there = 0;
  std::atomic<bool> met = false;
  CustomOp meeting;
  meeting.name = "meeting";
  meeting.infer = [](const CustomAttributes&,
                     std::span<const Type> in) -> Result<std::vector<Type>> {
    return std::vector<Type>{in[0]};
  };
  meeting.eval = [&](const CustomAttributes&, std::span<const TensorView> in,
                     std::span<const MutableTensorView> out) -> Status {
    if (++there == 2) met = true;
    const auto start = std::chrono::steady_clock::now();
    while (!met && std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      std::this_thread::yield();
    std::memcpy(out[0].data, in[0].data, in[0].bytes());
    return {};
  };
  CustomOps ops;
  ASSERT_TRUE(ops.add(std::move(meeting)).ok());
  Graph graph;
  graph.output("y", custom(ops, "meeting", {graph.input("x", f32, {2})}));
  CompiledGraph program = session.compile(graph).value();
  const Tensor a = Tensor::of<float>({2}, {1, 2}), b = Tensor::of<float>({2}, {3, 4});
  const std::vector<std::vector<NamedInput>> sets{{{"x", a}}, {{"x", b}}};
  const std::vector<Outputs> outputs = program.run_pipelined(sets).value();
  EXPECT_TRUE(met);
  EXPECT_EQ(outputs[0]["y"].as<float>()[0], 1);
  EXPECT_EQ(outputs[1]["y"].as<float>()[0], 3);
}

TEST_F(Calls, params_go_into_files_of_the_users_folder) {
  const testing::TemporaryFolder folder;
  const Tensor values = Tensor::of<float>({3}, {1, 2, 3});
  {
    const testing::ScopedVariable cache("RLX_CACHE_DIR", folder.path("cache").c_str());
    const Tensor moved = in_file(values).value();
    EXPECT_TRUE(lies_in_file(moved));
    EXPECT_EQ(moved.dims(), values.dims());
    EXPECT_EQ(std::memcmp(moved.data(), values.data(), values.bytes()), 0);
    forget_pages(moved);
    EXPECT_EQ(moved.as<float>()[2], 3);
    EXPECT_EQ(in_file(moved).value().data(), moved.data());
    EXPECT_TRUE(in_file(Tensor(f32, {0})).ok());
  }
  std::ofstream(folder.path("file")) << "no folder";
  const testing::ScopedVariable cache("RLX_CACHE_DIR", folder.path("file").c_str());
  EXPECT_EQ(in_file(values).error().kind, ErrorKind::not_available);
}

}  // namespace
}  // namespace rlx
