// Names of dims become numbers: in attributes, in graphs inside ops, and while a graph is
// evaluated.
#include "graph/bind_dims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

TEST(BroadcastDim, ANumberOtherThanOneDecides) {
  EXPECT_EQ(broadcast_dim(1, "n"), Dim("n"));
  EXPECT_EQ(broadcast_dim("n", 1), Dim("n"));
  EXPECT_EQ(broadcast_dim("n", 3), Dim(3));
  EXPECT_EQ(broadcast_dim(3, "n"), Dim(3));
  EXPECT_EQ(broadcast_dim(3, Dim::unknown()), Dim(3));
  EXPECT_EQ(broadcast_dim("n", "n"), Dim("n"));
  EXPECT_EQ(broadcast_dim("n", "m").text(), "(n|m)");
  EXPECT_TRUE(broadcast_dim("n", Dim::unknown()).is_unknown());
}

// What windows of one size leave and add again would grow with every layer.
TEST(DimArithmetic, AddsUpNumbers) {
  const Dim n("n"), sum = n + Dim("m");
  EXPECT_EQ((n - 1) + 1, n);
  EXPECT_EQ((n + 4) - 6, n - 2);
  EXPECT_EQ(((n - 3) + 1).text(), "(n-2)");
  EXPECT_EQ((n + 5) - (n + 2), Dim(3));
  EXPECT_EQ((sum + 2) - 2, sum);
  EXPECT_EQ((sum + 2).text(), "((n+m)+2)");
  EXPECT_EQ((Dim("x4") + 1 - 1), Dim("x4"));
  EXPECT_EQ((Dim("(n*2)") + 3).text(), "((n*2)+3)");
}

TEST(BroadcastDim, IsUnknownWhereItsTextWouldBeLong) {
  Dim dim("n");
  for (int layer = 0; layer < 40; ++layer) dim = broadcast_dim(dim, floor_div(dim, 2) * 2);
  EXPECT_LT(dim.text().size(), 300U);
}

std::string bound_text(const Dim& dim, const SymbolValues& values) {
  return bound_op(op::Broadcast{{dim}}, values).value().as<op::Broadcast>()->shape[0].text();
}

TEST(BoundOp, EvaluatesWhatDimsAreDerivedFrom) {
  const SymbolValues values{{"n", 1}, {"m", 5}};
  EXPECT_EQ(bound_text("n", values), "1");
  EXPECT_EQ(bound_text("(n|m)", values), "5");
  EXPECT_EQ(bound_text("((m*3)|(n+n))", values), "15");
  EXPECT_EQ(bound_text("(m|k)", values), "(m|k)");
  EXPECT_EQ(bound_text("?", values), "?");
}

TEST(BoundOp, SharesWhatNothingChanges) {
  const Op op = op::Broadcast{{"k", 4}};
  EXPECT_EQ(bound_op(op, {{"n", 1}}).value().attributes(), op.attributes());
}

/// A scan of three steps whose body gives a row of ones, [n], plus what it was given.
op::Scan scan_of_rows() {
  auto body = std::make_shared<Graph>();
  body->input("step", i64, {});
  const Value row = body->input("row", f32, {"n"});
  body->output("next", row + broadcast(body->constant(f32, 1), {"n"}));
  return {.body = std::move(body), .length = 3, .carries = 1};
}

TEST(BoundOp, BindsGraphsInside) {
  const Op bound = bound_op(scan_of_rows(), {{"n", 2}}).value();
  const Tensor row = Tensor::of<float>({2}, {5, 6});
  EXPECT_THAT(evaluate(bound, std::vector<Tensor>{row}).value()[0].as<float>(),
              testing::ElementsAre(8, 9));
}

TEST(LearnDims, RefusesTwoNumbersForOneName) {
  SymbolValues values;
  EXPECT_TRUE(learn_dims({"n", 3, "m"}, {2, 3, Dim::unknown()}, values).ok());
  EXPECT_EQ(values, (SymbolValues{{"n", 2}}));
  EXPECT_EQ(learn_dims({"n"}, {4}, values).error().message, "The dim (n) is both (2) and (4).");
}

TEST(EvaluateGraph, LearnsDimsOnItsWay) {
  Graph graph;
  const Value x = graph.input("x", f32, {"n"});
  const Value kept = gather(x, reshape(graph.add_one(op::NonZero{}, {x}), {-1}));
  const Value named = graph.add_one(op::NameDims{{"k"}}, {kept});
  graph.output("y", named + broadcast(graph.constant(f32, 1), {"k"}));
  graph.output("z", broadcast(graph.constant(f32, 2), {Dim("n") + Dim("k")}));
  const Tensor input = Tensor::of<float>({4}, {0, 7, 0, 9});
  const auto outputs = evaluate_graph(graph, std::vector<Tensor>{input}).value();
  EXPECT_THAT(outputs[0].as<float>(), testing::ElementsAre(8, 10));
  EXPECT_EQ(outputs[1].dims(), Dims{6});
}

TEST(NameDims, SaysWhatNothingElseSays) {
  Graph graph;
  const Value x = graph.input("x", f32, {"a", 3});
  EXPECT_EQ(graph.add_one(op::NameDims{{"n", "m"}}, {x}).type().text(), "f32[n,3]");
  EXPECT_EQ(graph.add_one(op::NameDims{{Dim::unknown(), 3}}, {x}).type().text(), "f32[a,3]");
  const Op wrong = op::NameDims{{2, 4}};
  const auto refused = graph.try_add(wrong, std::vector<ValueId>{x.id()}, {}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("f32[a,3] cannot have the dims f32[2,4]."));
}

}  // namespace
}  // namespace rlx
