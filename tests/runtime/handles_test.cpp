// Values that outlive runs: states of graphs, fed inputs, bound inputs; and their error sentences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/message.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;
using testing::message;

/// next = state + x, y = 2 * next.
Graph counter() {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  const Value state = graph.input("state", f32, {4});
  const Value next = state + x;
  graph.output("y", next + next);
  graph.output("next", next);
  return graph;
}

CompiledGraph compiled(const Graph& graph, CompileOptions options = {}) {
  static Session session(Device::cpu);
  return session.compile(graph, options).value();
}

std::vector<float> values(const Tensor& tensor) {
  const auto all = tensor.as<float>();
  return {all.begin(), all.end()};
}

const std::vector<float> ones(4, 1.0f);

TEST(Feed, an_output_of_one_run_is_an_input_of_the_next) {
  CompiledGraph program = compiled(counter(), CompileOptions().feed("next", "state"));
  ASSERT_EQ(program.inputs().size(), 1u);
  ASSERT_EQ(program.outputs().size(), 1u);
  EXPECT_EQ(program.outputs()[0].name, "y");
  for (int run = 1; run <= 5; ++run) {
    const Outputs outputs = program.run({{"x", ones}}).value();
    EXPECT_EQ(values(outputs["y"]), std::vector<float>(4, 2.0f * static_cast<float>(run)));
  }
  EXPECT_EQ(values(program.read_handle("state").value()), std::vector<float>(4, 5.0f));
}

TEST(Feed, works_through_every_way_to_run) {
  CompiledGraph program = compiled(counter(), CompileOptions().feed("next", "state"));
  const void* slots[] = {ones.data()};
  const auto slices = program.run_slots(slots).value();
  float y = 0;
  std::memcpy(&y, program.arena_ptr() + slices[0].offset, sizeof(y));
  EXPECT_EQ(y, 2);
  std::vector<float> out(4);
  void* results[] = {out.data()};
  ASSERT_TRUE(program.run_into(slots, results).ok());
  EXPECT_EQ(out, std::vector<float>(4, 4.0f));
  EXPECT_EQ(program.run_raw({{{"x", ones}}}).value()[0].as<float>()[0], 6);
  const std::vector<NamedInput> inputs{{"x", ones}};
  const std::vector<std::vector<NamedInput>> sets(3, inputs);
  const auto outputs = program.run_pipelined(sets).value();
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[2]["y"].as<float>()[0], 12);
}

TEST(Feed, clones_go_their_own_way) {
  CompiledGraph program = compiled(counter(), CompileOptions().feed("next", "state"));
  ASSERT_TRUE(program.run({{"x", ones}}).ok());
  CompiledGraph twin = program.clone().value();
  ASSERT_TRUE(program.run({{"x", ones}}).ok());
  EXPECT_EQ(twin.read_handle("state").value().as<float>()[0], 1);
  EXPECT_EQ(program.read_handle("state").value().as<float>()[0], 2);
  EXPECT_EQ(twin.run({{"x", ones}}).value()["y"].as<float>()[0], 4);
}

TEST(Feed, says_what_does_not_fit) {
  static Session session(Device::cpu);
  const auto fails = [](const Graph& graph, CompileOptions options) {
    return message(session.compile(graph, options));
  };
  EXPECT_EQ(fails(counter(), CompileOptions().feed("next", "stat")),
            "There is no input (stat) to feed.");
  EXPECT_EQ(fails(counter(), CompileOptions().feed("nex", "state")),
            "There is no output (nex) that could feed the input (state).");
  EXPECT_EQ(fails(counter(), CompileOptions().feed("y", "state").feed("next", "state")),
            "The input (state) is fed twice.");
  EXPECT_EQ(fails(counter(), CompileOptions().feed("y", "state").feed("y", "x")),
            "The output (y) feeds the handle (state) already.");
  Graph other;
  const Value x = other.input("x", f32, {4});
  other.output("y", sum(x, {0}));
  EXPECT_EQ(fails(other, CompileOptions().feed("y", "x")),
            "The output (y) is f32[] and cannot feed the input (x), which is f32[4].");
  Graph open;
  const Value free = open.input("x", f32, {"n"});
  open.output("y", free + free);
  EXPECT_EQ(fails(open, CompileOptions().feed("y", "x")),
            "Feeding outputs back needs bound shapes: give all dims.");
}

TEST(Handles, a_bound_input_is_given_no_more) {
  CompiledGraph program = compiled(counter());
  const Tensor seven = Tensor::of<float>({4}, {7, 7, 7, 7});
  EXPECT_FALSE(program.has_gpu_handle("state"));
  ASSERT_TRUE(program.bind_gpu_handle("state", seven).ok());
  EXPECT_TRUE(program.has_gpu_handle("state"));
  for (int run = 0; run < 2; ++run)
    EXPECT_EQ(program.run({{"x", ones}}).value()["next"].as<float>()[0], 8);
  EXPECT_EQ(message(program.run({{"x", ones}, {"state", ones}})),
            "The input (state) is a handle: runs take its value.");
}

TEST(Handles, an_output_can_feed_one) {
  CompiledGraph program = compiled(counter());
  ASSERT_TRUE(program.bind_gpu_handle("state", Tensor(f32, {4})).ok());
  ASSERT_TRUE(program.set_gpu_handle_feed("state", 1).ok());
  const std::vector<NamedInput> inputs{{"x", ones}};
  for (int run = 0; run < 3; ++run) ASSERT_TRUE(program.run_feed_gpu_handle(inputs).ok());
  EXPECT_EQ(program.read_gpu_handle("state").value().as<float>()[3], 3);
  const Outputs outputs = program.run(inputs).value();
  EXPECT_EQ(outputs["next"].as<float>()[0], 4) << "a fed output stays readable";
  EXPECT_EQ(outputs["y"].as<float>()[0], 8);
  std::vector<float> y(4), next(4);
  const void* slots[] = {ones.data(), nullptr};
  void* results[] = {y.data(), next.data()};
  ASSERT_TRUE(program.run_into(slots, results).ok());
  EXPECT_EQ(next[0], 5);
  EXPECT_EQ(y[0], 10);
  EXPECT_EQ(program.run_slots(slots).value()[1].length, 0);
}

TEST(Handles, a_state_of_the_graph_is_one) {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  const Value total = graph.state("total", f32, {4});
  const Value next = total + x;
  graph.update(total, next);
  graph.output("before", total + graph.constant(Tensor(f32, {4})));
  CompiledGraph program = compiled(graph);
  ASSERT_TRUE(program.run({{"x", ones}}).ok());
  EXPECT_EQ(program.run({{"x", ones}}).value()["before"].as<float>()[0], 1);
  EXPECT_EQ(program.read_handle("total").value().as<float>()[0], 2);
  ASSERT_TRUE(program.bind_handle("total", Tensor::of<float>({4}, {9, 9, 9, 9})).ok());
  EXPECT_EQ(program.run({{"x", ones}}).value()["before"].as<float>()[0], 9);
}

TEST(Handles, say_what_does_not_fit) {
  CompiledGraph program = compiled(counter());
  EXPECT_EQ(message(program.read_handle("state")),
            "There is no handle (state); the handles are: none.");
  EXPECT_EQ(message(program.bind_handle("cache", Tensor(f32, {4}))),
            "There is no handle (cache); the handles are: none.");
  EXPECT_EQ(message(program.bind_handle("state", Tensor(f32, {5}))),
            "The handle (state) is f32[4] and was given f32[5].");
  EXPECT_EQ(message(program.bind_handle("state", Tensor(f16, {4}))),
            "The handle (state) is f32[4] and was given f16[4].");
  EXPECT_EQ(message(program.set_gpu_handle_feed("state", 1)),
            "There is no handle (state) that an output could feed: bind_handle makes one.");
  const std::vector<NamedInput> both{{"x", ones}, {"state", ones}};
  EXPECT_EQ(message(program.run_feed_gpu_handle(both)),
            "No output feeds a handle: set_gpu_handle_feed names one.");
  ASSERT_TRUE(program.bind_handle("state", Tensor(f32, {4})).ok());
  EXPECT_EQ(message(program.set_gpu_handle_feed("state", 2)),
            "There is no output (2): there are 2.");
  EXPECT_EQ(message(program.read_handle("stat")),
            "There is no handle (stat); the handles are: state.");
}

}  // namespace
}  // namespace rlx
