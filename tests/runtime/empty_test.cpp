// Values without elements: batches of nothing, sums of nothing, and what is between them.
#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "plan/build.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

Tensor counted(const Dims& dims) {
  std::vector<float> values(static_cast<std::size_t>(Tensor(f32, dims).elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  return Tensor::of<float>(dims, values);
}

/// Compiles and runs what `make` gives of values with these dims, the first an input, the others
/// constants; expects the outputs of the reference evaluation.
template <class Make>
void expect_reference(const std::vector<Dims>& dims, Make&& make) {
  Graph graph;
  Values values{graph.input("x", f32, to_shape(dims[0]))};
  for (std::size_t i = 1; i < dims.size(); ++i) values.push_back(graph.constant(counted(dims[i])));
  const Values outputs = make(graph, values);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    graph.output("y" + std::to_string(i), outputs[i]);
  const Tensor x = counted(dims[0]);
  const std::vector<Tensor> wanted = evaluate_graph(graph, std::vector<Tensor>{x}).value();
  Session session(Device::cpu);
  const Outputs made = session.compile(graph).value().run({{"x", x}}).value();
  ASSERT_EQ(made.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(made[i].dims(), wanted[i].dims());
    for (std::int64_t k = 0; k < wanted[i].elements(); ++k)
      EXPECT_NEAR(made[i].as<float>()[k], wanted[i].as<float>()[k], 1e-4);
  }
}

TEST(Empty, products) {
  const auto product = [](Graph&, const Values& in) { return Values{relu(matmul(in[0], in[1]))}; };
  expect_reference({{0, 64}, {64, 32}}, product);
  expect_reference({{5, 64}, {64, 0}}, product);
  expect_reference({{5, 0}, {0, 32}}, product);
  expect_reference({{0, 5, 64}, {0, 64, 32}}, product);
  expect_reference({{3, 5, 0}, {3, 0, 32}}, product);
}

TEST(Empty, convolutions) {
  const auto convolution = [](std::int64_t groups) {
    return [=](Graph&, const Values& in) {
      return Values{relu(conv(in[0], in[1], {.groups = groups}))};
    };
  };
  expect_reference({{0, 16, 8, 8}, {4, 16, 3, 3}}, convolution(1));
  expect_reference({{0, 4, 8, 8}, {4, 1, 3, 3}}, convolution(4));
}

TEST(Empty, attention) {
  const auto scores = [](Graph&, const Values& in) {
    return Values{matmul(softmax(matmul(in[0], in[1])), in[2])};
  };
  expect_reference({{2, 0, 16}, {2, 16, 8}, {2, 8, 16}}, scores);
  expect_reference({{2, 5, 16}, {2, 16, 0}, {2, 0, 16}}, scores);
  expect_reference({{0, 5, 16}, {0, 16, 8}, {0, 8, 16}}, scores);
}

TEST(Empty, recurrent_layers) {
  const auto gru = [](Graph& graph, const Values& in) {
    const Value no;
    return graph.add(op::Gru{}, Values{in[0], in[1], in[2], no, no, no});
  };
  expect_reference({{0, 2, 8}, {1, 12, 8}, {1, 12, 4}}, gru);
  expect_reference({{3, 0, 8}, {1, 12, 8}, {1, 12, 4}}, gru);
}

TEST(Empty, maps_norms_and_sums) {
  expect_reference({{0, 8}, {8}, {8}}, [](Graph&, const Values& in) {
    const Value normed = layer_norm(in[0], in[1], in[2]);
    return Values{normed, exp(normed) + in[1], sum(normed, {0}), sum(normed, {1}),
                  transpose(normed, {1, 0})};
  });
}

// Experts that no token chose.
TEST(Empty, rows_beside_others) {
  expect_reference({{6, 16}, {16, 32}, {32, 16}}, [](Graph&, const Values& in) {
    Value y = in[0];
    for (const std::int64_t rows : {0, 2, 0}) {
      const Value own = slice(in[0], {0, 0}, {rows, 16});
      y = concat({matmul(relu(matmul(own, in[1])), in[2]), y}, 0);
    }
    return Values{y};
  });
}

// Also where no pass has looked before.
TEST(Empty, plans_have_no_kernel_for_it) {
  Graph graph;
  const Value x = graph.input("x", f32, {0, 64}), w = graph.input("w", f32, {64, 32});
  graph.output("y", exp(matmul(x, w)));
  const plan::Plan plan = plan::build_plan(plan::flatten(graph).value(), {}).value();
  EXPECT_TRUE(plan.kernels.empty());
}

}  // namespace
}  // namespace rlx
