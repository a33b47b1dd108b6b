// The text form: golden text, exact round trips of every op and literal, and errors with their
// places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

// Prints, parses, prints again; gives the graph read back.
Graph round_trip(const Graph& graph) {
  const std::string text = print(graph);
  auto parsed = parse(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message) << "\n" << text;
  if (!parsed.ok()) return {};
  EXPECT_EQ(print(*parsed), text);
  EXPECT_EQ(parsed->nodes().size(), graph.nodes().size());
  for (std::size_t i = 0; i < std::min(parsed->nodes().size(), graph.nodes().size()); ++i) {
    EXPECT_TRUE(parsed->nodes()[i].op == graph.nodes()[i].op) << text;
    EXPECT_EQ(parsed->nodes()[i].inputs, graph.nodes()[i].inputs);
    EXPECT_EQ(parsed->nodes()[i].name, graph.nodes()[i].name);
    EXPECT_EQ(parsed->nodes()[i].origin, graph.nodes()[i].origin);
  }
  return *std::move(parsed);
}

Graph sample_graph(const Sample& sample) {
  Graph graph;
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const bool absent = std::count(sample.absent.begin(), sample.absent.end(), static_cast<int>(i));
    inputs.push_back(absent ? Value()
                            : graph.input("in" + std::to_string(i), sample.inputs[i].dtype,
                                          sample.inputs[i].shape));
  }
  int number = 0;
  for (const Value& result : graph.add(sample.op, inputs, "the node")) {
    graph.output("out" + std::to_string(number++), result);
  }
  return graph;
}

class TextFormOfOp : public testing::TestWithParam<const OpInfo*> {};

TEST_P(TextFormOfOp, ReadsBackAsTheSameGraph) {
  for (const Sample& sample : GetParam()->samples()) {
    const Graph graph = sample_graph(sample);
    round_trip(graph);
    const Status status = verify(graph);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

// Other numbers, in fields and types: ops refuse them or take them, nothing else.
TEST_P(TextFormOfOp, SurvivesOtherNumbers) {
  std::mt19937 random(5);
  for (const Sample& sample : GetParam()->samples()) {
    const std::string good = print(sample_graph(sample));
    for (int i = 0; i < 60; ++i) {
      std::string text = good;
      for (int k = 0; k <= i % 3; ++k) {
        const std::size_t at = text.find_first_of("0123456789", random() % text.size());
        const std::size_t end = text.find_first_not_of("0123456789", at);
        if (at == std::string::npos || text[at - 1] == '%') continue;
        const char* numbers[] = {"0", "1", "-1", "7", "[]", "4611686018427387904", "-2147483649"};
        text.replace(at, end - at, numbers[random() % std::size(numbers)]);
      }
      const auto graph = parse(text);
      EXPECT_TRUE(!graph.ok() || verify(*graph).ok()) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, TextFormOfOp, testing::ValuesIn(all_ops().begin(), all_ops().end()),
                         [](const auto& info) { return std::string(info.param->name); });

Graph small_graph() {
  Graph graph;
  const Value x = graph.input("x", f32, {"batch", 4});
  const Value w = graph.param("w", f32, {1, 4});
  graph.set_origin("onnx node \"Relu_1\"");
  const Value y = graph.add(op::LeakyRelu{.alpha = 0.1}, std::array{x}, "act").front();
  graph.set_origin("");
  graph.output("y", graph.add_one(op::Add{}, {y, w}));
  graph.output("inside", graph.add_one(op::Clamp{}, {y, Value(), graph.constant(f32, 6)}));
  return graph;
}

TEST(TextForm, LooksLikeThis) {
  EXPECT_EQ(print(small_graph()),
            R"(rlx 1
graph {
  %0 = input() {name = "x", dtype = f32, shape = [batch, 4]} : f32[batch,4]
  %1 = param() {name = "w", dtype = f32, dims = [1, 4]} : f32[1,4]
  %2 = leaky_relu(%0) {alpha = 0.1} : f32[batch,4] name "act" origin "onnx node \"Relu_1\""
  %3 = add(%2, %1) : f32[batch,4]
  %4 = constant() {value = f32[] {6}} : f32[]
  %5 = clamp(%2, none, %4) : f32[batch,4]
  output "y" = %3
  output "inside" = %5
}
)");
  round_trip(small_graph());
}

TEST(TextForm, ResultsEnumsAndSubgraphsAreWrittenLikeThis) {
  const auto branch = [](Op op) {
    Graph graph;
    graph.output("r", graph.add_one(std::move(op), {graph.input("a", f32, {3})}));
    return std::make_shared<const Graph>(std::move(graph));
  };
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  const Value best = graph.add(op::TopK{.k = 1}, std::array{x})[1];
  const Value c = graph.input("c", boolean, {});
  graph.output("y", graph.add_one(op::If{branch(op::Neg{}), branch(op::Exp{})}, {c, x}));
  graph.output("z", graph.add_one(op::Reduce{.kind = Reduction::max, .axes = {0}}, {x}));
  graph.output("where", best);
  EXPECT_EQ(print(graph), R"(rlx 1
graph {
  %0 = input() {name = "x", dtype = f32, shape = [3]} : f32[3]
  %1 = top_k(%0) {k = 1, axis = -1, largest = true, sorted = true} : f32[1], i64[1]
  %2 = input() {name = "c", dtype = bool, shape = []} : bool[]
  %3 = if(%2, %0) {then_branch = graph {
      %0 = input() {name = "a", dtype = f32, shape = [3]} : f32[3]
      %1 = neg(%0) : f32[3]
      output "r" = %1
    }, else_branch = graph {
      %0 = input() {name = "a", dtype = f32, shape = [3]} : f32[3]
      %1 = exp(%0) : f32[3]
      output "r" = %1
    }} : f32[3]
  %4 = reduce(%0) {kind = max, axes = [0], keep_dims = false} : f32[]
  output "y" = %3
  output "z" = %4
  output "where" = %1.1
}
)");
  round_trip(graph);
}

TEST(TextForm, HandWrittenTextMayNameValuesAndLeaveTypesAndDefaultsOut) {
  const auto graph = parse(R"(rlx 1  # the version
graph {
  %x = input() {name = "x", shape = [2, n]}   # dtype: f32
  %half = constant() {value = f32[] {0.5}}
  %y = mul(%x, %half)
  %z = elu(%y)
  output "z" = %z
})");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->type(graph->outputs()[0].value).text(), "f32[2,n]");
  EXPECT_EQ(graph->nodes()[3].op.as<op::Elu>()->alpha, 1);
}

template <class T>
void expect_constant_survives(const std::vector<T>& values, std::string_view written) {
  Graph graph;
  const Tensor tensor =
      Tensor::of<T>({static_cast<std::int64_t>(values.size())}, std::span<const T>(values));
  graph.output("c", graph.constant(tensor));
  EXPECT_THAT(print(graph), HasSubstr(written));
  const Graph back = round_trip(graph);
  const Tensor& read = back.nodes()[0].op.as<op::Constant>()->value;
  ASSERT_EQ(read.bytes(), tensor.bytes());
  EXPECT_TRUE(std::equal(read.data(), read.data() + read.bytes(), tensor.data()));
}

TEST(TextForm, NumbersAreExact) {
  expect_constant_survives<float>({0.1f, -0.0f, 1e-45f, 3.4028235e38f},
                                  "f32[4] {0.1, -0, 1e-45, 3.4028235e+38}");
  expect_constant_survives<double>({0.1, 1.0 / 3, 5e-324}, "0.3333333333333333, 5e-324}");
  expect_constant_survives<float>({INFINITY, -INFINITY}, "{inf, -inf}");
  expect_constant_survives<std::int64_t>(
      {std::numeric_limits<std::int64_t>::min(), 9007199254740993},
      "{-9223372036854775808, 9007199254740993}");
  expect_constant_survives<std::uint64_t>({18446744073709551615u}, "{18446744073709551615}");
}

TEST(TextForm, ManyNumbersAndOddBytesAreBase64) {
  std::vector<float> many(100);
  std::mt19937 random(1);
  for (float& value : many) value = static_cast<float>(random()) * 0x1p-32f;
  expect_constant_survives<float>(many, "f32[100] base64 \"");
  const std::uint32_t payload = 0x7fc12345;
  float nan;
  std::memcpy(&nan, &payload, sizeof nan);
  expect_constant_survives<float>({nan, 1.0f}, "f32[2] base64 \"RSPBfwAAgD8=\"");
}

TEST(TextForm, EveryDTypeRoundTripsAsConstant) {
  for (int d = 0; d < dtype_count; ++d) {
    const auto dtype = static_cast<DType>(d);
    Tensor tensor(dtype, {2, 2});
    std::mt19937 random(d);
    for (std::size_t i = 0; i < tensor.bytes(); ++i) {
      tensor.mutable_data()[i] = static_cast<std::byte>(random() & 0x3f);
    }
    Graph graph;
    graph.output("c", graph.constant(tensor));
    round_trip(graph);
  }
}

TEST(TextForm, DoublesOfFieldsAreExact) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t bits = random();
    double alpha;
    std::memcpy(&alpha, &bits, sizeof alpha);
    if (std::isnan(alpha)) continue;
    Graph graph;
    graph.output("y", graph.add_one(op::LeakyRelu{.alpha = alpha}, {graph.input("x", f32, {1})}));
    round_trip(graph);
  }
}

TEST(TextForm, OddNamesAndDimsSurvive) {
  Graph graph;
  const Value x = graph.input("a \"b\"\n\\ \xc3\xa9 #", f32, {"x:0", "(n*2)", "5"});
  graph.add(op::Neg{}, std::array{x}, "%0 = }");
  graph.output("\x01", x);
  round_trip(graph);
}

TEST(TextForm, UnknownDimsAreWrittenAsQuestionMarks) {
  Graph graph;  // no unknown dim equals another, so the texts are compared
  graph.output("y", graph.add_one(op::Neg{}, {graph.input("x", f32, {Dim::unknown(), 3})}));
  const std::string text = print(graph);
  EXPECT_THAT(text, HasSubstr("neg(%0) : f32[?,3]"));
  EXPECT_EQ(print(parse(text).value()), text);
}

TEST(TextForm, ErrorsNameLineAndColumn) {
  const auto message = [](std::string_view body) {
    const auto graph = parse("rlx 1\ngraph {\n" + std::string(body) + "\n}\n");
    EXPECT_FALSE(graph.ok()) << body;
    return graph.ok() ? "" : graph.error().message;
  };
  const std::string x = "%x = input() {name = \"x\", shape = [2]}\n";
  EXPECT_EQ(message("%0 = nonsense()"), "Line 3, column 6: There is no op (nonsense).");
  EXPECT_EQ(message("%0 = neg(%1)"), "Line 3, column 10: Nothing above is called (%1).");
  EXPECT_EQ(message(x + x), "Line 4, column 1: (%x) is defined twice.");
  EXPECT_THAT(message(x + "%0 = iota() {shape = [2], axis = 5}"),
              HasSubstr("Line 4, column 6: Axis (5)"));
  EXPECT_THAT(message(x + "%0 = elu(%x) {axes = 5}"),
              HasSubstr("Line 4, column 15: The op elu has no field (axes)."));
  EXPECT_THAT(message(x + "%0 = iota() {axis = 1.5}"),
              HasSubstr("expected a whole number of 64 bits, not (1.5)."));
  EXPECT_THAT(message(x + "%0 = iota() {axis = 0, axis = 0}"), HasSubstr("given twice"));
  EXPECT_THAT(message(x + "%0 = reduce(%x) {kind = median}"),
              HasSubstr("expected one of sum, mean, prod"));
  EXPECT_THAT(message("%0 = if() {then_branch = graph {\n%1 = what()\n}}"),
              HasSubstr("Line 4, column 6: There is no op (what)."));
  EXPECT_THAT(message(x + "%0 = neg(%x) : f32[3]"),
              HasSubstr("Line 4, column 16: The op neg gives f32[2], not what stands here."));
  EXPECT_THAT(message(x + "%0 = neg(%x.1)"), HasSubstr("number (1) is none of them"));
  EXPECT_THAT(message(x + "%0 = neg(%x) \x02"), HasSubstr("The byte (0x02) has no meaning here."));
  EXPECT_THAT(message(x + "output \"y = %x"), HasSubstr("no closing quote"));
  EXPECT_THAT(message(x + "output \"y\" = %x\noutput \"y\" = %x"), HasSubstr("used twice"));
  EXPECT_THAT(message(x + "%y = input() {name = \"x\"}"), HasSubstr("takes the name (x)"));
  EXPECT_THAT(message("%0 = constant() {value = f32[2] {1}}"), HasSubstr("has 2 numbers, not (1)"));
  EXPECT_THAT(message("%0 = constant() {value = i8[1] {200}}"),
              HasSubstr("(200) is no value of i8"));
  EXPECT_THAT(message("%0 = constant() {value = f32[99999999, 99999999] {1}}"),
              HasSubstr("are no sizes"));
  EXPECT_THAT(message("%0 = constant() {value = f32[1] base64 \"AAAA\"}"),
              HasSubstr("no base64 of the 4 bytes"));
  EXPECT_THAT(message("%0 = constant()"), HasSubstr("has no value"));
}

TEST(TextForm, OtherVersionsAndOtherFilesAreRefused) {
  EXPECT_EQ(parse("rlx 2\ngraph {}").error().message,
            "Line 1, column 5: expected the version (1), not (2).");
  EXPECT_EQ(parse("hello").error().message, "Line 1, column 1: expected (rlx), not (hello).");
  EXPECT_EQ(parse("").error().message, "Line 1, column 1: expected (rlx), not the end.");
  EXPECT_EQ(parse("rlx 1 graph {} more").error().message,
            "Line 1, column 16: expected the end, not (more).");
}

TEST(TextForm, DeepNestingIsRefused) {
  std::string text = "rlx 1\n";
  for (int i = 0; i < 100000; ++i) text += "graph { %0 = if() {then_branch = ";
  EXPECT_THAT(parse(text).error().message, HasSubstr("nested deeper than (50)"));
}

TEST(TextForm, SurvivesDamagedText) {
  const std::string good = print(small_graph());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int k = 0; k < 1 + i % 4; ++k) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 20); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
    }
    const auto graph = parse(text);
    if (graph.ok()) {
      EXPECT_TRUE(verify(*graph).ok());
    } else {
      ++refused;
      EXPECT_THAT(graph.error().message, HasSubstr("Line "));
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace rlx
