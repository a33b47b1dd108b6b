// Convolutions over channels-last images as contractions: padding, strides, dilation, groups.
#include "codegen/pack.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

struct Convolution {
  std::int64_t images = 1, height = 1, width = 1, channels = 1, filters = 1;
  std::int64_t kernel = 3, stride = 1, dilation = 1, padding = 1, groups = 1;

  std::int64_t out(std::int64_t size) const {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
};

/// Domain (group; image, out row, out column; filter), k = (kernel row, kernel column, channel).
loop::Kernel convolution(const Convolution& s, const Target& target) {
  const std::int64_t rows = s.out(s.height), columns = s.out(s.width);
  const std::int64_t depth = s.channels / s.groups, filters = s.filters / s.groups;
  loop::Contraction c;
  c.batch_extents = {s.groups};
  c.m_extents = {s.images, rows, columns};
  c.k_extents = {s.kernel, s.kernel, depth};
  c.n = filters;
  const std::int64_t line = s.width * s.channels;
  c.a_offset = -s.padding * (line + s.channels);
  c.a_batch_strides = {depth};
  c.a_m_strides = {s.height * line, s.stride * line, s.stride * s.channels};
  c.a_k_strides = {s.dilation * line, s.dilation * s.channels, 1};
  c.a_guards = {{-s.padding, s.height, {0, 0, s.stride, 0, s.dilation, 0, 0}},
                {-s.padding, s.width, {0, 0, 0, s.stride, 0, s.dilation, 0}}};
  c.b_buffer = 1;
  c.b_packed = true;
  const auto layout = choose_packed_layout(filters, s.kernel * s.kernel * depth, f32, target);
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  c.b_batch_strides = {1};
  c.nodes = {{.op = ScalarOp::accumulator}};
  c.stores = {
      {loop::Access{2,
                    0,
                    {filters, rows * columns * s.filters, columns * s.filters, s.filters, 1},
                    {},
                    {},
                    0},
       0}};
  loop::Kernel kernel;
  kernel.buffers = {{f32, s.images * s.height * line, false},
                    {f32, s.groups * layout.elements(), false},
                    {f32, s.images * rows * columns * s.filters, true}};
  kernel.body = std::move(c);
  return kernel;
}

void check(const Convolution& shape, std::uint32_t seed = 1) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(convolution(shape, target), target, 1e-5, seed);
  }
}

TEST(ContractionConvolution, padded_three_by_three) {
  check({.images = 2, .height = 9, .width = 11, .channels = 16, .filters = 48});
  check({.images = 1, .height = 14, .width = 14, .channels = 20, .filters = 70});
}

TEST(ContractionConvolution, image_smaller_than_the_kernel) {
  check({.images = 2,
         .height = 2,
         .width = 1,
         .channels = 5,
         .filters = 7,
         .kernel = 5,
         .padding = 2});
}

TEST(ContractionConvolution, first_layer_with_three_channels) {
  check({.images = 1,
         .height = 21,
         .width = 23,
         .channels = 3,
         .filters = 20,
         .kernel = 7,
         .stride = 2,
         .padding = 3});
}

TEST(ContractionConvolution, one_by_one_is_a_matrix_product) {
  check({.images = 2,
         .height = 7,
         .width = 7,
         .channels = 24,
         .filters = 33,
         .kernel = 1,
         .padding = 0});
  check({.images = 2,
         .height = 8,
         .width = 8,
         .channels = 24,
         .filters = 33,
         .kernel = 1,
         .stride = 2,
         .padding = 0});
}

TEST(ContractionConvolution, depthwise) {
  check({.images = 1, .height = 6, .width = 7, .channels = 10, .filters = 10, .groups = 10});
}

TEST(ContractionConvolution, random_shapes) {
  std::mt19937 random(5);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (std::uint32_t round = 0; round < 40; ++round) {
    Convolution shape;
    shape.images = pick(1, 2);
    shape.height = pick(5, 13);
    shape.width = pick(5, 13);
    shape.groups = pick(1, 3);
    shape.channels = shape.groups * pick(1, 9);
    shape.filters = shape.groups * pick(1, 40);
    shape.kernel = pick(1, 3);
    shape.stride = pick(1, 3);
    shape.dilation = pick(1, 2);
    shape.padding = pick(0, 3);
    SCOPED_TRACE(round);
    check(shape, round);
  }
}

}  // namespace
}  // namespace rlx::codegen::testing
