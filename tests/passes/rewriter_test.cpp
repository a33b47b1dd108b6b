// Rebuilding graphs: what is copied, and what comes back as it was.
#include "passes/rewriter.hpp"

#include <gtest/gtest.h>

#include "passes/passes.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {
namespace {

/// exp(x) + exp(x), exp(x) * 2, and a node that nobody reads behind all.
Graph sample(bool with_unread) {
  Graph graph;
  const Value x = graph.input("x", f32, {4, 3}), y = exp(x);
  graph.output("sum", y + y);
  graph.output("twice", y * graph.constant(f32, 2));
  if (with_unread) tanh(y);
  return graph;
}

TEST(Rewriter, a_graph_that_is_handed_over_comes_back) {
  for (const auto& pass : {simplify, merge_equal, canonicalise, recognise, drop_dead, loop_forms}) {
    Graph graph = sample(false);
    const Node* const nodes = graph.nodes().data();
    const Graph same = pass(std::move(graph)).value();
    EXPECT_EQ(same.nodes().data(), nodes);
    EXPECT_EQ(same.outputs().size(), 2u);
  }
}

TEST(Rewriter, a_graph_that_is_kept_is_copied) {
  const Graph graph = sample(false);
  const Graph copy = rewrite(graph, [](Rewriter&, std::int32_t, const Node&) -> Result<bool> {
                       return false;
                     }).value();
  EXPECT_NE(copy.nodes().data(), graph.nodes().data());
  EXPECT_EQ(print(copy), print(graph));
}

TEST(Rewriter, what_was_skipped_at_the_end_is_gone) {
  const Graph left = drop_dead(sample(true)).value();
  EXPECT_EQ(print(left), print(sample(false)));
}

TEST(Rewriter, copies_what_stood_before_the_first_change) {
  for (std::int32_t changed = 1; changed < 3; ++changed) {
    const Graph graph = sample(false);
    const Graph made =
        rewrite(graph,
                [&](Rewriter& rewriter, std::int32_t index, const Node& node) -> Result<bool> {
                  EXPECT_EQ(rewriter.so_far().type(rewriter({0, 0})).dtype, f32);
                  if (index != changed) return false;
                  const Values in = rewriter.values_of(node);
                  rewriter.replace(index, Values{index == 1 ? tanh(in[0]) : in[0] - in[1]});
                  return true;
                })
            .value();
    Graph wanted;
    const Value x = wanted.input("x", f32, {4, 3}), y = changed == 1 ? tanh(x) : exp(x);
    wanted.output("sum", changed == 2 ? y - y : y + y);
    wanted.output("twice", y * wanted.constant(f32, 2));
    EXPECT_EQ(print(made), print(wanted));
  }
}

}  // namespace
}  // namespace rlx::passes
