// Dims that data decides have names: what follows computes with them as with symbols of inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/ops.hpp"
#include "rlx/runtime.hpp"

namespace rlx::test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

/// x f32[6, 4] of 0, 1, ..., of which `keep` leaves rows 1, 2 and 5 as "k"; "dims" is its shape,
/// "rows" its first dim; then come these nodes.
Graph behind_kept_rows(const std::vector<Message>& nodes,
                       const std::vector<Message>& constants = {}, std::int64_t opset = 18) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{6}, {4}}), value_info("keep", 9, {{6}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("first", onnx_int64, {1}, raw_integers({0})),
                        tensor("four", onnx_int64, {1}, raw_integers({4})),
                        tensor("both", onnx_int64, {2}, raw_integers({2, 2}))};
  parts.initializers.insert(parts.initializers.end(), constants.begin(), constants.end());
  parts.nodes = {node("Compress", {"x", "keep"}, {"k"}, {integer_attribute("axis", 0)}),
                 node("Shape", {"k"}, {"dims"}), node("Gather", {"dims", "first"}, {"rows"})};
  parts.nodes.insert(parts.nodes.end(), nodes.begin(), nodes.end());
  return import_onnx(model_message(parts, opset).span(), {}).value();
}

/// What a graph of behind_kept_rows gives: evaluated, and compiled where that gives the same.
Tensor run(const Graph& graph) {
  std::vector<float> numbers(24);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor x = Tensor::of<float>({6, 4}, numbers);
  const Tensor keep = Tensor::of<bool>({6}, {false, true, true, false, false, true});
  const Tensor evaluated = evaluate_graph(graph, std::vector<Tensor>{x, keep}).value()[0];
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const auto outputs = program.run({{"x", x}, {"keep", keep}});
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  if (!outputs.ok()) return evaluated;
  const Tensor& compiled = outputs.value()[0];
  EXPECT_EQ(compiled.dims(), evaluated.dims());
  EXPECT_THAT(compiled.as<float>(), ElementsAreArray(evaluated.as<float>()));
  return evaluated;
}

std::string type_of(const Graph& graph) { return graph.type(graph.outputs()[0].value).text(); }

TEST(DataDims, HaveNamesThatFollow) {
  const Graph graph =
      behind_kept_rows({node("Concat", {"k", "k"}, {"y"}, {integer_attribute("axis", 0)})});
  EXPECT_EQ(type_of(graph), "f32[(data_1+data_1),4]");
  EXPECT_EQ(run(graph).dims(), (Dims{6, 4}));
}

TEST(DataDims, AreNotThoseOfInputs) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{.symbol = "data_1"}, {4}}),
                  value_info("keep", 9, {{.symbol = "data_1"}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {node("Compress", {"x", "keep"}, {"y"}, {integer_attribute("axis", 0)})};
  EXPECT_EQ(type_of(import_onnx(model_message(parts).span(), {}).value()), "f32[data_2,4]");
}

TEST(DataDims, FillShapes) {
  const Graph graph = behind_kept_rows(
      {node("ConstantOfShape", {"dims"}, {"zeros"}), node("Add", {"k", "zeros"}, {"y"})});
  EXPECT_EQ(type_of(graph), "f32[data_1,4]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23));
}

TEST(DataDims, AreBroadcastTo) {
  const Graph graph =
      behind_kept_rows({node("Expand", {"column", "dims"}, {"e"}), node("Mul", {"e", "k"}, {"y"})},
                       {tensor("column", onnx_float, {1, 1}, raw_floats({2}))});
  EXPECT_EQ(type_of(graph), "f32[data_1,4]");
  EXPECT_EQ(run(graph).as<float>()[0], 8);
}

// Which of two dims is 1 is not known before data tells them.
TEST(DataDims, OfTwoValuesAreBroadcast) {
  const Graph graph = behind_kept_rows(
      {node("Compress", {"x", "one"}, {"row"}, {integer_attribute("axis", 0)}),
       node("Add", {"row", "k"}, {"sum"}), node("Shape", {"sum"}, {"sum_dims"}),
       node("Expand", {"half", "sum_dims"}, {"halves"}), node("Mul", {"sum", "halves"}, {"y"})},
      {tensor("one", 9, {6}, std::string("\1\0\0\0\0\0", 6)),
       tensor("half", onnx_float, {1}, raw_floats({0.5F}))});
  EXPECT_EQ(type_of(graph), "f32[(data_2|data_1),4]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(2, 3, 4, 5, 4, 5, 6, 7, 10, 11, 12, 13));
}

TEST(DataDims, CountRanges) {
  const Graph graph = behind_kept_rows(
      {node("Squeeze", {"rows"}, {"n"}), node("Range", {"zero", "n", "step"}, {"r"}),
       node("Cast", {"r"}, {"y"}, {integer_attribute("to", 1)})},
      {tensor("zero", onnx_int64, {}, raw_integers({0})),
       tensor("step", onnx_int64, {}, raw_integers({1}))});
  EXPECT_EQ(type_of(graph), "f32[data_1]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(0, 1, 2));
}

TEST(DataDims, AreReshapedAndTiled) {
  const Graph graph = behind_kept_rows(
      {node("Concat", {"rows", "both"}, {"apart"}, {integer_attribute("axis", 0)}),
       node("Reshape", {"k", "apart"}, {"square"}), node("Tile", {"square", "repeats"}, {"y"})},
      {tensor("repeats", onnx_int64, {3}, raw_integers({1, 1, 2}))});
  EXPECT_EQ(type_of(graph), "f32[data_1,2,4]");
  const Tensor y = run(graph);
  EXPECT_EQ(y.dims(), (Dims{3, 2, 4}));
  EXPECT_THAT(std::vector<float>(y.as<float>().begin(), y.as<float>().begin() + 8),
              ElementsAre(4, 5, 4, 5, 6, 7, 6, 7));
}

TEST(DataDims, AreSplitInEqualParts) {
  const Graph graph =
      behind_kept_rows({node("Concat", {"k", "k"}, {"twice"}, {integer_attribute("axis", 0)}),
                        node("Split", {"twice"}, {"a", "b"}, {integer_attribute("axis", 0)}),
                        node("Sub", {"a", "b"}, {"y"})},
                       {}, 13);
  EXPECT_EQ(type_of(graph), "f32[((data_1+data_1)/2),4]");
  const Tensor y = run(graph);
  EXPECT_EQ(y.dims(), (Dims{3, 4}));
  EXPECT_THAT(y.as<float>(), testing::Each(0));
}

TEST(DataDims, AreNotSplitUnevenly) {
  const Graph graph =
      behind_kept_rows({node("Split", {"k"}, {"a", "b"}, {integer_attribute("axis", 0)}),
                        node("Concat", {"a", "b"}, {"y"}, {integer_attribute("axis", 0)})},
                       {}, 13);
  const Tensor x(f32, {6, 4});
  const Tensor keep = Tensor::of<bool>({6}, {false, true, true, false, false, true});
  CompiledGraph program = Session(Device::cpu).compile(graph).value();
  const auto outputs = program.run({{"x", x}, {"keep", keep}});
  ASSERT_FALSE(outputs.ok());
  EXPECT_THAT(outputs.error().message, testing::HasSubstr("(data_1/2)) is both (2) and (1)"));
}

TEST(DataDims, StayWhereOtherAxesAreCut) {
  const Graph graph = behind_kept_rows({node("Slice", {"k", "start", "end", "axis"}, {"y"})},
                                       {tensor("start", onnx_int64, {1}, raw_integers({1})),
                                        tensor("end", onnx_int64, {1}, raw_integers({3})),
                                        tensor("axis", onnx_int64, {1}, raw_integers({1}))});
  EXPECT_EQ(type_of(graph), "f32[data_1,2]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(5, 6, 9, 10, 21, 22));
}

TEST(DataDims, StayWhereAllOfThemIsTaken) {
  const Graph graph =
      behind_kept_rows({node("Slice", {"k", "start", "end"}, {"y"})},
                       {tensor("start", onnx_int64, {2}, raw_integers({0, 2})),
                        tensor("end", onnx_int64, {2},
                               raw_integers({std::numeric_limits<std::int64_t>::max(), 4}))});
  EXPECT_EQ(type_of(graph), "f32[data_1,2]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(6, 7, 10, 11, 22, 23));
}

TEST(DataDims, AreCutLater) {
  const Graph graph = behind_kept_rows({node("Slice", {"k", "start", "end"}, {"y"})},
                                       {tensor("start", onnx_int64, {2}, raw_integers({-2, 3})),
                                        tensor("end", onnx_int64, {2}, raw_integers({100, 100}))});
  EXPECT_EQ(type_of(graph), "f32[data_2,1]");
  EXPECT_THAT(run(graph).as<float>(), ElementsAre(11, 23));
}

// Only the dims of the slice are read, and they are in attributes.
TEST(DataDims, AreTakenFromWhatNobodyReads) {
  const Graph graph = behind_kept_rows(
      {node("Slice", {"k", "start", "end"}, {"s"}), node("Shape", {"s"}, {"s_dims"}),
       node("ConstantOfShape", {"s_dims"}, {"zeros"}), node("Exp", {"zeros"}, {"y"})},
      {tensor("start", onnx_int64, {1}, raw_integers({1})),
       tensor("end", onnx_int64, {1}, raw_integers({100}))});
  EXPECT_THAT(run(graph).as<float>(), testing::Each(1));
  EXPECT_EQ(run(graph).dims(), (Dims{2, 4}));
}

TEST(DataDims, KeepTheirAxisWhereOthersAreResized) {
  const Graph graph = behind_kept_rows(
      {node("Resize", {"k", "", "scales"}, {"y"}, {string_attribute("mode", "nearest")})},
      {tensor("scales", onnx_float, {2}, raw_floats({1, 0.5F}))});
  EXPECT_EQ(type_of(graph), "f32[data_1,2]");
  EXPECT_EQ(run(graph).dims(), (Dims{3, 2}));
}

TEST(DataDims, AreResized) {
  const Graph graph = behind_kept_rows(
      {node("Concat", {"both_rows", "four"}, {"sizes"}, {integer_attribute("axis", 0)}),
       node("Resize", {"k", "", "", "sizes"}, {"y"}, {string_attribute("mode", "nearest")})},
      {tensor("both_rows", onnx_int64, {1}, raw_integers({6}))});
  EXPECT_EQ(type_of(graph), "f32[6,4]");
  EXPECT_THAT(run(graph).as<float>().subspan(0, 8), ElementsAre(4, 5, 6, 7, 4, 5, 6, 7));
}

}  // namespace
}  // namespace rlx::test
