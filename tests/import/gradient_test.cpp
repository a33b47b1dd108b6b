// Derivatives beside differences.
#include "import/onnx/gradient.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "../ops/sample_inputs.hpp"
#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/rlx.hpp"

namespace rlx::onnx {
namespace {

using Function = std::function<Value(const Values&)>;

double total(const Tensor& tensor) {
  double sum = 0;
  for (const double value : tensor.as<double>()) sum += value;
  return sum;
}

/// Compares the derivatives of the sum of `function` with central differences in f64.
void expect_as_differences(const std::vector<Shape>& shapes, const Function& function) {
  Graph graph;
  Values xs;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    xs.push_back(graph.input("x" + std::to_string(i), f64, shapes[i]));
  const Value y = function(xs);
  graph.output("y", y);
  const Values derivatives = gradients(y, xs);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    ASSERT_EQ(derivatives[i].type(), xs[i].type());
    graph.output("d" + std::to_string(i), derivatives[i]);
  }
  std::mt19937 generator(7);
  std::vector<Tensor> inputs;
  for (const Value& x : xs) inputs.push_back(testing::noise(x.type(), 0.5, 1.5, generator));
  const std::vector<Tensor> at = evaluate_graph(graph, inputs).value();
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    auto* const values = reinterpret_cast<double*>(inputs[i].mutable_data());
    for (std::int64_t k = 0; k < inputs[i].elements(); ++k) {
      const double value = values[k];
      values[k] = value + step;
      const double above = total(evaluate_graph(graph, inputs).value()[0]);
      values[k] = value - step;
      const double below = total(evaluate_graph(graph, inputs).value()[0]);
      values[k] = value;
      EXPECT_NEAR(at[i + 1].as<double>()[static_cast<std::size_t>(k)], (above - below) / (2 * step),
                  1e-6)
          << "x" << i << "[" << k << "]";
    }
  }
}

TEST(Gradient, of_maps_with_broadcasts) {
  expect_as_differences({{2, 3}, {3}}, [](const Values& x) { return x[0] + x[1] * x[1]; });
  expect_as_differences({{2, 3}, {2, 1}}, [](const Values& x) { return x[0] / x[1] - x[1]; });
  expect_as_differences({{3}, {}}, [](const Values& x) { return pow(x[0], x[1]) * -x[0]; });
  expect_as_differences({{4}}, [](const Values& x) {
    return exp(x[0]) + log(x[0]) * sqrt(x[0]) + reciprocal(x[0]) * tanh(x[0]);
  });
  expect_as_differences({{4}}, [](const Values& x) {
    const Value centred = x[0] - x[0].graph().constant(f64, 1);
    return sigmoid(sin(x[0]) * cos(x[0])) + relu(centred) + abs(centred) * x[0];
  });
}

TEST(Gradient, of_products) {
  expect_as_differences({{2, 3}, {3, 4}, {4}},
                        [](const Values& x) { return tanh(matmul(x[0], x[1]) + x[2]); });
  expect_as_differences({{2, 2, 3}, {2, 3, 2}}, [](const Values& x) {
    const Value y = matmul(x[0], x[1]);
    return y * y;
  });
  // Axes in no order: batch last in one, sums over two axes that lie the other way round in the
  // other.
  expect_as_differences({{3, 2, 4, 2}, {2, 2, 3, 5}}, [](const Values& x) {
    const op::DotGeneral product{
        .a_batch = {3}, .b_batch = {0}, .a_contract = {0, 1}, .b_contract = {2, 1}};
    const Value y = x[0].graph().add_one(product, {x[0], x[1]});
    return y * y;
  });
}

TEST(Gradient, of_what_moves_and_sums_up) {
  expect_as_differences({{2, 3}}, [](const Values& x) {
    const Value y = reshape(transpose(x[0], {1, 0}), {6});
    return y * y * y;
  });
  expect_as_differences({{2, 3, 2}}, [](const Values& x) {
    const Value spread = x[0] - mean(x[0], {0, 2}, true);
    return sum(spread * spread, {1}) * mean(x[0], {-2}, false);
  });
  expect_as_differences({{1, 3}}, [](const Values& x) {
    const Value y = broadcast(x[0], {2, 2, 3});
    return y * y;
  });
  expect_as_differences({{2}}, [](const Values& x) {
    const Value narrow = cast(x[0] * x[0].graph().constant(f64, 0), f32);
    return x[0] * x[0] + cast(narrow, f64);
  });
}

TEST(Gradient, is_zero_where_nothing_depends_on_it) {
  expect_as_differences({{2}, {3}}, [](const Values& x) { return x[0] * x[0]; });
}

TEST(Gradient, through_other_ops_is_refused_by_name) {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  try {
    gradients(floor(x), {x});
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.error().message, "Gradients through (floor) are not supported.");
  }
}

/// d = (a + b) * a, and its derivatives where other values than a and b are fed.
TEST(Gradient, of_other_values_than_the_named_ones) {
  using namespace test;
  const auto model = [](const std::vector<std::string>& fed, const std::vector<std::string>& xs,
                        const std::vector<std::string>& zs) {
    GraphParts parts;
    for (const char* name : {"a", "b", "p", "q"})
      parts.inputs.push_back(value_info(name, onnx_float, {}));
    parts.outputs = {value_info("da", onnx_float, {}), value_info("db", onnx_float, {})};
    std::vector<Message> attributes{strings_attribute("xs", xs), string_attribute("y", "d")};
    if (!zs.empty()) attributes.push_back(strings_attribute("zs", zs));
    parts.nodes = {node("Add", {"a", "b"}, {"c"}), node("Mul", {"c", "a"}, {"d"}),
                   node("Gradient", fed, {"da", "db"}, attributes, "ai.onnx.preview.training")};
    return import_onnx(model_message(parts).span(), {});
  };
  const std::vector<Tensor> inputs{Tensor::scalar(2.0F), Tensor::scalar(3.0F), Tensor::scalar(5.0F),
                                   Tensor::scalar(7.0F)};
  const auto results = [&](const Graph& graph) {
    const std::vector<Tensor> values = evaluate_graph(graph, inputs).value();
    return std::pair(values[0].as<float>()[0], values[1].as<float>()[0]);
  };
  EXPECT_EQ(results(model({"a", "b"}, {"a", "b"}, {}).value()), std::pair(7.0F, 2.0F));
  EXPECT_EQ(results(model({"p", "q"}, {"a", "b"}, {}).value()), std::pair(17.0F, 5.0F));
  const auto wrong = model({"p"}, {"a", "b"}, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("It names (2) values and is fed (1)."), std::string::npos);
}

}  // namespace
}  // namespace rlx::onnx
