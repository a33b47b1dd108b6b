// Zeros around an image are a convolution's own padding.
#include "rlx/rlx.hpp"
#include "same_values.hpp"

namespace rlx {
namespace {

struct Padding {
  Axes low, high;
  double fill = 0;
  PadMode mode = PadMode::constant;
};

/// A convolution of a padded image, and how many pads are left.
int pads_left(const Padding& padding, const op::Conv& conv, const Shape& image = {2, 3, 7, 8},
              const Shape& filter = {4, 3, 3, 2}) {
  Graph graph;
  const Value x = graph.input("x", f32, image), w = testing::weight(graph, filter, 3);
  const op::Pad pad{padding.low, padding.high, padding.mode};
  const Value fill = graph.constant(f32, padding.fill);
  const Value padded =
      padding.mode == PadMode::constant ? graph.add_one(pad, {x, fill}) : graph.add_one(pad, {x});
  graph.output("y", graph.add_one(conv, {padded, w}));
  const Graph made = passes::padded_windows(graph).value();
  EXPECT_EQ(made.type(made.outputs()[0].value), graph.type(graph.outputs()[0].value));
  testing::expect_same_values(graph, made, 1e-6);
  return testing::count<op::Pad>(made);
}

TEST(PaddedWindows, are_convolutions_with_padding) {
  EXPECT_EQ(pads_left({{0, 0, 0, 0}, {0, 0, 1, 2}}, {}), 0);
  EXPECT_EQ(pads_left({{0, 0, 2, 1}, {0, 0, 0, 3}},
                      {.strides = {2, 2}, .pad_low = {1, 0}, .pad_high = {0, 1}}),
            0);
  EXPECT_EQ(pads_left({{0, 0, 1, 1}, {0, 0, 1, 1}}, {.dilations = {2, 3}, .groups = 3},
                      {2, 3, 7, 8}, {6, 1, 3, 2}),
            0);
  EXPECT_EQ(
      pads_left({{0, 1, 2, 0}, {0, 2, 1, 0}}, {.channels_last = true}, {2, 7, 8, 3}, {3, 2, 3, 4}),
      0);
  EXPECT_EQ(pads_left({{0, 0, 2}, {0, 0, 0}}, {}, {2, 3, 9}, {4, 3, 3}), 0);
}

TEST(PaddedWindows, leave_what_is_no_padding_of_theirs) {
  EXPECT_EQ(pads_left({{0, 0, 0, 0}, {0, 0, 1, 1}, 0.5}, {}), 1);
  EXPECT_EQ(pads_left({{0, 0, 1, 1}, {0, 0, 1, 1}, 0, PadMode::reflect}, {}), 1);
  EXPECT_EQ(pads_left({{0, 0, -1, 0}, {0, 0, 2, 1}}, {}), 1);
  EXPECT_EQ(pads_left({{0, 1, 0, 0}, {0, 0, 0, 0}}, {}, {2, 2, 7, 8}), 1);
  EXPECT_EQ(pads_left({{1, 0, 0, 0}, {0, 0, 0, 0}}, {}), 1);
  EXPECT_EQ(
      pads_left({{0, 0, 1, 1}, {0, 0, 1, 1}}, {.transposed = true}, {2, 3, 7, 8}, {3, 4, 3, 2}), 1);
}

}  // namespace
}  // namespace rlx
