// Branches and loops: what they compute, what they infer, the words of refusals; evaluation of
// whole graphs.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "base/cancel_scope.hpp"
#include "ops/known_answers.hpp"
#include "ops/sample_inputs.hpp"

namespace rlx {
namespace {

using testing::counting;
using testing::expect_tensor;
using testing::inferred;
using testing::refusal;
using testing::run;
using Texts = std::vector<std::string>;
using GraphPointer = std::shared_ptr<const Graph>;

GraphPointer part(const std::vector<Type>& inputs,
                  const std::function<Values(Graph&, const Values&)>& build) {
  Graph graph;
  Values values;
  for (const Type& type : inputs)
    values.push_back(graph.input("in" + std::to_string(values.size()), type.dtype, type.shape));
  for (const Value& result : build(graph, values))
    graph.output("out" + std::to_string(graph.outputs().size()), result);
  return std::make_shared<const Graph>(std::move(graph));
}

const Type vector_type{f32, {"n"}};
const Type count_type{i64, {}};

GraphPointer doubled() {
  return part({vector_type}, [](Graph&, const Values& in) { return Values{in[0] + in[0]}; });
}
GraphPointer first() {
  return part({vector_type},
              [](Graph&, const Values& in) { return Values{slice(in[0], {0}, {1})}; });
}

TEST(if_op, runs_one_branch) {
  const Tensor x = Tensor::of<float>({2}, {1, 2});
  expect_tensor<float>(run(op::If{doubled(), first()}, {Tensor::scalar(true), x})[0], {2}, {2, 4});
  expect_tensor<float>(run(op::If{doubled(), first()}, {Tensor::scalar(false), x})[0], {1}, {1});
  EXPECT_EQ(inferred(op::If{doubled(), first()}, {{boolean, {}}, {f32, {4}}}), Texts{"f32[?]"});
  EXPECT_EQ(inferred(op::If{doubled(), doubled()}, {{boolean, {1}}, {f32, {4}}}), Texts{"f32[4]"});
}

TEST(if_op, keeps_results_that_pass_through_after_their_operand_is_gone) {
  const GraphPointer same = part({vector_type}, [](Graph&, const Values& in) { return in; });
  std::vector<Tensor> results;
  {
    const std::vector<Tensor> inputs{Tensor::scalar(true), Tensor::of<float>({2}, {1, 2})};
    results = run(op::If{same, first()}, inputs);
  }
  expect_tensor<float>(results[0], {2}, {1, 2});
}

TEST(if_op, refuses_branches_that_differ) {
  const GraphPointer none = part({vector_type}, [](Graph&, const Values&) { return Values{}; });
  const GraphPointer other =
      part({vector_type}, [](Graph&, const Values& in) { return Values{cast(in[0], f64)}; });
  const std::vector<Type> types{{boolean, {}}, {f32, {4}}};
  EXPECT_EQ(refusal(op::If{doubled(), none}, types),
            "The branches of an if give (1) and (0) results.");
  EXPECT_EQ(refusal(op::If{doubled(), other}, types),
            "Result (0) of an if is f32[4] in one branch and f64[4] in the other.");
  EXPECT_EQ(refusal(op::If{doubled(), nullptr}, types),
            "The op if has no graph as its (else_branch).");
  EXPECT_EQ(refusal(op::If{doubled(), first()}, {{f32, {}}, {f32, {4}}}),
            "The condition of if must be one bool, not f32[].");
  EXPECT_EQ(
      refusal(op::If{doubled(), first()}, {{boolean, {}}, {i32, {4}}}),
      "The input (in0) is f32[n] and cannot be i32[4]. - while inferring the then_branch of if.");
}

TEST(while_op, runs_until_the_condition_fails) {
  const GraphPointer small = part({count_type, vector_type}, [](Graph& graph, const Values& in) {
    return Values{less(in[0], graph.constant(i64, 3))};
  });
  const GraphPointer step = part({count_type, vector_type}, [](Graph& graph, const Values& in) {
    return Values{in[0] + graph.constant(i64, 1), in[1] + in[1]};
  });
  const auto results = run(op::While{small, step},
                           {Tensor::scalar<std::int64_t>(0), Tensor::of<float>({2}, {1, 3})});
  expect_tensor<std::int64_t>(results[0], {}, {3});
  expect_tensor<float>(results[1], {2}, {8, 24});
  const GraphPointer wider = part({count_type, vector_type}, [](Graph&, const Values& in) {
    return Values{in[0], concat({in[1], in[1]}, 0)};
  });
  EXPECT_EQ(refusal(op::While{small, wider}, {count_type, {f32, {2}}}),
            "The carry (1) of while is f32[2] and becomes f32[4]; a carry must keep its type.");
  EXPECT_EQ(refusal(op::While{step, step}, {count_type, {f32, {2}}}),
            "The condition of while gives (2) results; it must give one.");
}

// Carries a sum; emits step * 10 + the sum.
GraphPointer summing() {
  return part({count_type, {i64, {}}, {i64, {}}}, [](Graph& graph, const Values& in) {
    const Value sum = in[1] + in[2];
    return Values{sum, in[0] * graph.constant(i64, 10) + sum};
  });
}

TEST(scan, carries_and_emits_both_ways) {
  const Tensor start = Tensor::scalar<std::int64_t>(0),
               x = Tensor::of<std::int64_t>({3}, {1, 2, 4});
  const auto forward = run(op::Scan{summing(), 3, 1, 1, false}, {start, x}),
             backward = run(op::Scan{summing(), 3, 1, 1, true}, {start, x});
  expect_tensor<std::int64_t>(forward[0], {}, {7});
  expect_tensor<std::int64_t>(forward[1], {3}, {1, 13, 27});
  expect_tensor<std::int64_t>(backward[0], {}, {7});
  expect_tensor<std::int64_t>(backward[1], {3}, {27, 16, 4});
  const auto empty =
      run(op::Scan{summing(), 0, 1, 1, false}, {Tensor::scalar<std::int64_t>(5), Tensor(i64, {0})});
  expect_tensor<std::int64_t>(empty[0], {}, {5});
  expect_tensor<std::int64_t>(empty[1], {0}, {});
  EXPECT_EQ(refusal(op::Scan{summing(), 3, 1, 1}, {count_type, {i64, {4}}}),
            "A scan of length (3) cannot take slices of i64[4].");
  EXPECT_EQ(refusal(op::Scan{summing(), 3, 1, 2}, {count_type, {i64, {3}}}),
            "A scan of length (3) with (1) carries and (2) scanned operands was given (2) inputs.");
}

// Carries a growing list and its length so far; emits the length; goes on while it is below a
// captured limit.
GraphPointer growing() {
  return part({count_type, {boolean, {}}, {i64, {"n"}}, count_type, count_type},
              [](Graph& graph, const Values& in) {
                const Value length = in[3] + graph.constant(i64, 1);
                return Values{less(length, in[4]), concat({in[2], reshape(in[0], {1})}, 0), length,
                              length};
              });
}

TEST(host_loop, runs_as_long_as_trip_count_and_condition_allow) {
  const Tensor list = Tensor::of<std::int64_t>({1}, {9}), one = Tensor::scalar<std::int64_t>(1),
               limit = Tensor::scalar<std::int64_t>(4);
  const Op loop = op::HostLoop{growing(), 2};
  const auto by_condition = run(loop, {{}, {}, list, one, limit}),
             by_count = run(
                 loop, {Tensor::scalar<std::int64_t>(2), Tensor::scalar(true), list, one, limit});
  expect_tensor<std::int64_t>(by_condition[0], {4}, {9, 0, 1, 2});
  expect_tensor<std::int64_t>(by_condition[2], {3}, {2, 3, 4});
  expect_tensor<std::int64_t>(by_count[0], {3}, {9, 0, 1});
  const auto never = run(loop, {{}, Tensor::scalar(false), list, one, limit});
  expect_tensor<std::int64_t>(never[0], {1}, {9});
  expect_tensor<std::int64_t>(never[2], {0}, {});
  EXPECT_EQ(inferred(loop, {count_type, {boolean, {}}, {i64, {1}}, count_type, count_type}),
            (Texts{"i64[?]", "i64[]", "i64[?]"}));
  EXPECT_EQ(refusal(loop, {count_type}), "A host_loop with (2) carries was given (1) inputs.");
  EXPECT_EQ(refusal(loop, {{f32, {}}, {boolean, {}}, {i64, {1}}, count_type, count_type}),
            "The trip count of host_loop must be one i64, not f32[].");
}

TEST(evaluate_graph, wants_its_inputs_and_params) {
  Graph graph;
  const Value x = graph.input("x", f32, {"n"}), w = graph.param("w", f32, {1});
  graph.output("y", x * w);
  EXPECT_EQ(evaluate_graph(graph, std::vector<Tensor>{Tensor(f32, {2})}).error().message,
            "The param (w) has no data.");
  EXPECT_EQ(evaluate_graph(graph, {}).error().message,
            "The graph has more inputs than it was given (0).");
  EXPECT_EQ(evaluate_graph(graph, std::vector<Tensor>{Tensor(f64, {2})}).error().message,
            "The input (x) is f32[n] and was given f64[2].");
}

TEST(evaluate_graph, names_the_node_that_fails) {
  Graph graph;
  const Value x = graph.input("x", f32, {3}), at = graph.input("at", i64, {1});
  graph.output("y", gather(x, at));
  const std::vector<Tensor> inputs{Tensor(f32, {3}), Tensor::of<std::int64_t>({1}, {5})};
  EXPECT_EQ(evaluate_graph(graph, inputs).error().message,
            "Index (5) is outside axis (0) of f32[3]. - while evaluating gather.");
}

TEST(evaluate_graph, ends_once_its_flag_is_set) {
  Graph graph;
  graph.output("y", tanh(graph.input("x", f32, {3})));
  const std::vector<Tensor> inputs{Tensor(f32, {3})};
  std::atomic<bool> flag = false;
  const CancelScope scope(&flag);
  EXPECT_TRUE(evaluate_graph(graph, inputs).ok());
  flag = true;
  const auto ended = evaluate_graph(graph, inputs);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(ended.error().message, "The run was cancelled.");
  {
    const CancelScope inner(nullptr);
    EXPECT_TRUE(evaluate_graph(graph, inputs).ok());
  }
  for (const OpInfo* info : all_ops()) {
    if (info->name != "while" && info->name != "lstm") continue;
    const Sample sample = info->samples()[0];
    const auto result = evaluate(sample.op, testing::sample_inputs(sample));
    ASSERT_FALSE(result.ok()) << info->name;
    EXPECT_EQ(result.error().kind, ErrorKind::cancelled) << info->name;
  }
}

TEST(evaluate_graph, goes_through_ops_whose_dims_the_data_tells) {
  Graph graph;
  const Value x = graph.input("x", f32, {"n"});
  const Value found = graph.add_one(op::NonZero{}, {x});
  graph.output("y", gather(x, squeeze(found, {0})));
  expect_tensor<float>(
      evaluate_graph(graph, std::vector<Tensor>{Tensor::of<float>({4}, {0, 3, 0, 5})}).value()[0],
      {2}, {3, 5});
}

}  // namespace
}  // namespace rlx
