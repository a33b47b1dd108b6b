// Ops that users define: in graphs, texts and programs; what refuses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rlx/custom.hpp"
#include "rlx/rlx.hpp"

namespace rlx {
namespace {

using testing::HasSubstr;

/// "mine.clip": x limited to [-limit, limit] and how many numbers were limited.
CustomOp clip_op() {
  CustomOp op;
  op.name = "mine.clip";
  op.infer = [](const CustomAttributes&, std::span<const Type> in) -> Result<std::vector<Type>> {
    if (in[0].dtype != f32) return Error{ErrorKind::bad_input, "mine.clip takes f32."};
    return std::vector<Type>{in[0], {i64, {}}};
  };
  op.eval = [](const CustomAttributes& attributes, std::span<const TensorView> in,
               std::span<const MutableTensorView> out) -> Status {
    const auto limit = static_cast<float>(attributes.number("limit", 1));
    if (limit < 0) return Error{ErrorKind::bad_input, "The limit must not be negative."};
    const auto* from = reinterpret_cast<const float*>(in[0].data);
    auto* count = out[1].as<std::int64_t>();
    *count = 0;
    for (std::int64_t i = 0; i < in[0].elements(); ++i) {
      out[0].as<float>()[i] = std::clamp(from[i], -limit, limit);
      *count += std::abs(from[i]) > limit;
    }
    return {};
  };
  op.cost = [](const CustomAttributes&, std::span<const Type> in,
               std::span<const Type>) -> CustomCost {
    return {7.0 * static_cast<double>(in[0].elements()), 100};
  };
  return op;
}

Tensor numbers(std::initializer_list<float> list) {
  return Tensor::of<float>({static_cast<std::int64_t>(list.size())}, list);
}

CustomOps ops_with(CustomOp op) {
  CustomOps ops;
  EXPECT_TRUE(ops.add(std::move(op)).ok());
  return ops;
}

Graph clip_graph(const CustomOps& ops, const std::string& limit) {
  Graph graph;
  const Value x = graph.input("x", f32, {"n"});
  const std::vector<Value> inputs{x + x};
  const auto results = custom(ops, "mine.clip", inputs, {"limit=" + limit});
  graph.output("y", results[0] * graph.constant(f32, 10));
  graph.output("count", results[1]);
  return graph;
}

TEST(Custom, RunsBetweenOtherOps) {
  Graph graph = clip_graph(ops_with(clip_op()), "3.5");
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  for (const float scale : {1.0f, 2.0f}) {
    const Outputs outputs = program.run({{"x", numbers({scale, -2, 0.5f * scale})}}).value();
    const auto y = outputs["y"].as<float>();
    EXPECT_EQ((std::vector<float>(y.begin(), y.end())),
              (std::vector<float>{std::min(2 * scale, 3.5f) * 10, -35, scale * 10}));
    EXPECT_EQ(outputs["count"].as<std::int64_t>()[0], scale > 1 ? 2 : 1);
  }
}

TEST(Custom, SurvivesTheTextFormGivenItsDefinition) {
  const CustomOps ops = ops_with(clip_op());
  const Graph graph = clip_graph(ops, "2");
  const std::string text = print(graph);
  EXPECT_THAT(text, HasSubstr("custom(%"));
  EXPECT_EQ(print(parse(text, ops).value()), text);
  EXPECT_THAT(parse(text).error().message,
              HasSubstr("The custom op (mine.clip) is not registered."));
  EXPECT_THAT(parse(text, ops_with([] {
                      CustomOp other = clip_op();
                      other.name = "other";
                      return other;
                    }()))
                  .error()
                  .message,
              HasSubstr("(mine.clip) is not registered"));
}

TEST(Custom, EqualNodesAreOneAndDefinitionsCount) {
  const CustomOps ops = ops_with(clip_op()), others = ops_with(clip_op());
  const auto op = [](const CustomOps& from, const char* attribute) {
    return Op(op::Custom{"mine.clip", {attribute}, from.find("mine.clip")});
  };
  EXPECT_TRUE(op(ops, "limit=1") == op(ops, "limit=1"));
  EXPECT_FALSE(op(ops, "limit=1") == op(ops, "limit=2"));
  EXPECT_FALSE(op(ops, "limit=1") == op(others, "limit=1"));
}

TEST(Custom, ErrorsOfUsersFunctionsArriveAsValues) {
  Graph graph = clip_graph(ops_with(clip_op()), "-1");
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  EXPECT_THAT(program.run({{"x", numbers({1, 2})}}).error().message,
              HasSubstr("The limit must not be negative. - while running the custom op"));
  CustomOp throwing = clip_op();
  throwing.eval = [](const CustomAttributes&, std::span<const TensorView>,
                     std::span<const MutableTensorView>) -> Status {
    throw std::runtime_error("out of luck");
  };
  Graph other = clip_graph(ops_with(throwing), "1");
  EXPECT_EQ(session.compile(other).value().run({{"x", numbers({1})}}).error().message,
            "The custom op (mine.clip) failed: out of luck.");
  Graph worded = clip_graph(ops_with(clip_op()), "wide");
  EXPECT_THAT(session.compile(worded).value().run({{"x", numbers({1})}}).error().message,
              HasSubstr("The attribute limit (wide) is no such number."));
}

TEST(Custom, RefusesWithSentences) {
  const CustomOps ops = ops_with(clip_op());
  Graph graph;
  const Value x = graph.input("x", f32, {2}), whole = graph.input("n", i64, {2});
  const auto message = [&](std::initializer_list<Value> inputs, const char* name) -> std::string {
    try {
      (void)custom(ops, name, inputs);
    } catch (const Exception& exception) {
      return exception.error().message;
    }
    return "";
  };
  EXPECT_EQ(message({x}, "mine.blip"), "There is no custom op (mine.blip); there are: mine.clip.");
  EXPECT_THAT(message({x, x}, "mine.clip"), HasSubstr("takes 1 to 1 inputs, not (2)"));
  EXPECT_THAT(message({whole}, "mine.clip"), HasSubstr("mine.clip takes f32."));
  EXPECT_THAT(message({x}, "mine.clip"), HasSubstr("has (2) results, not one"));
  CustomOps twice = ops;
  EXPECT_EQ(twice.add(clip_op()).error().message, "The custom op (mine.clip) is already there.");
  EXPECT_EQ(twice.add({.name = "empty"}).error().message,
            "The custom op (empty) lacks its name, infer or eval.");
}

TEST(Custom, IsASyncPointOfOtherDevicesAndCostsWhatItSays) {
  CustomOp op = clip_op();
  const auto sync_points = [](const CustomOps& ops) {
    Graph graph;
    const std::vector<Value> inputs{graph.input("x", f32, {4})};
    graph.output("y", custom(ops, "mine.clip", inputs)[0]);
    return profile_graph_io(graph).sync_points;
  };
  EXPECT_EQ(sync_points(ops_with(op)), 1);
  Graph graph;
  const std::vector<Value> inputs{graph.input("x", f32, {4})};
  graph.output("y", custom(ops_with(op), "mine.clip", inputs)[0]);
  EXPECT_EQ(node_cost(graph, graph.nodes().back()).flops, 28);
  const auto metal = BackendCostModel::preset(Device::metal, 1);
  const double stopping = estimate_graph_cost(graph, *metal);
  op.host_only = false;
  EXPECT_EQ(sync_points(ops_with(op)), 0);
  Graph free;
  const std::vector<Value> same{free.input("x", f32, {4})};
  free.output("y", custom(ops_with(op), "mine.clip", same)[0]);
  EXPECT_GT(stopping, estimate_graph_cost(free, *metal) + 0.9 * metal->roundtrip_overhead_ns);
}

}  // namespace
}  // namespace rlx
