// Attention as one kernel: beside the op's reference evaluation, and how many kernels it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "../ops/sample_inputs.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

struct Case {
  op::Attention attributes;
  Dims q, k, v;
  std::optional<Type> mask;
  DType dtype = f32;
};

std::vector<Tensor> inputs_of(const Case& c) {
  std::mt19937 generator(7);
  std::vector<Tensor> inputs;
  for (const Dims& dims : {c.q, c.k, c.v}) {
    inputs.push_back(testing::noise({c.dtype, Shape(dims.begin(), dims.end())}, -2, 2, generator));
  }
  if (c.mask) inputs.push_back(testing::noise(*c.mask, -3, 3, generator));
  return inputs;
}

Graph graph_of(const Case& c, const std::vector<Tensor>& inputs) {
  Graph graph;
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Dims& dims = inputs[i].dims();
    values.push_back(
        graph.input(std::string(1, "qkvm"[i]), inputs[i].dtype(), Shape(dims.begin(), dims.end())));
  }
  graph.output("y", attention(values[0], values[1], values[2],
                              values.size() > 3 ? values[3] : Value(), c.attributes));
  return graph;
}

std::vector<double> numbers(const TensorView& tensor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    result.push_back(load_datum(tensor.dtype, tensor.data, i).number.real());
  return result;
}

int steps_of(const CompiledGraph& program) {
  const std::string text = program.stage_text("lir").value();
  int count = 0;
  for (std::size_t at = 0; (at = text.find("\nstep ", at)) != std::string::npos; ++at) ++count;
  return count;
}

CompiledGraph compiled(const Graph& graph, bool fusion, int threads) {
  static Session session(Device::cpu);
  return session.compile(graph, {.disable_fusion = !fusion, .threads = threads}).value();
}

/// Both ways and both numbers of threads give the reference's values. Gives the fused kernels.
int expect_as_reference(const Case& c) {
  const std::vector<Tensor> inputs = inputs_of(c);
  const std::vector<double> wanted = numbers(evaluate(Op(c.attributes), inputs).value()[0]);
  const double allowed = c.dtype == bf16 ? 2e-2 : c.dtype == f16 ? 2e-3 : 2e-5;
  int steps = 0;
  for (const bool fusion : {false, true}) {
    for (const int threads : {1, 2}) {
      CompiledGraph program = compiled(graph_of(c, inputs), fusion, threads);
      std::vector<NamedInput> named;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        named.emplace_back(std::string(1, "qkvm"[i]), inputs[i]);
      const Outputs outputs = program.run(named).value();
      const std::vector<double> made = numbers(outputs["y"]);
      EXPECT_EQ(made.size(), wanted.size());
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (std::abs(made[i] - wanted[i]) <= allowed * (1 + std::abs(wanted[i]))) continue;
        ADD_FAILURE() << "element " << i << " is " << made[i] << ", should be " << wanted[i]
                      << (fusion ? " fused" : " one by one") << ", threads " << threads;
        break;
      }
      if (fusion) steps = steps_of(program);
    }
  }
  return steps;
}

TEST(Attention, of_every_shape_is_one_kernel) {
  for (const Case& c : {
           Case{.q = {1, 12, 16, 32}, .k = {1, 12, 16, 32}, .v = {1, 12, 16, 32}},
           Case{.q = {2, 4, 37, 20}, .k = {2, 4, 53, 20}, .v = {2, 4, 53, 13}},  // cross, odd dims
           Case{.q = {2, 8, 9, 16}, .k = {2, 2, 40, 16}, .v = {2, 2, 40, 16}},   // shared heads
           Case{.q = {2, 6, 1, 24}, .k = {2, 3, 70, 24}, .v = {2, 3, 70, 24}},   // one query
           Case{.q = {1, 1, 200, 8}, .k = {1, 1, 300, 8}, .v = {1, 1, 300, 70}},
       }) {
    SCOPED_TRACE(::testing::Message() << c.q[0] << "," << c.q[1] << "," << c.q[2] << "," << c.q[3]);
    EXPECT_EQ(expect_as_reference(c), 1);
  }
}

TEST(Attention, with_masks_is_one_kernel) {
  const Dims q{2, 4, 21, 16}, k{2, 2, 34, 16}, few{2, 2, 21, 16};
  for (const Case& c : {
           Case{.attributes = {.causal = true}, .q = q, .k = k, .v = k},
           Case{.attributes = {.softcap = 3, .causal = true, .causal_offset = 2},
                .q = q,
                .k = k,
                .v = k},
           Case{.attributes = {.window = 3}, .q = q, .k = k, .v = k},
           Case{.attributes = {.scale = 0.7}, .q = q, .k = k, .v = k, .mask = Type{f32, {21, 34}}},
           Case{.q = q, .k = k, .v = k, .mask = Type{f32, {2, 1, 1, 34}}},
           Case{.q = q, .k = k, .v = k, .mask = Type{boolean, {2, 4, 21, 34}}},
           Case{.attributes = {.causal = true},
                .q = {2, 4, 34, 16},
                .k = few,
                .v = few},  // rows that see nothing
       }) {
    SCOPED_TRACE(::testing::Message() << "mask " << (c.mask ? c.mask->text() : "none"));
    EXPECT_EQ(expect_as_reference(c), 1);
  }
}

// Heads inside rows: the queries are read and the result is written through strides; the output's
// own buffer takes a copy.
TEST(Attention, of_heads_inside_rows) {
  const Dims q{2, 19, 4, 16}, k{2, 33, 2, 16};
  EXPECT_LE(
      expect_as_reference({.attributes = {.causal = true, .bshd = true}, .q = q, .k = k, .v = k}),
      2);
}

// As exporters write it: heads are parts of rows that reshape and transpose show; nothing is
// copied.
TEST(Attention, taken_apart_is_one_kernel) {
  const std::int64_t batch = 2, length = 24, heads = 3, width = 8;
  Graph graph;
  const Shape rows{batch, length, heads * width}, parts{batch, length, heads, width};
  const auto split = [&](const char* name, const Axes& order) {
    return transpose(reshape(graph.input(name, f32, rows), parts), order);
  };
  const Value q = split("q", {0, 2, 1, 3}), k = split("k", {0, 2, 3, 1}),
              v = split("v", {0, 2, 1, 3});
  const Value mask = graph.input("m", f32, {batch, 1, 1, length});
  const Value scores = matmul(q, k) / graph.constant(f32, std::sqrt(double(width))) + mask;
  const Value heads_out = matmul(softmax(scores), v);
  graph.output("y", reshape(transpose(heads_out, {0, 2, 1, 3}), rows));

  std::mt19937 generator(3);
  std::vector<Tensor> inputs;
  std::vector<NamedInput> named;
  for (int i = 0; i < 3; ++i) inputs.push_back(testing::noise({f32, rows}, -1, 1, generator));
  inputs.push_back(testing::noise({f32, {batch, 1, 1, length}}, -4, 0, generator));
  for (std::size_t i = 0; i < 4; ++i) named.emplace_back(std::string(1, "qkvm"[i]), inputs[i]);
  CompiledGraph fused = compiled(graph, true, 2), apart = compiled(graph, false, 1);
  EXPECT_EQ(steps_of(fused), 1);
  const Outputs made = fused.run(named).value(), wanted = apart.run(named).value();
  for (std::size_t i = 0; i < wanted["y"].as<float>().size(); ++i)
    ASSERT_NEAR(made["y"].as<float>()[i], wanted["y"].as<float>()[i], 1e-5) << i;
}

// Heads that share keys and values, repeated side by side or all together, scaled and masked: no
// repetition is stored. Rows that see no key are NaN, as the softmax says.
TEST(Attention, of_repeated_heads_is_one_kernel) {
  for (const bool together : {false, true}) {
    Graph graph;
    const Value q = graph.input("q", f32, {2, 6, 5, 8}), k = graph.input("k", f32, {2, 2, 7, 8}),
                v = graph.input("v", f32, {2, 2, 7, 8}), mask = graph.input("m", f32, {2, 1, 5, 7});
    const Shape apart = together ? Shape{2, 1, 2, 7, 8} : Shape{2, 2, 1, 7, 8},
                all = together ? Shape{2, 3, 2, 7, 8} : Shape{2, 2, 3, 7, 8};
    const auto repeat = [&](Value x) {
      return reshape(broadcast(reshape(x, apart), all), {2, 6, 7, 8});
    };
    const Value keys = transpose(repeat(k), {0, 1, 3, 2}) * graph.constant(f32, 0.5);
    graph.output("y", matmul(softmax(matmul(q, keys) + mask), repeat(v)));
    std::mt19937 generator(3);
    std::vector<Tensor> inputs;
    for (const Shape& shape : {Shape{2, 6, 5, 8}, Shape{2, 2, 7, 8}, Shape{2, 2, 7, 8}})
      inputs.push_back(testing::noise({f32, shape}, -1, 1, generator));
    inputs.push_back(testing::noise({f32, {2, 1, 5, 7}}, -4, 0, generator));
    std::fill_n(reinterpret_cast<float*>(inputs[3].mutable_data()), 7, -INFINITY);
    std::vector<NamedInput> named;
    for (std::size_t i = 0; i < 4; ++i) named.emplace_back(std::string(1, "qkvm"[i]), inputs[i]);
    CompiledGraph fused = compiled(graph, true, 2);
    EXPECT_EQ(steps_of(fused), 1);
    const Outputs made = fused.run(named).value();
    const std::vector<double> wanted = numbers(evaluate_graph(graph, inputs).value()[0]),
                              found = numbers(made["y"]);
    EXPECT_TRUE(std::isnan(found[0]) && !std::isnan(found[8]));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(std::isnan(wanted[i]) ? std::isnan(found[i])
                                        : std::abs(found[i] - wanted[i]) < 1e-5)
          << i;
  }
}

// Scores that the caller asks for must be stored: two kernels.
TEST(Attention, whose_scores_are_an_output_is_not_one_kernel) {
  Graph graph;
  const Value q = graph.input("q", f32, {2, 20, 8}), k = graph.input("k", f32, {2, 8, 20});
  const Value shares = softmax(matmul(q, k));
  graph.output("shares", shares);
  graph.output("y", matmul(shares, graph.input("v", f32, {2, 20, 8})));
  EXPECT_EQ(steps_of(compiled(graph, true, 1)), 2);
}

TEST(Attention, of_other_types) {
  for (const DType dtype : {f64, f16, bf16}) {
    SCOPED_TRACE(name_of(dtype));
    expect_as_reference(
        {.q = {2, 4, 17, 16}, .k = {2, 2, 23, 16}, .v = {2, 2, 23, 16}, .dtype = dtype});
  }
}

/// Rows whose last columns are hidden: by a mask of bools or numbers, the same for all rows or not.
TEST(Attention, ends_at_the_last_column_that_is_visible) {
  for (const std::int64_t keys : {128, 131, 400}) {
    for (const std::int64_t queries : {1, 70}) {
      for (const std::int64_t visible : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63},
                                         std::int64_t{64}, std::int64_t{65}, keys - 1, keys}) {
        for (const int kind : {0, 1, 2}) {
          SCOPED_TRACE(::testing::Message() << queries << " queries, " << keys << " keys, "
                                            << visible << " visible, kind " << kind);
          std::mt19937 generator(3);
          std::vector<Tensor> inputs;
          for (const std::int64_t rows : {queries, keys, keys})
            inputs.push_back(testing::noise({f32, {1, 2, rows, 16}}, -2, 2, generator));
          const bool added = kind == 2;
          Tensor mask(added ? f32 : boolean, {queries, keys});
          for (std::int64_t row = 0; row < queries; ++row) {
            const std::int64_t end = kind == 1 ? (visible + 7 * row) % (keys + 1) : visible;
            for (std::int64_t column = 0; column < keys; ++column) {
              const std::int64_t at = row * keys + column;
              if (added) {
                reinterpret_cast<float*>(mask.mutable_data())[at] = column < end ? 0.5F : -1e4F;
              } else {
                mask.mutable_data()[at] = std::byte{column < end};
              }
            }
          }
          inputs.push_back(mask);
          // Scores of -1e4 are rounded where only those are left.
          const double allowed = added && visible == 0 ? 1e-3 : 2e-5;
          // A softmax as exporters write it knows no rows without columns.
          const op::Attention attributes{.blind_rows_are_nan = kind == 0 && visible > 0};
          const std::vector<double> wanted = numbers(evaluate(Op(attributes), inputs).value()[0]);
          for (const int threads : {1, 2}) {
            CompiledGraph program = compiled(graph_of({attributes}, inputs), true, threads);
            EXPECT_EQ(steps_of(program), 1);
            std::vector<NamedInput> named;
            for (std::size_t i = 0; i < inputs.size(); ++i)
              named.emplace_back(std::string(1, "qkvm"[i]), inputs[i]);
            const std::vector<double> found = numbers(program.run(named).value()[0]);
            ASSERT_EQ(found.size(), wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i)
              ASSERT_NEAR(found[i], wanted[i], allowed) << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace rlx
