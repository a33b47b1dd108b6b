// Slices with steps that share out an image and are joined again.
#include "passes/joined_slices.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

using testing::count;
using testing::weight;

/// x[first : : step] along one axis.
Value every(Value x, std::int64_t axis, std::int64_t first, std::int64_t step) {
  const auto rank = static_cast<std::size_t>(x.rank()), at = static_cast<std::size_t>(axis);
  Axes starts(rank, 0), limits(rank, op::slice_end), steps(rank, 1);
  starts[at] = first;
  steps[at] = step;
  return slice(x, starts, limits, steps);
}

struct Slices {
  Shape x;
  Axes axes;  ///< that the slices have steps on
  std::int64_t step = 2;
  std::vector<Axes> firsts;  ///< where each slice begins, by axis
  std::int64_t along = 1;
};

/// The orders in which slices of two axes come: the last axis changes first, or the first one does.
const std::vector<Axes> rows{{0, 0}, {0, 1}, {1, 0}, {1, 1}},
    columns{{0, 0}, {1, 0}, {0, 1}, {1, 1}};

Value joined(Value x, const Slices& slices) {
  Values parts;
  for (const Axes& first : slices.firsts) {
    Value part = x;
    for (std::size_t i = 0; i < slices.axes.size(); ++i)
      part = every(part, slices.axes[i], first[i], slices.step);
    parts.push_back(part);
  }
  return concat(parts, slices.along);
}

Graph moved(const Slices& slices) {
  Graph graph;
  graph.output("y", joined(graph.input("x", f32, slices.x), slices));
  return graph;
}

/// Takes the last form of every question, and counts them.
struct Last {
  int& asked;
  std::vector<std::size_t> operator()(const Graph&, auto questions) const {
    std::vector<std::size_t> chosen;
    for (const passes::FormQuestion& question : questions) {
      ++asked;
      chosen.push_back(question.forms.size() - 1);
    }
    return chosen;
  }
};

/// What the pass makes of it has the same values, and so has what the compiler makes of it.
Graph checked(const Graph& graph, double tolerance, const passes::ChooseForms& choose = nullptr) {
  Graph made = passes::joined_slices(graph, choose).value();
  testing::expect_same_values(graph, made, tolerance);
  const std::vector<Tensor> inputs = testing::noise_inputs(graph);
  const Tensor wanted = evaluate_graph(graph, inputs).value()[0];
  Session session(Device::cpu);
  const std::vector<NamedInput> named{{"x", inputs[0]}};
  const Outputs run =
      session.compile(graph).value().run(std::span<const NamedInput>(named)).value();
  EXPECT_EQ(run[0].dims(), wanted.dims());
  for (std::size_t i = 0; i < wanted.as<float>().size(); ++i)
    EXPECT_NEAR(run[0].as<float>()[i], wanted.as<float>()[i], tolerance) << i;
  return made;
}

TEST(JoinedSlices, AreOneTransposition) {
  const Slices cases[] = {
      {{2, 3, 8, 6}, {2, 3}, 2, rows, 1},       // the focus of a detector
      {{2, 3, 8, 6}, {2, 3}, 2, columns, 1},    // the same as YOLOX orders it
      {{1, 8, 6, 5}, {1, 2}, 2, columns, 3},    // Swin's merging
      {{2, 9, 5}, {1}, 3, {{0}, {1}, {2}}, 2},  // neighbours in time
      {{2, 8, 3}, {1}, 2, {{0}, {1}}, 1},       // halves of a list, as a butterfly orders them
      {{8, 6}, {0, 1}, 2, columns, -2},         // along an axis that has steps itself
      {{2, 4, 4, 4},
       {3, 1, 2},
       2,
       {{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 1}, {1, 0, 0}, {1, 1, 0}, {1, 0, 1}, {1, 1, 1}},
       0}};
  for (const Slices& slices : cases) {
    SCOPED_TRACE(moved(slices).type(moved(slices).outputs()[0].value).text());
    const Graph made = checked(moved(slices), 0);
    EXPECT_EQ(count<op::Concat>(made), 0);
    EXPECT_EQ(count<op::Slice>(made), 0);
    EXPECT_EQ(count<op::Transpose>(made), 1);
  }
}

TEST(JoinedSlices, ThatDoNotShareOutAnImageStay) {
  const std::vector<Axes> twice{{0, 0}, {0, 1}, {0, 1}, {1, 1}}, three{{0, 0}, {0, 1}, {1, 0}},
      mixed{{0, 0}, {1, 1}, {0, 1}, {1, 0}};
  for (const Slices& slices : {Slices{{2, 3, 8, 6}, {2, 3}, 2, twice, 1},
                               {{2, 3, 8, 6}, {2, 3}, 2, three, 1},
                               {{2, 3, 8, 6}, {2, 3}, 2, mixed, 1},
                               {{2, 9, 5}, {1}, 3, {{1}, {0}, {2}}, 2}})
    EXPECT_EQ(count<op::Concat>(checked(moved(slices), 0)), 1);

  Graph others;  // slices of two images; an element that no slice has; one axis backwards
  const Value x = others.input("x", f32, {2, 8, 3}), longer = concat({x, x}, 1);
  const auto odd = [](Value of) { return slice(of, {0, 1, 0}, {2, 8, 3}, {1, 2, 1}); };
  const auto even = [](Value of) { return slice(of, {0, 0, 0}, {2, 8, 3}, {1, 2, 1}); };
  const Value back = slice(x, {0, 7, 0}, {2, -1, 3}, {1, -2, 1});
  others.output("y", concat({concat({even(x), odd(x * x)}, 2),
                             concat({even(longer), odd(longer)}, 2), concat({back, odd(x)}, 2)},
                            0));
  EXPECT_EQ(count<op::Concat>(checked(others, 0)), 5);
}

// A crop without steps is an image of its own.
TEST(JoinedSlices, MayBeOfACrop) {
  Graph graph;
  const Value crop = slice(graph.input("x", f32, {1, 3, 9, 8}), {0, 0, 1, 2}, {1, 3, 9, 8});
  graph.output("y", joined(crop, {{}, {2, 3}, 2, columns, 1}));
  const Graph made = checked(graph, 0);
  EXPECT_EQ(count<op::Concat>(made), 0);
  EXPECT_EQ(count<op::Slice>(made), 1);
}

Graph convolved(const Slices& slices, const op::Conv& conv, const Shape& kernel,
                bool bias = false) {
  Graph graph;
  const Value image = joined(graph.input("x", f32, slices.x), slices), w = weight(graph, kernel, 3);
  graph.output("y", bias ? graph.add_one(conv, {image, w, weight(graph, {kernel[0]}, 4)})
                         : graph.add_one(conv, {image, w}));
  return graph;
}

TEST(JoinedSlices, BecomePartOfAWindow) {
  struct Case {
    Slices slices;
    op::Conv conv;
    Shape kernel;
  };
  const Slices focus{{2, 3, 16, 14}, {2, 3}, 2, columns, 1};
  const Case cases[] = {
      {focus, {.pad_low = {1, 1}, .pad_high = {1, 1}}, {16, 12, 3, 3}},
      {{{2, 3, 16, 14}, {2, 3}, 2, rows, 1},
       {.pad_low = {1, 0}, .pad_high = {0, 2}},
       {16, 12, 3, 2}},
      {focus, {.strides = {2, 1}, .pad_low = {1, 1}, .pad_high = {1, 1}}, {16, 12, 3, 3}},
      {focus, {.dilations = {2, 2}}, {64, 12, 1, 1}},
      {{{2, 3, 18, 14}, {2}, 3, {{0}, {1}, {2}}, 1}, {.dilations = {1, 2}}, {16, 9, 2, 3}},
      {{{2, 8, 64}, {2}, 2, {{0}, {1}}, 1}, {.pad_low = {2}}, {16, 16, 5}}};
  for (const Case& c : cases) {
    for (const bool bias : {false, true}) {
      const Graph graph = convolved(c.slices, c.conv, c.kernel, bias);
      SCOPED_TRACE(graph.type(graph.outputs()[0].value).text());
      int asked = 0;
      const Graph made = checked(graph, 1e-4, Last{asked});
      EXPECT_EQ(asked, 1);
      EXPECT_EQ(count<op::Concat>(made), 0);
      EXPECT_EQ(made.type(made.outputs()[0].value), graph.type(graph.outputs()[0].value));
      const auto& conv = made.node(made.outputs()[0].value);
      ASSERT_TRUE(conv.op.is<op::Conv>());
      EXPECT_TRUE(made.node(conv.inputs[0]).op.is<op::Input>());
    }
  }
}

TEST(JoinedSlices, NobodyIsAskedWhereNoWindowHoldsThem) {
  const Slices focus{{2, 3, 16, 14}, {2, 3}, 2, columns, 1};
  Slices few = focus, batch = focus;
  few.x = {1, 3, 4, 4};
  batch.x = {8, 3, 16, 14};
  batch.axes = {0, 3};
  const Graph graphs[] = {
      convolved(focus, {.dilations = {2, 2}}, {16, 12, 3, 3}),  // taps lie apart
      convolved(focus, {.groups = 2}, {16, 6, 3, 3}),           // groups
      convolved(few, {}, {4, 12, 1, 1}),                        // little work
      convolved(batch, {.pad_low = {1, 1}}, {16, 12, 3, 3})};   // images of a batch
  for (const Graph& graph : graphs) {
    int asked = 0;
    checked(graph, 1e-4, Last{asked});
    EXPECT_EQ(asked, 0);
  }
  Graph read_twice = convolved(focus, {}, {16, 12, 3, 3});
  read_twice.output(
      "slices", relu(read_twice.handle(read_twice.node(read_twice.outputs()[0].value).inputs[0])));
  int asked = 0;
  checked(read_twice, 1e-4, Last{asked});
  EXPECT_EQ(asked, 0);
}

// One kernel moves what four did, and none does where the convolution reads the image itself.
TEST(JoinedSlices, CompiledMoveOnceOrNotAtAll) {
  const Slices focus{{1, 3, 64, 64}, {2, 3}, 2, columns, 1};
  const Graph graph = convolved(focus, {.pad_low = {1, 1}, .pad_high = {1, 1}}, {16, 12, 3, 3});
  for (const bool over_image : {false, true}) {
    Session session(Device::cpu);
    CompileOptions options;
    options.answers["write conv (0) over the whole image"] = over_image;
    const Explanation plan = session.compile(graph, options).value().explain().value();
    const auto moves = std::ranges::count_if(plan.kernels, [](const Explanation::Kernel& kernel) {
      return kernel.name == "map" || kernel.name == "copy";
    });
    EXPECT_EQ(moves, over_image ? 0 : 1);
  }
}

}  // namespace
}  // namespace rlx
