// Loops as plans inside plans: what the compiled program gives is what reference evaluation gives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using GraphPointer = std::shared_ptr<const Graph>;
using Build = std::function<Values(Graph&, const Values&)>;

GraphPointer part(const std::vector<Type>& inputs, const Build& build) {
  Graph graph;
  Values values;
  for (const Type& type : inputs)
    values.push_back(graph.input(fmt::format("in{}", values.size()), type.dtype, type.shape));
  for (const Value& result : build(graph, values))
    graph.output(fmt::format("out{}", graph.outputs().size()), result);
  return std::make_shared<const Graph>(std::move(graph));
}

const Type step_type{i64, {}}, flag_type{boolean, {}};

Tensor ramp(const Dims& dims, double scale = 0.125) {
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(static_cast<double>(i * 7 % 23) - 11) * static_cast<float>(scale);
  return Tensor::of<float>(dims, std::span<const float>(values));
}

Values add_op(Graph& graph, const Op& op, const Values& operands) {
  std::vector<ValueId> ids;
  for (const Value& operand : operands) ids.push_back(operand ? operand.id() : ValueId{-1, 0});
  const std::vector<ValueId> added = graph.try_add(op, ids, "", "").value();
  Values results;
  for (const ValueId id : added) results.push_back(graph.handle(id));
  return results;
}

double value_at(const Tensor& tensor, std::size_t i) {
  switch (tensor.dtype()) {
    case f32: return tensor.as<float>()[i];
    case f64: return tensor.as<double>()[i];
    case i64: return static_cast<double>(tensor.as<std::int64_t>()[i]);
    default: return static_cast<double>(tensor.data()[i]);
  }
}

void expect_equal(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  ASSERT_EQ(actual.dims(), expected.dims()) << what;
  for (std::size_t i = 0; i < static_cast<std::size_t>(actual.elements()); ++i) {
    const double x = value_at(expected, i);
    ASSERT_NEAR(value_at(actual, i), x, 1e-5 + 1e-4 * std::abs(x)) << what << " element " << i;
  }
}

class Loops : public testing::Test {
 protected:
  /// A graph whose inputs have those values: compiled and evaluated, each output compared. Gives
  /// the plan's text.
  std::string check(const std::vector<Tensor>& inputs, const Build& build, int runs = 2) {
    Graph graph;
    Values values;
    for (const Tensor& input : inputs) {
      values.push_back(
          graph.input(fmt::format("x{}", values.size()), input.dtype(), to_shape(input.dims())));
    }
    for (const Value& result : build(graph, values))
      graph.output(fmt::format("y{}", graph.outputs().size()), result);
    const std::vector<Tensor> expected = evaluate_graph(graph, inputs).value();
    CompiledGraph program = session_.compile(graph).value();
    std::vector<NamedInput> named;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      named.emplace_back(fmt::format("x{}", i), inputs[i]);
    for (int run = 0; run < runs; ++run) {
      const Outputs outputs = program.run_typed(named).value();
      for (std::size_t i = 0; i < expected.size(); ++i)
        expect_equal(outputs[i], expected[i], fmt::format("run {} output {}", run, i));
    }
    const auto text = program.stage_text("lir");
    return text.ok() ? *text : "";
  }

  static bool is_planned(const std::string& plan) {
    return plan.find(" loop ") != std::string::npos && plan.find("host 0") == std::string::npos;
  }

  Session session_{Device::cpu};
};

// A running product with rows of x, which emits its square.
GraphPointer scan_body(const Type& carry) {
  return part({step_type, carry, carry, carry}, [](Graph&, const Values& in) {
    const Value next = tanh(in[1] * in[3] + in[2]);
    return Values{next, next * next};
  });
}

TEST_F(Loops, scans_both_ways) {
  for (const std::int64_t length : {0, 1, 2, 7}) {
    for (const bool reverse : {false, true}) {
      const std::string plan =
          check({ramp({5}), ramp({length, 5}), ramp({5})}, [&](Graph& graph, const Values& in) {
            return add_op(graph, op::Scan{scan_body({f32, {5}}), length, 1, 1, reverse}, in);
          });
      EXPECT_TRUE(is_planned(plan)) << plan;
    }
  }
}

TEST_F(Loops, scan_of_matmuls_packs_the_weight_that_it_captures) {
  const std::int64_t n = 48;
  const GraphPointer body =
      part({step_type, {f32, {4, n}}, {f32, {4, n}}, {f32, {n, n}}}, [](Graph&, const Values& in) {
        const Value next = tanh(matmul(in[1], in[3]) + in[2]);
        return Values{next, next};
      });
  const std::string plan =
      check({ramp({4, n}), ramp({9, 4, n})}, [&](Graph& graph, const Values& in) {
        const Value w = transpose(graph.constant(ramp({n, n}, 0.02)), {1, 0});
        return add_op(graph, op::Scan{body, 9, 1, 1, false}, {in[0], in[1], w});
      });
  EXPECT_TRUE(is_planned(plan)) << plan;
  EXPECT_NE(plan.find("packed"), std::string::npos) << plan;
}

TEST_F(Loops, params_inside_are_set_as_outside) {
  Graph graph;
  const Value start = graph.input("start", f32, {3});
  const Value w = graph.param("w", f32, {3});
  const GraphPointer body = part({step_type, {f32, {3}}, {f32, {3}}},
                                 [](Graph&, const Values& in) { return Values{in[1] + in[2]}; });
  graph.output("y", add_op(graph, op::Scan{body, 4, 1, 0, false}, {start, w})[0]);
  CompiledGraph program = session_.compile(graph).value();
  const std::vector<float> one{1, 2, 3}, zero{0, 0, 0};
  for (const float factor : {1.0F, 2.0F}) {
    const std::vector<float> values{factor, 0, -factor};
    program.set_param("w", values).value();
    const Outputs outputs = program.run({{"start", one}}).value();
    EXPECT_EQ(outputs[0].as<float>()[0], 1 + 4 * factor);
    EXPECT_EQ(outputs[0].as<float>()[2], 3 - 4 * factor);
  }
}

// while (n < limit) { n += step; x = x * 0.5 + n }
Values counting(Graph& graph, const Values& in) {
  const std::vector<Type> types{step_type, {f32, {6}}, step_type};
  const GraphPointer fewer =
      part(types, [](Graph&, const Values& v) { return Values{less(v[0], v[2])}; });
  const GraphPointer next = part(types, [](Graph& g, const Values& v) {
    return Values{v[0] + g.constant(i64, 1), v[1] * g.constant(f32, 0.5) + cast(v[0], f32), v[2]};
  });
  return add_op(graph, op::While{fewer, next}, in);
}

TEST_F(Loops, whiles_read_their_condition_every_time) {
  for (const std::int64_t limit : {-1, 0, 1, 2, 5, 8}) {
    const std::string plan =
        check({Tensor::scalar<std::int64_t>(0), ramp({6}), Tensor::scalar(limit)}, counting);
    EXPECT_TRUE(is_planned(plan)) << plan;
  }
}

TEST_F(Loops, host_loops_of_kept_shapes_are_planned) {
  const GraphPointer body =
      part({step_type, flag_type, {f32, {4}}, step_type}, [](Graph& graph, const Values& in) {
        const Value next = in[2] + cast(in[0], f32);
        return Values{less(in[0], in[3] + graph.constant(i64, 0)), next};
      });
  for (const std::int64_t trips : {0, 1, 3, 6}) {
    for (const bool starts : {false, true}) {
      const std::string plan = check(
          {Tensor::scalar(trips), Tensor::scalar(starts), ramp({4}),
           Tensor::scalar<std::int64_t>(4)},
          [&](Graph& graph, const Values& in) { return add_op(graph, op::HostLoop{body, 1}, in); });
      EXPECT_TRUE(is_planned(plan)) << plan;
    }
  }
}

// An outer scan whose step runs a while that captures the outer carry and the outer slice.
TEST_F(Loops, nest_and_capture_what_the_outer_loop_changes) {
  const std::vector<Type> inner_types{step_type, {f32, {3}}, {f32, {3}}, {f32, {3}}};
  const GraphPointer fewer = part(inner_types, [](Graph& graph, const Values& v) {
    return Values{less(v[0], graph.constant(i64, 3))};
  });
  const GraphPointer inner = part(inner_types, [](Graph& graph, const Values& v) {
    return Values{v[0] + graph.constant(i64, 1), v[1] * v[2] + v[3], v[2], v[3]};
  });
  const GraphPointer outer =
      part({step_type, {f32, {3}}, {f32, {3}}}, [&](Graph& graph, const Values& in) {
        const Values results = add_op(
            graph, op::While{fewer, inner},
            {in[0] - in[0] / graph.constant(i64, 3) * graph.constant(i64, 3), in[2], in[1], in[2]});
        return Values{tanh(results[1]), results[0]};
      });
  const std::string plan = check({ramp({3}), ramp({6, 3})}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{outer, 6, 1, 1, false}, in);
  });
  EXPECT_TRUE(is_planned(plan)) << plan;
  EXPECT_NE(plan.find("loop 1"), std::string::npos) << plan;
}

GraphPointer doubled(const Type& type) {
  return part({type}, [](Graph&, const Values& in) { return Values{in[0] + in[0]}; });
}
GraphPointer negated(const Type& type) {
  return part({type}, [](Graph&, const Values& in) { return Values{-in[0]}; });
}

TEST_F(Loops, hold_branches_that_the_carry_decides) {
  const Type x{f32, {4}};
  const GraphPointer body = part({step_type, x, flag_type}, [&](Graph& graph, const Values& in) {
    const Values chosen = add_op(graph, op::If{doubled(x), negated(x)}, {in[2], in[1]});
    return Values{chosen[0], logical_not(in[2]), chosen[0]};
  });
  const std::string plan =
      check({ramp({4}), Tensor::scalar(true)}, [&](Graph& graph, const Values& in) {
        return add_op(graph, op::Scan{body, 5, 2, 0, false}, in);
      });
  EXPECT_TRUE(is_planned(plan)) << plan;
}

TEST_F(Loops, stand_in_branches) {
  const Type x{f32, {6}};
  const GraphPointer looping = part({step_type, x, step_type}, [](Graph& graph, const Values& in) {
    return Values{counting(graph, in)[1]};
  });
  const GraphPointer same =
      part({step_type, x, step_type}, [](Graph&, const Values& in) { return Values{in[1]}; });
  for (const bool condition : {true, false}) {
    const std::string plan = check(
        {Tensor::scalar(condition), Tensor::scalar<std::int64_t>(1), ramp({6}),
         Tensor::scalar<std::int64_t>(4)},
        [&](Graph& graph, const Values& in) { return add_op(graph, op::If{looping, same}, in); });
    EXPECT_TRUE(is_planned(plan)) << plan;
  }
}

TEST_F(Loops, large_bodies_run_on_all_threads) {
  const std::int64_t n = 256;
  const Type carry{f32, {n, n}};
  const GraphPointer body = part({step_type, carry, carry}, [](Graph& graph, const Values& in) {
    return Values{tanh(matmul(in[1], in[2]) * graph.constant(f32, 0.01)) + in[1]};
  });
  const std::string plan = check({ramp({n, n}), ramp({n, n})}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{body, 3, 1, 0, false}, in);
  });
  EXPECT_TRUE(is_planned(plan)) << plan;
}

TEST_F(Loops, carries_that_nothing_changes_are_no_carries) {
  const Type x{f32, {3}};
  const GraphPointer body = part(
      {step_type, x, x}, [](Graph&, const Values& in) { return Values{in[1] + in[2], in[2]}; });
  const std::string plan = check({ramp({3}), ramp({3}, 2)}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{body, 3, 2, 0, false}, in);
  });
  EXPECT_EQ(plan.find("carry", plan.find("carry") + 1), plan.rfind("carry")) << plan;
  const GraphPointer nothing =
      part({step_type, x}, [](Graph&, const Values& in) { return Values{in[1]}; });
  check({ramp({3})}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{nothing, 3, 1, 0, false}, in);
  });
}

TEST_F(Loops, carries_may_change_places) {
  const Type x{f32, {3}};
  const GraphPointer body = part(
      {step_type, x, x}, [](Graph&, const Values& in) { return Values{in[2], in[1] + in[2]}; });
  for (const std::int64_t length : {1, 2, 3}) {
    check({ramp({3}), ramp({3}, 2)}, [&](Graph& graph, const Values& in) {
      return add_op(graph, op::Scan{body, length, 2, 0, false}, in);
    });
  }
}

TEST_F(Loops, the_same_value_may_be_carry_slice_and_capture) {
  const Type x{f32, {3, 3}}, row{f32, {3}};
  const GraphPointer body = part({step_type, x, row, x}, [](Graph&, const Values& in) {
    return Values{in[1] + in[2] * in[3], in[2]};
  });
  check({ramp({3, 3})}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{body, 3, 1, 1, true}, {in[0], in[0], in[0]});
  });
}

TEST_F(Loops, indices_outside_an_axis_are_errors_inside_too) {
  Graph graph;
  const Value x = graph.input("x", f32, {4}), index = graph.input("index", i64, {3});
  const GraphPointer body = part({step_type, {i64, {}}, {f32, {4}}}, [](Graph&, const Values& in) {
    return Values{gather(in[2], in[1], 0)};
  });
  graph.output("y", add_op(graph, op::Scan{body, 3, 0, 1, false}, {index, x})[0]);
  CompiledGraph program = session_.compile(graph).value();
  const Tensor values = ramp({4});
  const Tensor good = Tensor::of<std::int64_t>({3}, {3, 0, 1}),
               bad = Tensor::of<std::int64_t>({3}, {3, 9, 1});
  EXPECT_TRUE(program.run_typed(std::vector<NamedInput>{{"x", values}, {"index", good}}).ok());
  const auto outputs = program.run_typed(std::vector<NamedInput>{{"x", values}, {"index", bad}});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().message, "An index of a gather lies outside its axis.");
}

TEST_F(Loops, bodies_whose_dims_data_decides_are_evaluated) {
  const Type x{f32, {4}};
  const GraphPointer body = part({step_type, x}, [](Graph& graph, const Values& in) {
    const Value places = add_op(graph, op::NonZero{}, {in[1]})[0];
    const Value count = sum(cast(add_op(graph, op::ShapeOf{}, {places})[0], f32), {0});
    return Values{in[1] * in[1], count};
  });
  const std::string plan = check({ramp({4})}, [&](Graph& graph, const Values& in) {
    return add_op(graph, op::Scan{body, 2, 1, 0, false}, in);
  });
  EXPECT_FALSE(is_planned(plan));
}

}  // namespace
}  // namespace rlx
