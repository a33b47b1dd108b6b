// Products that make the rows of their A themselves compute what the reference does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "../ops/sample_inputs.hpp"
#include "cost/presets.hpp"
#include "plan/fusion.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using testing::noise;

/// Yes to every question about rows that is asked of the graph, whatever the machine gains by it.
std::map<std::string, bool> yes_to_rows(const Graph& graph) {
  std::map<std::string, bool> answers;
  const CompiledGraph program = Session(Device::cpu).compile(graph, {.threads = 1}).value();
  const Explanation explanation = program.explain().value();
  for (const FusionQuestion& question : explanation.questions)
    if (question.kind == "prologue") answers[question.what] = true;
  return answers;
}

/// The number of those questions that the gate answers with yes for one thread of a machine.
std::int64_t rows_that_pay(const Graph& graph, const cost::MachineModel& model) {
  const plan::FusionPolicy policy = plan::fusion_policy(model, 1, true);
  return std::ranges::count_if(
      plan::form_regions(plan::flatten(graph).value(), policy).questions,
      [](const FusionQuestion& asked) { return asked.kind == "prologue" && asked.fused; });
}

/// Compiles and runs the graph of one input x; gives the number of questions about rows that were
/// answered with yes, by the gate or by `answers`.
int rows_within(const Graph& graph, const std::map<std::string, bool>& answers = {}) {
  Tensor x;
  for (const Node& node : graph.nodes()) {
    if (node.op.is<op::Input>()) x = noise(node.results[0].shape, 9);
  }
  const std::vector<Tensor> inputs{x};
  const std::vector<Tensor> wanted = evaluate_graph(graph, inputs).value();
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph, {.answers = answers, .threads = 1}).value();
  const std::vector<NamedInput> named{{"x", x}};
  const Outputs got = program.run(std::span<const NamedInput>(named)).value();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::span<const float> a = got[k].as<float>(), b = wanted[k].as<float>();
    EXPECT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      EXPECT_NEAR(a[i], b[i], 2e-4F * (1 + std::abs(b[i]))) << k << " at " << i;
  }
  int count = 0;
  const Explanation explanation = program.explain().value();
  for (const FusionQuestion& question : explanation.questions)
    count += question.kind == "prologue" && question.fused;
  return count;
}

TEST(Prologue, scaled_rows_of_every_size) {
  for (const std::int64_t rows : {1, 7, 49, 130}) {
    for (const std::int64_t depth : {8, 33}) {
      for (const std::int64_t columns : {9, 100}) {
        SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(depth) + " " +
                     std::to_string(columns));
        Graph graph;
        const Value x = graph.input("x", f32, {rows, depth});
        const Value scaled = relu(x * graph.constant(noise({depth}, 1)) + graph.constant(f32, 0.5));
        graph.output("y", relu(matmul(scaled, graph.constant(noise({depth, columns}, 2))) +
                               graph.constant(noise({columns}, 3))));
        EXPECT_EQ(rows_within(graph, yes_to_rows(graph)), 1);
        EXPECT_EQ(rows_that_pay(graph, cost::model_of_zen2()), 1);
      }
    }
  }
}

TEST(Prologue, rows_of_weights_that_are_asked_for_ahead) {
  for (const std::int64_t rows : {16, 49}) {
    Graph graph;
    const Value x = graph.input("x", f32, {rows, 512});
    const Value scaled = relu(x * graph.constant(noise({512}, 1)) + graph.constant(f32, 0.5));
    graph.output("y", matmul(scaled, graph.constant(noise({512, 200}, 2))));
    rows_within(graph);
  }
}

TEST(Prologue, normalised_rows_of_batches) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 31, 48});
  const Value norm =
      layer_norm(x + x, graph.constant(noise({48}, 1)), graph.constant(noise({48}, 2)));
  graph.output("y", matmul(norm, graph.constant(noise({48, 40}, 3))));
  EXPECT_EQ(rows_within(graph), 1);
}

// x + r goes on to the residual behind the second product.
TEST(Prologue, other_values_of_the_rows_are_stored) {
  Graph graph;
  const Value x = graph.input("x", f32, {40, 32});
  const Value sum = x + relu(x);
  const Value norm =
      layer_norm(sum, graph.constant(noise({32}, 1)), graph.constant(noise({32}, 2)));
  const Value up = gelu(matmul(norm, graph.constant(noise({32, 64}, 3))));
  graph.output("y", matmul(up, graph.constant(noise({64, 32}, 4))) + sum);
  EXPECT_EQ(rows_within(graph), 1);
}

// Normalisation and activation of joined images before a convolution to other channels.
TEST(Prologue, images_before_a_convolution_of_one_tap) {
  Graph graph;
  const Value x = graph.input("x", f32, {1, 4, 9, 7});
  const Value joined = concat({conv(x, graph.constant(noise({16, 4, 1, 1}, 5))),
                               conv(x, graph.constant(noise({8, 4, 1, 1}, 6)))},
                              1);
  const Value active =
      relu(joined * graph.constant(noise({24, 1, 1}, 1)) + graph.constant(noise({24, 1, 1}, 2)));
  graph.output("y", conv(active, graph.constant(noise({40, 24, 1, 1}, 3)), {},
                         graph.constant(noise({40}, 4))));
  EXPECT_EQ(rows_within(graph), 1);
}

TEST(Prologue, convolutions_with_taps_or_strides_read_stored_images) {
  for (const std::int64_t stride : {1, 2}) {
    Graph graph;
    const Value x = graph.input("x", f32, {1, 16, 9, 7});
    const std::int64_t taps = stride == 1 ? 3 : 1;
    graph.output("y", conv(exp(x), graph.constant(noise({16, 16, taps, taps}, 3)),
                           {.strides = {stride, stride}}));
    EXPECT_EQ(rows_within(graph), 0);
  }
}

// softmax(q k) v is one kernel; a normalisation of its rows cannot follow in it.
TEST(Prologue, rows_behind_attention_are_normalised_after_it) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 20, 16});
  const Value scores = softmax(matmul(x, transpose(x, {0, 2, 1})));
  const Value mixed = matmul(scores, x);
  graph.output("y", mixed / sum(abs(mixed), {2}, true));
  rows_within(graph);
}

}  // namespace
}  // namespace rlx
