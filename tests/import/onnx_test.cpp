// What the ONNX importer makes of small models: names, dims, folding, weights, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "graph/op_info.hpp"
#include "model_builder.hpp"
#include "rlx/import.hpp"
#include "rlx/ops.hpp"

namespace rlx::test {
namespace {

using testing::HasSubstr;

Graph import(const Message& model, const ImportOptions& options = {}) {
  return import_onnx(model.span(), options).value();
}

Error refused(const Message& model, const ImportOptions& options = {}) {
  auto graph = import_onnx(model.span(), options);
  EXPECT_FALSE(graph.ok());
  return graph.ok() ? Error{} : graph.error();
}

template <class Attributes>
int count(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [](const Node& n) { return n.op.is<Attributes>(); }));
}

GraphParts relu_parts() {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{.symbol = "batch"}, {4}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {node("Relu", {"x"}, {"y"})};
  return parts;
}

TEST(Onnx, KeepsNamesAndSymbols) {
  const Graph graph = import(model_message(relu_parts()));
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.outputs()[0].name, "y");
  EXPECT_EQ(graph.type(graph.outputs()[0].value).text(), "f32[batch,4]");
}

TEST(Onnx, PassesOverFieldsOfAnotherKindAndGroups) {
  Message model = model_message(relu_parts());
  constexpr int ir_version = 1, producer = 2, graph = 7, unknown = 99;
  model.text(ir_version, "no number").integer(producer, 3).real(graph, 1.5f).integer(unknown, 1);
  model.group(unknown, Message().integer(1, 300).group(2, Message().text(3, "inside")));
  EXPECT_EQ(count<op::Relu>(import(model)), 1);
}

TEST(Onnx, RefusesGroupsThatDoNotEnd) {
  const Message model = model_message(relu_parts());
  EXPECT_THAT(refused(Message(model).open_group(5)).message, HasSubstr("ends in the middle"));
  EXPECT_THAT(refused(Message(model).group(5, Message().open_group(6))).message,
              HasSubstr("A group (6) does not end"));
  Message nested = model;
  for (int i = 0; i < 100; ++i) nested.open_group(5);
  EXPECT_THAT(refused(nested).message, HasSubstr("nested too deeply"));
}

TEST(Onnx, NamesUnnamedDimsByInputAndAxis) {
  GraphParts parts = relu_parts();
  parts.inputs = {value_info("x", onnx_float, {{}, {4}})};
  const Graph graph = import(model_message(parts));
  EXPECT_EQ(graph.type(graph.outputs()[0].value).text(), "f32[x:0,4]");
}

TEST(Onnx, BindsSymbolsOfAllInputs) {
  GraphParts parts;
  parts.inputs = {value_info("a", onnx_float, {{.symbol = "n"}}),
                  value_info("b", onnx_float, {{.symbol = "n"}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {node("Add", {"a", "b"}, {"y"})};
  const Graph graph = import(model_message(parts), {.input_dims = {{"a", {3}}}});
  EXPECT_EQ(graph.type(graph.outputs()[0].value).text(), "f32[3]");
  const Error error = refused(model_message(parts), {.input_dims = {{"a", {3}}, {"b", {4}}}});
  EXPECT_THAT(error.message, HasSubstr("The symbol (n) cannot be 3 and 4."));
}

TEST(Onnx, RefusesDimsOfUnknownInputsAndWrongDims) {
  const Message model = model_message(relu_parts());
  EXPECT_THAT(refused(model, {.input_dims = {{"z", {1}}}}).message,
              HasSubstr("There is no input (z) to give dims to."));
  EXPECT_THAT(refused(model, {.input_dims = {{"x", {1}}}}).message, HasSubstr("has rank (2)"));
  EXPECT_THAT(refused(model, {.input_dims = {{"x", {1, 5}}}}).message,
              HasSubstr("is 4 and cannot be 5"));
}

TEST(Onnx, FoldsShapeArithmeticAndKeepsSymbols) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{.symbol = "n"}, {3}, {4}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("first", onnx_int64, {1}, raw_integers({0})),
                        tensor("rest", onnx_int64, {1}, raw_integers({-1}))};
  parts.nodes = {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "first"}, {"n"}),
                 node("Concat", {"n", "rest"}, {"t"}, {integer_attribute("axis", 0)}),
                 node("Reshape", {"x", "t"}, {"y"})};
  const Graph graph = import(model_message(parts));
  EXPECT_EQ(graph.type(graph.outputs()[0].value).text(), "f32[n,12]");
  EXPECT_EQ(count<op::DynamicReshape>(graph), 0);
}

TEST(Onnx, LeavesComputedShapesToTheRun) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{6}}), value_info("s", onnx_int64, {{2}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.nodes = {node("Reshape", {"x", "s"}, {"y"})};
  EXPECT_EQ(count<op::DynamicReshape>(import(model_message(parts))), 1);
  const Tensor shape = Tensor::of<std::int64_t>({2}, {2, -1});
  const Graph fixed = import(model_message(parts), {.input_values = {{"s", shape}}});
  EXPECT_EQ(fixed.type(fixed.outputs()[0].value).text(), "f32[2,3]");
  EXPECT_EQ(count<op::Input>(fixed), 2);
}

/// x with a slice of an unknown length, of which the last element and all with a new axis.
// In graphs inside, where dims have no names.
TEST(Onnx, LeavesAxesOfUnknownDimsToTheRun) {
  GraphParts parts, branch;
  parts.inputs = {value_info("x", onnx_float, {{4}, {2}, {3}}),
                  value_info("begin", onnx_int64, {{2}}), value_info("end", onnx_int64, {{2}}),
                  value_info("condition", 9, {})};
  parts.initializers = {tensor("axes", onnx_int64, {2}, raw_integers({0, 1})),
                        tensor("first", onnx_int64, {1}, raw_integers({0})),
                        tensor("outer", onnx_int64, {2}, raw_integers({0, -1}))};
  parts.outputs = {value_info("squeezed", onnx_float, {}), value_info("widened", onnx_float, {})};
  const std::vector<Message> nodes = {node("Slice", {"x", "begin", "end", "axes"}, {"part"}),
                                      node("Squeeze", {"part", "first"}, {"squeezed"}),
                                      node("Unsqueeze", {"part", "outer"}, {"widened"})};
  branch.outputs = parts.outputs;
  branch.nodes = nodes;
  parts.nodes = {node("If", {"condition"}, {"squeezed", "widened"},
                      {graph_attribute("then_branch", graph_message(branch)),
                       graph_attribute("else_branch", graph_message(branch))})};
  const Graph with_branches = import(model_message(parts));
  const auto branches = std::ranges::find_if(with_branches.nodes(),
                                             [](const Node& one) { return one.op.is<op::If>(); });
  ASSERT_NE(branches, with_branches.nodes().end());
  const Graph& open = *branches->op.as<op::If>()->then_branch;
  EXPECT_EQ(count<op::DynamicReshape>(open), 2);
  const auto types_of = [](const Graph& graph) {
    std::vector<std::string> types;
    for (const GraphOutput& output : graph.outputs())
      types.push_back(graph.type(output.value).text());
    return types;
  };
  EXPECT_EQ(types_of(open), (std::vector<std::string>{"f32[?,3]", "f32[1,?,?,3,1]"}));
  parts.nodes = nodes;
  parts.inputs.pop_back();
  const Message model = model_message(parts);
  EXPECT_EQ(types_of(import(model)),
            (std::vector<std::string>{"f32[data_2,3]", "f32[1,data_1,data_2,3,1]"}));
  const auto integers = [](std::int64_t a, std::int64_t b) {
    return Tensor::of<std::int64_t>({2}, {a, b});
  };
  const Graph fixed =
      import(model, {.input_values = {{"begin", integers(3, 0)}, {"end", integers(4, 1)}}});
  EXPECT_EQ(types_of(fixed), (std::vector<std::string>{"f32[1,3]", "f32[1,1,1,3,1]"}));
}

TEST(Onnx, MakesWeightsParamsAndNumbersConstants) {
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{16}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("w", onnx_float, {16}, raw_floats(std::vector<float>(16, 2))),
                        tensor("k", onnx_float, {}, raw_floats({3}))};
  parts.nodes = {node("Mul", {"x", "w"}, {"a"}), node("Mul", {"a", "k"}, {"y"})};
  const Graph graph = import(model_message(parts));
  EXPECT_EQ(count<op::Param>(graph), 1);
  const Tensor x = Tensor::of<float>({16}, std::vector<float>(16, 5));
  const auto y = evaluate_graph(graph, std::vector<Tensor>{x}).value();
  EXPECT_EQ(y[0].as<float>()[7], 30);
}

TEST(Onnx, LeavesQuantisedWeightsTheirBytes) {
  constexpr int onnx_int8 = 3;
  GraphParts parts;
  parts.inputs = {value_info("x", onnx_float, {{2}})};
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("w", onnx_int8, {2}, std::string("\x04\xfe", 2)),
                        tensor("scale", onnx_float, {}, raw_floats({0.5F}))};
  parts.nodes = {node("DequantizeLinear", {"w", "scale"}, {"real"}),
                 node("Mul", {"x", "real"}, {"y"})};
  const Graph graph = import(model_message(parts));
  EXPECT_EQ(count<op::Dequantize>(graph), 1);
  const Tensor x = Tensor::of<float>({2}, {3, 5});
  const auto y = evaluate_graph(graph, std::vector<Tensor>{x}).value();
  EXPECT_EQ(y[0].as<float>()[0], 6);
  EXPECT_EQ(y[0].as<float>()[1], -5);
}

// The formulas hold for one point, too, where SciPy's windows are 1.
TEST(Onnx, MakesWindowsByTheirFormulas) {
  const std::tuple<const char*, double, double> windows[] = {
      {"HannWindow", 0, 0.75}, {"HammingWindow", 4.0 / 46, 35.5 / 46}, {"BlackmanWindow", 0, 0.63}};
  for (const auto& [name, first, third] : windows) {
    for (const std::int64_t size : {1, 3}) {
      GraphParts parts;
      parts.outputs = {value_info("y", onnx_float, {})};
      parts.initializers = {tensor("size", onnx_int64, {}, raw_integers({size}))};
      parts.nodes = {node(name, {"size"}, {"y"})};
      const auto y = evaluate_graph(import(model_message(parts)), std::vector<Tensor>{}).value();
      ASSERT_EQ(y[0].dims(), (Dims{size})) << name;
      EXPECT_NEAR(y[0].as<float>().front(), first, 1e-7) << name << size;
      const float last = y[0].as<float>().back();
      EXPECT_NEAR(last, size == 3 ? third : first, 1e-7) << name << size;
    }
  }
}

TEST(Onnx, FillsLargeShapesWithoutMaterialising) {
  GraphParts parts;
  parts.outputs = {value_info("y", onnx_float, {})};
  parts.initializers = {tensor("s", onnx_int64, {2}, raw_integers({1 << 20, 1 << 20}))};
  parts.nodes = {node("ConstantOfShape", {"s"}, {"y"})};
  EXPECT_EQ(import(model_message(parts)).outputs().size(), 1u);
}

TEST(Onnx, ReportsAllThatIsMissingAtOnce) {
  GraphParts inner;
  inner.nodes = {node("StringSplit", {"x"}, {"z"})};
  inner.outputs = {value_info("z", onnx_float, {})};
  GraphParts parts = relu_parts();
  parts.inputs.push_back(value_info("s", onnx_string, {{1}}));
  parts.nodes.push_back(node("Banana", {"x"}, {"p"}));
  parts.nodes.push_back(node("Plum", {"x"}, {"q"}, {}, "fruit"));
  parts.nodes.push_back(node("If", {"x"}, {"r"},
                             {graph_attribute("then_branch", graph_message(inner)),
                              graph_attribute("else_branch", graph_message(inner))}));
  const Error error = refused(model_message(parts));
  EXPECT_EQ(error.kind, ErrorKind::unsupported);
  for (const char* part : {"op Banana", "op fruit:Plum", "op StringSplit", "type string"}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
}

TEST(Onnx, NamesTheNodeThatIsWrong) {
  GraphParts parts = relu_parts();
  parts.nodes = {node("Transpose", {"x"}, {"y"}, {integer_attribute("colour", 3)})};
  const Error unknown = refused(model_message(parts));
  EXPECT_EQ(unknown.kind, ErrorKind::bad_input);
  EXPECT_THAT(unknown.message, HasSubstr("It has no attribute (colour)."));
  EXPECT_THAT(unknown.message, HasSubstr("the_Transpose"));
  parts.nodes = {node("Concat", {"x", "x"}, {"y"}, {integer_attribute("axis", 7)})};
  EXPECT_THAT(refused(model_message(parts)).message, HasSubstr("the_Concat"));
  parts.nodes = {node("Relu", {"nobody"}, {"y"})};
  EXPECT_THAT(refused(model_message(parts)).message,
              HasSubstr("The name (nobody) is used before anything defines it."));
}

TEST(Onnx, RefusesTensorsThatDoNotFitTheirDims) {
  GraphParts parts = relu_parts();
  parts.initializers = {tensor("w", onnx_float, {1 << 30, 1 << 30}, "abcd")};
  EXPECT_THAT(refused(model_message(parts)).message, HasSubstr("too large dims"));
  parts.initializers = {tensor("w", onnx_float, {-1}, "abcd")};
  EXPECT_THAT(refused(model_message(parts)).message, HasSubstr("negative dim"));
  parts.initializers = {tensor("w", onnx_float, {2}, "abcd")};
  EXPECT_THAT(refused(model_message(parts)).message,
              HasSubstr("holds 4 bytes and its dims want 8"));
}

TEST(Onnx, ResizesEmptyBatches) {
  const auto resized = [](std::vector<std::int64_t> to, const char* policy) {
    GraphParts parts;
    parts.inputs = {value_info("x", onnx_float, {{0}, {1}, {2}, {4}})};
    parts.initializers = {tensor("to", onnx_int64, {4}, raw_integers(to))};
    parts.outputs = {value_info("y", onnx_float, {})};
    parts.nodes = {node("Resize", {"x", "", "", "to"}, {"y"},
                        {string_attribute("mode", "linear"),
                         string_attribute("keep_aspect_ratio_policy", policy)})};
    return model_message(parts);
  };
  const auto type_of = [](const Graph& graph) {
    return graph.type(graph.outputs()[0].value).text();
  };
  EXPECT_EQ(type_of(import(resized({0, 1, 4, 6}, "stretch"))), "f32[0,1,4,6]");
  EXPECT_EQ(type_of(import(resized({0, 2, 4, 6}, "not_larger"))), "f32[0,2,3,6]");
  EXPECT_THAT(refused(resized({3, 1, 4, 6}, "stretch")).message,
              HasSubstr("An axis of 0 elements cannot be resized."));
}

// f(x) = relu(x) + k, with k an attribute of the caller.
Message function_message(const std::string& name, const std::vector<Message>& nodes) {
  Message function;
  function.text(1, name).text(4, "a").text(5, "b").text(6, "k");
  for (const Message& node : nodes) function.message(7, node);
  return function.message(9, Message().integer(2, 18)).text(10, "mine");
}

TEST(Onnx, InlinesFunctionsWithTheirAttributes) {
  const Message reference = Message().text(1, "value_int").text(21, "k").integer(20, 2);
  GraphParts parts = relu_parts();
  parts.inputs = {value_info("x", onnx_int64, {{2}})};
  parts.nodes = {node("Plus", {"x"}, {"y"}, {integer_attribute("k", 40)}, "mine")};
  Message model = model_message(parts);
  model.message(25, function_message("Plus", {node("Constant", {}, {"c"}, {reference}),
                                              node("Add", {"a", "c"}, {"b"})}));
  const Graph graph = import(model);
  const Tensor x = Tensor::of<std::int64_t>({2}, {1, 2});
  EXPECT_EQ(evaluate_graph(graph, std::vector<Tensor>{x}).value()[0].as<std::int64_t>()[1], 42);
}

TEST(Onnx, RefusesFunctionsThatCallThemselves) {
  GraphParts parts = relu_parts();
  parts.nodes = {node("Round", {"x"}, {"y"}, {}, "mine")};
  Message model = model_message(parts);
  model.message(25, function_message("Round", {node("Round", {"a"}, {"b"}, {}, "mine")}));
  EXPECT_THAT(refused(model).message, HasSubstr("nested too deeply"));
}

TEST(Onnx, RefusesExternalDataOutsideTheFolder) {
  Message outside = Message().integer(1, 4).integer(2, onnx_float).text(8, "w").integer(14, 1);
  outside.message(13, Message().text(1, "location").text(2, "../secret"));
  GraphParts parts = relu_parts();
  parts.initializers = {outside};
  EXPECT_THAT(refused(model_message(parts)).message, HasSubstr("from memory"));
}

TEST(Onnx, PicksTheBranchOfAKnownCondition) {
  GraphParts yes, no;
  yes.nodes = {node("Relu", {"x"}, {"p"})};
  yes.outputs = {value_info("p", onnx_float, {})};
  no.nodes = {node("Neg", {"x"}, {"q"})};
  no.outputs = {value_info("q", onnx_float, {})};
  GraphParts parts = relu_parts();
  parts.initializers = {tensor("c", 9, {}, std::string(1, '\1'))};
  parts.nodes = {node("If", {"c"}, {"y"},
                      {graph_attribute("then_branch", graph_message(yes)),
                       graph_attribute("else_branch", graph_message(no))})};
  const Graph graph = import(model_message(parts));
  EXPECT_EQ(count<op::Relu>(graph), 1);
  EXPECT_EQ(count<op::Neg>(graph), 0);
  EXPECT_EQ(count<op::If>(graph), 0);
}

}  // namespace
}  // namespace rlx::test
