// Products by packed bytes and nibbles with scales for columns and blocks of k against the oracle,
// and packing of nibbles.
#include "codegen/pack.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

struct ScalesOptions {
  std::int64_t m = 1, n = 1, block = 1, blocks = 1;
  DType b = i8;
  bool zeros = false, nibbles = false;
};

/// C = A * (scale * (b - zero)).
loop::Kernel product(const ScalesOptions& options, const Target& target) {
  const std::int64_t depth = options.block * options.blocks;
  loop::Kernel kernel =
      matmul({.m = options.m, .n = options.n, .k = depth, .b = options.b}, target);
  auto& c = std::get<loop::Contraction>(kernel.body);
  if (options.blocks > 1) {
    c.k_extents = {options.blocks, options.block};
    c.a_k_strides = {options.block, 1};
  }
  c.b_blocks = options.blocks;
  c.b_nibbles = options.nibbles;
  if (options.nibbles) kernel.buffers[1].elements /= 2;
  const std::int64_t lines = kernel.buffers[1].elements * (options.nibbles ? 2 : 1) / depth;
  const auto by_block = [&](DType dtype) {
    kernel.buffers.push_back({dtype, lines * options.blocks, false});
    return static_cast<std::int32_t>(kernel.buffers.size()) - 1;
  };
  c.b_scale_buffer = by_block(f32);
  if (options.zeros) c.b_zero_buffer = by_block(options.b);
  return kernel;
}

void check(bool nibbles) {
  constexpr double tolerance = 1e-3;  // terms of up to 200 cancel each other
  for (const Target& target : host_targets()) {
    std::mt19937 random(nibbles ? 8 : 7);
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    for (std::uint32_t round = 0; round < 60; ++round) {
      const std::int64_t block = between(4, 70);
      const ScalesOptions options{.m = round < 34 ? 1 + round : between(30, 90),
                                  .n = between(1, 150),
                                  .block = nibbles ? block * 2 : block,
                                  .blocks = round % 3 == 0 ? 1 : between(2, 6),
                                  .b = random() % 2 == 0 ? i8 : u8,
                                  .zeros = random() % 2 == 0,
                                  .nibbles = nibbles};
      SCOPED_TRACE(round);
      expect_as_interpreted(product(options, target), target, tolerance, round);
    }
  }
}

TEST(ContractionScales, of_bytes) { check(false); }
TEST(ContractionScales, of_nibbles) { check(true); }

TEST(ContractionScales, want_packed_bytes) {
  if (!generator()) return;
  const Target target = host_targets()[0];
  loop::Kernel kernel = product({.m = 4, .n = 20, .block = 16}, target);
  kernel.buffers[1].dtype = f32;
  const auto code = generator()->generate(kernel, target);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().kind, ErrorKind::unsupported);
}

/// Two k of each column in a byte, the first in the low half; columns that do not exist are zeros.
TEST(PackNibbles, pairs_of_k) {
  constexpr std::int64_t n = 18, k = 6;
  PackedLayout layout = choose_packed_layout(n, k, u8, host_targets()[0]);
  layout.nibbles = true;
  std::vector<std::uint8_t> source(n * k);  // [n, k]
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint8_t>(i % 16);
  std::vector<std::uint8_t> packed(packed_bytes(layout, 1), 0xff);
  EXPECT_EQ(static_cast<std::int64_t>(packed.size()), layout.elements() / 2);
  pack({.data = source.data(), .k_extents = {k}, .k_strides = {1}, .n_stride = k}, layout,
       packed.data());
  for (std::int64_t column = 0; column < layout.panels() * layout.panel_width; ++column) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t panel = column / layout.panel_width, at = column % layout.panel_width;
      const auto byte = packed[static_cast<std::size_t>(panel * layout.panel_bytes() +
                                                        i / 2 * layout.panel_width + at)];
      const int wanted = column < n ? source[static_cast<std::size_t>(column * k + i)] : 0;
      EXPECT_EQ(i % 2 == 0 ? byte & 15 : byte >> 4, wanted) << column << " " << i;
    }
  }
}

}  // namespace
}  // namespace rlx::codegen::testing
