// What a device, a backend or a program cannot do, and the sentences that say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backend.hpp"
#include "rlx/rlx.hpp"
#include "rlx/support.hpp"
#include "runtime/compile.hpp"
#include "runtime/device.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

template <class T>
std::string message(const T& result) {
  return result.ok() ? "no error" : result.error().message;
}

Graph doubled(Shape shape) {
  Graph graph;
  const Value x = graph.input("x", f32, std::move(shape));
  graph.output("y", x + graph.param("w", f32, {4}));
  return graph;
}

TEST(Refusals, a_race_needs_bound_shapes_and_a_device) {
  const Graph bound = doubled({3, 4}), open = doubled({"rows", 4});
  EXPECT_GT(race_on_this_machine(bound)(Device::cpu).value(), 0);
  EXPECT_EQ(message(race_on_this_machine(open)(Device::cpu)),
            "A race needs bound shapes; the input (x) has none.");
  EXPECT_THAT(message(race_on_this_machine(bound)(Device::tpu)), HasSubstr("(tpu)"));
}

TEST(Refusals, no_device_by_choice_tells_no_support) {
  EXPECT_EQ(message(op_support(Device::automatic)), "The device (auto) tells no support.");
}

TEST(Refusals, a_backend_without_kernels_has_one_precision) {
  for (const BackendEntry& entry : checking_backends()) {
    if (entry.name != "reference") continue;
    const std::unique_ptr<Backend> backend = entry.open({}).value();
    EXPECT_EQ(message(compile_static(*backend, doubled({3, 4}), {})), "no error");
    EXPECT_EQ(message(compile_static(*backend, doubled({3, 4}), {.precision = Precision::bf16})),
              "The precision (bf16) is not available on cpu; f32 is.");
  }
}

/// Floats are data, not dims: a part made for each value of them would be one for every run.
TEST(Refusals, floats_that_tell_dims_split_no_program) {
  Graph graph;
  const Values ends{graph.input("start", f32, {}), graph.input("limit", f32, {}),
                    graph.input("delta", f32, {})};
  graph.output("y", graph.add(op::DynamicRange{}, ends, "")[0]);
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  const Tensor one = Tensor::scalar(1.0f), five = Tensor::scalar(5.0f);
  const auto outputs = program.run({{"start", one}, {"limit", five}, {"delta", one}});
  EXPECT_EQ(message(outputs), "The program cannot go on: data decides the dims of dynamic_range.");
  EXPECT_EQ(outputs.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace rlx
