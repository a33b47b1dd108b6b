// Laws of predicted plans: what a plan costs is what its steps cost, more work never costs less,
// and the same input gives the same plan.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/presets.hpp"
#include "plan/build.hpp"
#include "plan/predict.hpp"
#include "plan/regions.hpp"
#include "rlx/rlx.hpp"

namespace rlx::plan {
namespace {

Plan plan_of(const Graph& graph, int threads,
             const cost::MachineModel& model = cost::model_of_zen5()) {
  BuildOptions options;
  options.target = cost::zen5_target;
  options.model = model;
  options.threads = threads;
  return build_plan(flatten(graph).value(), options).value();
}

/// Products, softmax, norms, a copy: kernels of several kinds one after the other.
Graph mixed_graph(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, columns});
  const Value w = graph.param("w", f32, {columns, columns});
  const Value y = softmax(matmul(x, w), {.axis = 1});
  const Value z = transpose(exp(y) + x, {1, 0});
  graph.output("z", z);
  graph.output("s", matmul(z, y));
  return graph;
}

using Build = Graph (*)(std::int64_t, std::int64_t);

Graph product(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, columns});
  graph.output("y", matmul(x, graph.param("w", f32, {columns, 96})));
  return graph;
}
Graph single_column(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, columns});
  graph.output("y", matmul(x, graph.param("w", f32, {columns, 1})));
  return graph;
}
Graph normalised(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  graph.output("y", softmax(graph.input("x", f32, {rows, columns}), {.axis = 1}));
  return graph;
}
Graph turned(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  graph.output("y", transpose(exp(graph.input("x", f32, {rows, columns})), {1, 0}));
  return graph;
}
Graph mapped(std::int64_t rows, std::int64_t columns) {
  Graph graph;
  const Value x = graph.input("x", f32, {rows, columns});
  graph.output("y", tanh(x) * x);
  return graph;
}

TEST(PlanCost, IsTheSumOverItsSteps) {
  const cost::MachineModel model = cost::model_of_zen5();
  for (const int threads : {1, 2, 4}) {
    for (const std::int64_t size : {8, 64, 512}) {
      const Plan plan = plan_of(mixed_graph(size, size), threads);
      double sum = model.run;
      bool team = false;
      for (const Step& step : plan.steps) {
        EXPECT_GT(step.predicted_ns, 0) << step.name;
        EXPECT_GE(step.threads, 1);
        EXPECT_LE(step.threads, threads);
        sum += step.predicted_ns + (step.barrier_before ? model.barrier : 0);
        team = team || step.threads > 1;
      }
      EXPECT_NEAR(plan.predicted_ns, sum + (team ? model.team : 0), 1e-6 * sum);
    }
  }
}

TEST(PlanCost, IsTheSameWhenPredictedAgain) {
  const cost::MachineModel model = cost::model_of_zen5();
  Plan plan = plan_of(mixed_graph(256, 128), 2);
  const double before = plan.predicted_ns;
  predict_times(plan, model);
  EXPECT_NEAR(plan.predicted_ns, before, 1e-9 * before);
}

TEST(PlanCost, LargerShapesNeverCostLess) {
  // What fits registers better may be faster for a while: by a tenth, but no more.
  constexpr double tolerance = 0.9;
  for (const Build build : {product, single_column, normalised, turned, mapped}) {
    for (const int threads : {1, 2}) {
      double before = 0;
      for (const std::int64_t rows : {1, 7, 16, 33, 64, 100, 256, 1000, 3000}) {
        const double ns = plan_of(build(rows, 80), threads).predicted_ns;
        EXPECT_GE(ns, before * tolerance) << rows << " rows, threads " << threads;
        before = std::max(before, ns);
      }
      before = 0;
      for (const std::int64_t columns : {1, 8, 16, 31, 64, 130, 256, 1024, 4000}) {
        const double ns = plan_of(build(50, columns), threads).predicted_ns;
        EXPECT_GE(ns, before * tolerance) << columns << " columns, threads " << threads;
        before = std::max(before, ns);
      }
    }
  }
}

TEST(PlanCost, ThreadsNeverMakeAPlanPredictedSlower) {
  for (const std::int64_t size : {1, 8, 32, 128, 512}) {
    const double one = plan_of(mixed_graph(size, size), 1).predicted_ns;
    const double two = plan_of(mixed_graph(size, size), 2).predicted_ns;
    EXPECT_LE(two, one * (1 + 1e-9)) << size;
  }
}

/// Planes whose results are turned, into memory that another core wrote before.
Graph turned_planes(std::int64_t points) {
  Graph graph;
  const Value x = graph.input("x", f32, {points, 32});
  const Value wide = relu(matmul(x, graph.param("a", f32, {32, 512})));
  const Value narrow = relu(matmul(wide, graph.param("b", f32, {512, 64})));
  const Value again = relu(matmul(narrow, graph.param("c", f32, {64, 128})));
  graph.output("y", transpose(again, {1, 0}));
  return graph;
}

TEST(PlanCost, LongProgramsAreSharedOutWhereverTheirRowsEnd) {
  for (const cost::MachineModel& model :
       {cost::model_of_zen4(), cost::model_of_zen5(), cost::model_of_rapids(true)}) {
    for (const std::int64_t points : {3136, 3025}) {
      const double one = plan_of(turned_planes(points), 1, model).predicted_ns;
      const double two = plan_of(turned_planes(points), 2, model).predicted_ns;
      EXPECT_LT(two, 0.7 * one) << model.machine.vector_bytes << " " << points;
    }
  }
}

TEST(PlanCost, TinyProgramsStayOnOneThread) {
  const Plan plan = plan_of(mixed_graph(8, 8), 2);
  EXPECT_TRUE(std::all_of(plan.steps.begin(), plan.steps.end(),
                          [](const Step& step) { return step.threads == 1; }));
}

/// As every compiler makes it, not only the one that made this test.
TEST(PlanCost, APlanIsTheSameByteForByteWhoeverCompiledTheCompiler) {
  EXPECT_EQ(to_text(plan_of(mixed_graph(128, 48), 2)), R"(rlx plan 1
arena 58368 bytes, lower bound 58368
buffer 0 f32[6144] input 0 "x"
buffer 1 f32[2304] weight 0 "weight_1"
buffer 2 f32[6144] arena offset=0 life=0..1 "dot_general_2"
buffer 3 f32[6144] arena offset=24576 life=1..3 "softmax_3"
buffer 4 f32[6144] arena offset=0 life=2..4 "add_5"
buffer 5 f32[2304] arena offset=49152 life=3..5 "s"
buffer 6 f32[6144] arena offset=24576 life=4..5 "z"
weight 0 f32 of %1 offset=0 dims=[48,48] strides=[48,1] packed n=48 k=48 panel=48
inputs [0] outputs [6,5]
step 0 kernel 0 buffers=[0,1,2] threads=2 barrier=0 region=dot_general
step 1 host 0 buffers=[2,3] threads=1 barrier=1 region=softmax
step 2 kernel 1 buffers=[3,0,4] threads=1 barrier=0 region=exp+add
step 3 kernel 2 buffers=[4,3,5] threads=2 barrier=1 region=dot_general
step 4 kernel 3 buffers=[4,6] threads=2 barrier=1 region=
host 0 softmax inputs=[2] outputs=[3]
kernel 0
b0 f32[6144]
b1 f32[2304]
b2 f32[6144] written
contraction batch [] m [128] n 48 k [48] in f32
  a b0 0+[][48][1]
  b b1 packed 48 0+[]
  %0 accumulator f32
  store %0 b2 0+[48,1]
kernel 1
b0 f32[6144]
b1 f32[6144]
b2 f32[6144] written
nest [128,48] parallel 2
  #0 b0 0+[48,1]
  #1 b1 0+[48,1]
  %0 load f32 #0
  %1 exp f32 %0
  %2 load f32 #1
  %3 add f32 %1 %2
  store %3 b2 0+[48,1]
kernel 2
b0 f32[6144]
b1 f32[6144]
b2 f32[2304] written
contraction batch [] m [48] n 48 k [128] in f32
  a b0 0+[][1][48]
  b b1 0+[][48][1]
  %0 accumulator f32
  store %0 b2 0+[48,1]
kernel 3
b0 f32[6144]
b1 f32[6144] written
nest [48,128] parallel 2
  #0 b0 0+[1,48]
  %0 load f32 #0
  store %0 b1 0+[128,1]
)");
}

TEST(PlanCost, TheSameInputGivesTheSamePlanByteForByte) {
  for (const int threads : {1, 2}) {
    const std::string first = to_text(plan_of(mixed_graph(200, 96), threads));
    for (int again = 0; again < 2; ++again)
      EXPECT_EQ(to_text(plan_of(mixed_graph(200, 96), threads)), first);
  }
}

TEST(PlanCost, ProductsAreAPartOfAPlansTime) {
  const cost::MachineModel model = cost::model_of_zen5();
  const Plan products = plan_of(product(512, 512), 1);
  EXPECT_GT(product_ns(products, model), 0.3 * products.predicted_ns);
  EXPECT_LE(product_ns(products, model), products.predicted_ns);
  Graph map;
  map.output("y", exp(map.input("x", f32, {512, 512})));
  EXPECT_EQ(product_ns(plan_of(map, 1), model), 0);
  // Of cores, not of the whole: two that are as busy have the same clock.
  const Plan shared = plan_of(product(512, 512), 2);
  ASSERT_EQ(shared.steps[0].threads, 2);
  EXPECT_DOUBLE_EQ(product_ns(shared, model), product_ns(products, model) / 2);
}

}  // namespace
}  // namespace rlx::plan
