// How much of its buffers a kernel touches: parts of concatenations, overlapping rows, whole ones.
#include "cost/touched.hpp"

#include <gtest/gtest.h>

namespace rlx::cost {
namespace {

/// Rows of 256 that begin 16 apart, times B, into every second column of a wide concatenation.
loop::Kernel product() {
  loop::Contraction c;
  c.m_extents = {100};
  c.k_extents = {256};
  c.n = 32;
  c.a_m_strides = {16};
  c.a_k_strides = {1};
  c.b_buffer = 1;
  c.b_k_strides = {32};
  c.accesses = {{2, 0, {0, 1}, {}, {}, 0}};
  c.nodes = {{.op = ScalarOp::accumulator, .dtype = f32}};
  c.stores = {{{3, 5000, {640, 2}, {}, {}, 0}, 0}};
  return {{{f32, 4000, false}, {f32, 256 * 32, false}, {f32, 32, false}, {f32, 80'000, true}},
          std::move(c)};
}

TEST(Touched, ContractionsTouchTheirPartOfABuffer) {
  const loop::Kernel kernel = product();
  EXPECT_EQ(touched_bytes(kernel, 0), (99 * 16 + 256) * 4);  // rows overlap
  EXPECT_EQ(touched_bytes(kernel, 1), 256 * 32 * 4);
  EXPECT_EQ(touched_bytes(kernel, 2), 32 * 4);
  EXPECT_EQ(touched_bytes(kernel, 3), 100 * 32 * 2 * 4);  // with the columns between
}

TEST(Touched, NeverMoreThanTheBuffer) {
  loop::Kernel kernel = product();
  kernel.buffers[0].elements = 1000;  // guards keep the other places from being read
  EXPECT_EQ(touched_bytes(kernel, 0), 4000);
}

TEST(Touched, PlacesOfSeveralAccessesCountOnce) {
  loop::Nest nest;
  nest.extents = {64};
  nest.parallel_dims = 1;
  nest.accesses = {{0, 0, {1}, {}, {}, 0}, {0, 8, {1}, {}, {}, 0}, {0, 512, {1}, {}, {}, 0}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32}};
  nest.stores = {{{1, 0, {1}, {}, {}, 0}, 0}};
  const loop::Kernel kernel{{{f32, 1024, false}, {f32, 64, true}}, std::move(nest)};
  EXPECT_EQ(touched_bytes(kernel, 0), (72 + 64) * 4);
  EXPECT_EQ(touched_bytes(kernel, 1), 64 * 4);
}

/// Taps share pixels, and reach beyond an image that is part of a concatenation.
TEST(Touched, WindowsTouchTheChannelsThatTheyRead) {
  constexpr std::int64_t size = 14, channels = 192, all = 1088;
  loop::Nest nest;
  nest.extents = {size, size, channels, 3, 3};
  nest.parallel_dims = 3;
  nest.accesses = {{0, 512 - (size + 1) * all, {size * all, all, 1, size * all, all}, {}, {}, 0}};
  nest.accesses[0].guards = {{-1, size, {1, 0, 0, 1, 0}}, {-1, size, {0, 1, 0, 0, 1}}};
  nest.nodes = {{.op = ScalarOp::load, .dtype = f32},
                {.op = ScalarOp::reduce, .dtype = f32, .a = 0}};
  nest.stores = {{{1, 0, {size * channels, channels, 1, 0, 0}, {}, {}, 0}, 1}};
  const loop::Kernel kernel{{{f32, size * size * all, false}, {f32, size * size * channels, true}},
                            std::move(nest)};
  EXPECT_NEAR(touched_bytes(kernel, 0), size * size * channels * 4, size * channels * 4);
  EXPECT_EQ(touched_bytes(kernel, 1), size * size * channels * 4);
}

/// What strips read of one buffer in two stages counts once; of local buffers nobody asks.
TEST(Touched, StripsTouchWhatTheirStagesDo) {
  const auto nest = [](std::int32_t in, std::int32_t out, std::int64_t from, std::int64_t step) {
    loop::Nest nest;
    nest.extents = {4, 16};
    nest.parallel_dims = 2;
    nest.lead = 1;
    nest.accesses = {{in, from, {16, 1}, {}, {}, 0}};
    nest.nodes = {{.op = ScalarOp::load, .dtype = f32}};
    nest.stores = {{{out, 0, {step, 1}, {}, {}, 0}, 0}};
    return nest;
  };
  loop::Contraction product{.m_extents = {1}, .k_extents = {16}, .n = 16, .a_buffer = 1};
  product.b_buffer = 2;
  const loop::Kernel kernel{
      {{f32, 200, false}, {f32, 16, true, true}, {f32, 256, false}, {f32, 400, true}},
      loop::Strips{{nest(0, 1, 0, 0), product, nest(0, 3, 32, 16)}}};
  EXPECT_EQ(touched_bytes(kernel, 0), 96 * 4);
  EXPECT_EQ(touched_bytes(kernel, 2), 256 * 4);
  EXPECT_EQ(touched_bytes(kernel, 3), 64 * 4);
}

}  // namespace
}  // namespace rlx::cost
