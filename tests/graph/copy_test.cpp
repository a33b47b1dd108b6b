// Copies of nodes: what they share with the node that they were made of, and what is inferred anew.
#include <gtest/gtest.h>

#include "rlx/rlx.hpp"

namespace rlx {
namespace {

TEST(NodeCopies, share_types_and_texts) {
  Graph from;
  from.set_origin("onnx node N (Neg)");
  const Value x = from.input("x", f32, {2}), y = from.add(op::Neg{}, std::array{x}, "minus")[0];
  Graph to;
  const auto input = to.try_copy(from, from.node(x.id()), {});
  ASSERT_TRUE(input.ok());
  const auto copied = to.try_copy(from, from.node(y.id()), *input);
  ASSERT_TRUE(copied.ok());
  const Node &node = to.node(copied->front()), &source = from.node(y.id());
  EXPECT_TRUE(node.results.is(source.results));
  EXPECT_EQ(node.name.text(), "minus");
  EXPECT_EQ(&node.origin.text(), &source.origin.text());
  EXPECT_EQ(node.op, source.op);
}

TEST(NodeCopies, of_other_operands_are_inferred_again) {
  Graph from;
  const Value x = from.input("x", f32, {2}), y = from.add_one(op::Neg{}, {x});
  Graph to;
  const Value wide = to.input("x", f64, {3}), equal = to.input("z", f32, {2});
  const Node& source = from.node(y.id());
  const auto of_wide = to.try_copy(from, source, std::array{wide.id()});
  ASSERT_TRUE(of_wide.ok());
  EXPECT_EQ(to.type(of_wide->front()).text(), "f64[3]");
  // Equal types are as good as the same.
  const auto of_equal = to.try_copy(from, source, std::array{equal.id()});
  ASSERT_TRUE(of_equal.ok());
  EXPECT_TRUE(to.node(of_equal->front()).results.is(source.results));
}

TEST(NodeCopies, are_refused_as_new_nodes_are) {
  Graph from;
  const Value x = from.input("x", f32, {2}), y = from.add_one(op::Neg{}, {x});
  Graph to;
  EXPECT_FALSE(to.try_copy(from, from.node(y.id()), {}).ok());
  EXPECT_FALSE(to.try_copy(from, from.node(y.id()), std::array{ValueId{7, 0}}).ok());
  EXPECT_FALSE(to.try_copy(from, from.node(y.id()), std::array{ValueId{}}).ok());
}

}  // namespace
}  // namespace rlx
