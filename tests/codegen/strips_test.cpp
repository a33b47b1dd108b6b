// Generated strips, a product between two maps, against the interpreter.
#include <gtest/gtest.h>

#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

struct Shape {
  std::int64_t images = 2, rows = 5, columns = 7, channels = 20, results = 24;
  bool channels_first = false;
};

constexpr std::int64_t planes = 4;

/// Points 2 x 2 around each pixel of an image with a border of zeros, in planes; a product in each;
/// the sum over the planes, and a pixel of a second image.
loop::Kernel strips(const Shape& s) {
  NestBuilder points({s.images, s.rows, s.columns, s.channels});
  const std::int64_t row = s.columns * s.channels, image = s.rows * row;
  const int x = points.buffer(f32, s.images * image);
  const int local_points = points.buffer(f32, planes * row);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      loop::Access access{.buffer = x,
                          .offset = (i - 1) * row + (j - 1) * s.channels,
                          .strides = {image, row, s.channels, 1}};
      access.guards = {{.offset = i - 1, .extent = s.rows, .coefficients = {0, 1, 0, 0}},
                       {.offset = j - 1, .extent = s.columns, .coefficients = {0, 0, 1, 0}}};
      points.store(local_points, points.load(access), {0, 0, s.channels, 1}, (2 * i + j) * row);
    }
  }
  points.nest().lead = 2;
  loop::Kernel kernel = points.kernel(4);
  const auto add = [&](std::int64_t elements, bool written, bool local) {
    kernel.buffers.push_back(
        {.dtype = f32, .elements = elements, .written = written, .local = local});
    return static_cast<int>(kernel.buffers.size()) - 1;
  };
  constexpr std::int64_t width = 16;
  const std::int64_t panels = (s.results + width - 1) / width, out_row = s.columns * s.results,
                     out_image = s.rows * out_row;
  // Planes lie an odd number of lines apart, as the planner places them.
  const std::int64_t plane_apart = ((out_row + 15) / 16 | 1) * 16;
  kernel.buffers[static_cast<std::size_t>(local_points)].local = true;
  const int weights = add(planes * panels * width * s.channels, false, false);
  const int products = add(planes * plane_apart, true, true);
  const int other = add(s.images * out_image, false, false);
  const int out = add(s.images * out_image, true, false);

  loop::Contraction product{.batch_extents = {planes},
                            .m_extents = {s.columns},
                            .k_extents = {s.channels},
                            .n = s.results,
                            .a_buffer = local_points,
                            .a_batch_strides = {row},
                            .a_m_strides = {s.channels},
                            .a_k_strides = {1},
                            .b_buffer = weights,
                            .b_packed = true,
                            .panel_width = width,
                            .b_batch_strides = {1}};
  product.b_k_strides = {0};
  product.nodes = {{.op = ScalarOp::accumulator, .dtype = f32}};
  product.stores = {{{.buffer = products, .strides = {plane_apart, s.results, 1}}, 0}};

  NestBuilder pixels({s.images, s.rows, s.columns, s.results});
  std::vector<std::int64_t> strides{out_image, out_row, s.results, 1};
  if (s.channels_first) strides = {out_image, s.columns, 1, s.rows * s.columns};
  for (const loop::Buffer& buffer : kernel.buffers) pixels.buffer(f32, buffer.elements);
  ScalarId sum = pixels.load(other, strides);
  for (std::int64_t plane = 0; plane < planes; ++plane)
    sum = pixels.binary(ScalarOp::add, sum,
                        pixels.load(products, {0, 0, s.results, 1}, plane * plane_apart));
  pixels.store(out, sum, strides);
  pixels.nest().lead = 2;
  const loop::Kernel last = pixels.kernel(4);
  kernel.body = loop::Strips{
      {std::get<loop::Nest>(kernel.body), std::move(product), std::get<loop::Nest>(last.body)}};
  return kernel;
}

TEST(Strips, OfEveryShape) {
  for (const bool channels_first : {false, true}) {
    for (const std::int64_t images : {1, 3}) {
      for (const std::int64_t rows : {2, 5}) {
        for (const std::int64_t columns : {1, 7, 33}) {
          for (const std::int64_t channels : {1, 20, 26, 64})
            expect_as_interpreted(
                strips({images, rows, columns, channels, channels + 4, channels_first}), 1e-4, 1);
        }
      }
    }
  }
}

/// Whoever begins with a later strip finds nothing in scratch, and needs nothing there.
TEST(Strips, InAnyPieces) {
  const loop::Kernel kernel = strips({});
  std::mt19937 random(1);
  const Contents start = random_contents(kernel, random);
  expect_as_interpreted(kernel, start, 1e-4, 4);
}

/// Sums and differences of neighbours, which one half of the strips each makes, and their squares.
loop::Kernel halves(std::int64_t rows, std::int64_t columns) {
  NestBuilder first({rows, columns});
  const int x = first.buffer(f32, rows * (columns + 1));
  const int local = first.buffer(f32, 2 * columns);
  const ScalarId here = first.load(x, {columns + 1, 1}), next = first.load(x, {columns + 1, 1}, 1);
  first.store(local, first.binary(ScalarOp::add, here, next), {0, 1});
  first.store(local, first.binary(ScalarOp::sub, here, next), {0, 1}, columns);
  first.nest().lead = 1;
  first.nest().parts = 2;
  loop::Kernel kernel = first.kernel(2);
  kernel.buffers[static_cast<std::size_t>(local)].local = true;
  kernel.buffers.push_back({.dtype = f32, .elements = 2 * rows * columns, .written = true});

  NestBuilder second({2, rows, columns});
  for (const loop::Buffer& buffer : kernel.buffers) second.buffer(f32, buffer.elements);
  const ScalarId half = second.load(local, {columns, 0, 1});
  second.store(2, second.binary(ScalarOp::mul, half, half), {rows * columns, columns, 1});
  second.nest().lead = 2;
  const loop::Kernel last = second.kernel(3);
  kernel.body = loop::Strips{{std::get<loop::Nest>(kernel.body), std::get<loop::Nest>(last.body)}};
  return kernel;
}

TEST(Strips, ShareOutParts) {
  for (const std::int64_t columns : {1, 16, 37}) expect_as_interpreted(halves(3, columns), 1e-5, 1);
  const loop::Kernel kernel = halves(3, 20);
  const auto& strips = std::get<loop::Strips>(kernel.body);
  EXPECT_EQ(strips.count(), 6);
  EXPECT_EQ(loop::extents_text(kernel), "6 strips of 20");
  // The second half of the strips makes differences alone.
  const loop::Nest fifth = loop::strip_of(std::get<loop::Nest>(strips.stages[0]), 4);
  ASSERT_EQ(fifth.stores.size(), 1u);
  EXPECT_EQ(fifth.stores[0].access.offset, 20);
  EXPECT_EQ(fifth.accesses[0].offset, 21);
}

TEST(Strips, TellTheirCountAndShape) {
  const loop::Kernel kernel = strips({});
  EXPECT_EQ(std::get<loop::Strips>(kernel.body).count(), 10);
  EXPECT_EQ(loop::extents_text(kernel), "10 strips of 4 of m 7, n 24, k 20");
  const std::string text = loop::to_text(kernel);
  EXPECT_NE(text.find("strips 10\nnest [2,5,7,20] parallel 4 lead 2\n"), std::string::npos) << text;
}

/// An index of a leading dim is a number in each strip.
TEST(Strips, FixLeadingDims) {
  NestBuilder nest({3, 4, 5});
  const int in = nest.buffer(f32, 60), out = nest.buffer(i64, 5);
  nest.load(in, {20, 5, 1});
  const ScalarId row = nest.add({.op = ScalarOp::domain_index, .dtype = DType::i64, .index = 1});
  nest.store(out, row, {0, 0, 1});
  nest.nest().lead = 2;
  const loop::Kernel kernel = nest.kernel(3);
  const loop::Nest strip = loop::strip_of(std::get<loop::Nest>(kernel.body), 7);
  EXPECT_EQ(strip.extents, (std::vector<std::int64_t>{1, 1, 5}));
  EXPECT_EQ(strip.accesses[0].offset, 20 + 3 * 5);
  EXPECT_EQ(strip.nodes[static_cast<std::size_t>(row)].integer, 3);
}

}  // namespace
}  // namespace rlx::testing
