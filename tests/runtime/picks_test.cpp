// Elements picked by computed indices, as parts of generated kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using Build = std::function<Value(Graph&, const Values&)>;

Tensor ramp(const Dims& dims) {
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F - 3;
  return Tensor::of<float>(dims, std::span<const float>(values));
}

/// Compiled and evaluated on those inputs: the same, without a host call.
void check(const std::vector<Tensor>& inputs, const Build& build) {
  Graph graph;
  Values values;
  std::vector<NamedInput> named;
  for (const Tensor& input : inputs) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(graph.input(name, input.dtype(), to_shape(input.dims())));
    named.emplace_back(name, input);
  }
  graph.output("y", build(graph, values));
  const Tensor expected = evaluate_graph(graph, inputs).value()[0];
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  EXPECT_EQ(program.stage_text("lir").value().find("host"), std::string::npos);
  const Outputs outputs = program.run_typed(named).value();
  ASSERT_EQ(outputs[0].dims(), expected.dims());
  EXPECT_TRUE(std::equal(expected.data(), expected.data() + expected.bytes(), outputs[0].data()));
}

// What is picked from is computed over the same points as the indices: it must be stored first.
TEST(Picks, elements_of_a_value_with_the_dims_of_the_indices) {
  const Tensor ids = Tensor::of<std::int64_t>({2, 3}, {1, 0, -1, 0, -2, 1});
  for (const std::int64_t axis : {0, -2}) {
    check({ramp({2, 3}), ids}, [&](Graph& graph, const Values& in) {
      const Value x = in[0] * in[0], places = in[1] + in[1] - in[1];
      return graph.add_one(op::GatherElements{axis}, {x, places}) + x;
    });
  }
  check({ramp({3}), Tensor::of<std::int64_t>({3}, {2, 0, -1})}, [](Graph&, const Values& in) {
    const Value x = exp(in[0]);
    return gather(x, in[1] + in[1] - in[1], 0) + x;
  });
}

TEST(Picks, elements_of_fewer_lines_than_there_are) {
  const Tensor ids = Tensor::of<std::int64_t>({2, 2}, {4, 0, -5, 3});
  check({ramp({3, 5}), ids}, [](Graph& graph, const Values& in) {
    return graph.add_one(op::GatherElements{1}, {in[0], in[1]});
  });
}

TEST(Picks, blocks_by_rows_of_indices) {
  const Tensor pairs = Tensor::of<std::int64_t>({2, 2}, {1, -1, -2, 0});
  check({ramp({3, 4, 5}), pairs}, [](Graph& graph, const Values& in) {
    return graph.add_one(op::GatherNd{}, {in[0] + in[0], in[1]});
  });
  // Result and indices have the same dims, and still other points.
  check({ramp({3, 4}), pairs}, [](Graph& graph, const Values& in) {
    const Value rows =
        graph.add_one(op::GatherNd{}, {in[0], unsqueeze(reshape(in[1] + in[1] - in[1], {4}), {1})});
    return rows + rows;
  });
  check({ramp({2, 4, 3}), Tensor::of<std::int64_t>({2, 3, 1}, {0, 3, -1, 1, 1, 2})},
        [](Graph& graph, const Values& in) {
          return graph.add_one(op::GatherNd{1}, {in[0], in[1]});
        });
}

TEST(Picks, slices_whose_starts_are_clamped) {
  for (const std::int64_t start : {-7, 0, 2, 99}) {
    check({ramp({5, 4}), Tensor::scalar(start)}, [](Graph& graph, const Values& in) {
      const Value zero = graph.constant(i64, 0);
      return graph.add_one(op::DynamicSlice{{2, 4}}, {in[0] + in[0], in[1] + zero, zero});
    });
  }
}

TEST(Picks, one_hot_lines) {
  check({Tensor::of<std::int32_t>({2, 2}, {0, 3, -1, 7}), ramp({2})},
        [](Graph& graph, const Values& in) {
          return graph.add_one(op::OneHot{1, 4}, {in[0], in[1]});
        });
}

TEST(Picks, places_outside_are_errors) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 3}), ids = graph.input("ids", i64, {1, 3});
  graph.output("y", graph.add_one(op::GatherElements{0}, {x, ids}));
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const Tensor bad = Tensor::of<std::int64_t>({1, 3}, {0, 2, 1});
  const auto outputs =
      program.run_typed(std::vector<NamedInput>{{"x", ramp({2, 3})}, {"ids", bad}});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().message, "An index of a gather lies outside its axis.");
}

// Sums that f32 cannot hold exactly, and as many as f32 can.
TEST(Products, of_bytes_are_exact) {
  for (const std::int64_t depth : {7, 258, 259, 1000}) {
    Tensor a(u8, {3, depth}), b(u8, {depth, 5});
    for (Tensor* tensor : {&a, &b})
      for (std::int64_t i = 0; i < tensor->elements(); ++i)
        tensor->mutable_data()[i] = static_cast<std::byte>(255 - i % 3);
    check({a, b}, [](Graph& graph, const Values& in) {
      return graph.add_one(op::IntegerMatmul{}, {in[0], in[1]});
    });
  }
}

TEST(Products, of_integers_wrap) {
  const Tensor a = Tensor::of<std::int32_t>({2, 3}, {1 << 30, -7, 3, 1 << 20, 5, 6}),
               b = Tensor::of<std::int32_t>({3, 2}, {4, 1 << 20, 5, -3, 1 << 30, 9});
  check({a, b}, [](Graph&, const Values& in) { return matmul(in[0], in[1]); });
}

}  // namespace
}  // namespace rlx
