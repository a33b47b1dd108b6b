// Convolutions over channels-last images as contractions: padding, strides, dilation, groups.
#include "codegen/llvm/contraction_plan.hpp"
#include "codegen/machine.hpp"
#include "codegen/pack.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

struct Convolution {
  std::int64_t images = 1, height = 1, width = 1, channels = 1, filters = 1;
  std::int64_t kernel = 3, stride = 1, dilation = 1, padding = 1, groups = 1;
  bool pairs = false;  ///< of bf16
  bool quads = false;  ///< of bytes

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
  const DType dtype = s.pairs   ? bf16
                      : s.quads ? u8
                                : f32,
              of_b = s.quads ? i8 : dtype, sums = s.quads ? i32 : f32;
  auto layout = choose_packed_layout(filters, s.kernel * s.kernel * depth, of_b, target);
  if (s.pairs || s.quads) {
    layout.group = s.pairs ? 2 : 4, layout.inner = depth;
    c.k_group = static_cast<std::int32_t>(layout.group);
    c.accumulator = sums;
  }
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  c.b_batch_strides = {1};
  c.nodes = {{.op = ScalarOp::accumulator, .dtype = sums}};
  c.stores = {
      {loop::Access{2,
                    0,
                    {filters, rows * columns * s.filters, columns * s.filters, s.filters, 1},
                    {},
                    {},
                    0},
       0}};
  loop::Kernel kernel;
  kernel.buffers = {{dtype, s.images * s.height * line, false},
                    {of_b, s.groups * layout.elements(), false},
                    {sums, s.images * rows * columns * s.filters, true}};
  kernel.body = std::move(c);
  return kernel;
}

/// The same over an image in planes: k = (channel, kernel row, kernel column).
loop::Kernel planar_convolution(const Convolution& s, const Target& target) {
  loop::Kernel kernel = convolution(s, target);
  auto& c = std::get<loop::Contraction>(kernel.body);
  const std::int64_t plane = s.height * s.width;
  c.a_offset = -s.padding * (s.width + 1);
  c.a_batch_strides = {0};
  c.a_m_strides = {s.channels * plane, s.stride * s.width, s.stride};
  c.k_extents = {s.channels, s.kernel, s.kernel};
  c.a_k_strides = {plane, s.dilation * s.width, s.dilation};
  c.a_guards = {{-s.padding, s.height, {0, 0, s.stride, 0, 0, s.dilation, 0}},
                {-s.padding, s.width, {0, 0, 0, s.stride, 0, 0, s.dilation}}};
  return kernel;
}

void check_planar(const Convolution& shape, std::uint32_t seed = 1) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(planar_convolution(shape, target), target, 1e-5, seed);
  }
}

void check(const Convolution& shape, std::uint32_t seed = 1) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(convolution(shape, target), target, 1e-5, seed);
  }
}

TEST(ContractionConvolution, padded_three_by_three) {
  check({.images = 2, .height = 9, .width = 11, .channels = 16, .filters = 48});
  check({.images = 1, .height = 14, .width = 14, .channels = 20, .filters = 70});
  check({.images = 1, .height = 23, .width = 19, .channels = 3, .filters = 16});
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

TEST(ContractionConvolution, few_channels_are_copied_with_their_margins) {
  for (const std::int64_t channels : {1, 2, 3, 8, 12, 15}) {
    for (const std::int64_t stride : {1, 2}) {
      const Convolution shape{.images = 2,
                              .height = 12,
                              .width = 37,
                              .channels = channels,
                              .filters = 20,
                              .stride = stride};
      SCOPED_TRACE(channels);
      check(shape);
      check_planar(shape);
    }
  }
  check({.images = 1,
         .height = 9,
         .width = 70,
         .channels = 8,
         .filters = 8,
         .kernel = 9,
         .dilation = 2,
         .padding = 8});
  check({.images = 1, .height = 9, .width = 30, .channels = 4, .filters = 33, .padding = 0});
  check_planar({.images = 1,
                .height = 9,
                .width = 30,
                .channels = 4,
                .filters = 33,
                .kernel = 5,
                .padding = 0});
}

/// To one channel, with dense weights.
void check_column(const Convolution& shape, bool planar) {
  for (const Target& target : host_targets()) {
    loop::Kernel kernel = planar ? planar_convolution(shape, target) : convolution(shape, target);
    auto& c = std::get<loop::Contraction>(kernel.body);
    c.b_packed = false;
    c.batch_extents.clear(), c.a_batch_strides.clear(), c.b_batch_strides.clear();
    for (loop::Guard& guard : c.a_guards) guard.coefficients.erase(guard.coefficients.begin());
    auto& strides = c.stores[0].access.strides;
    strides.erase(strides.begin());
    c.b_k_strides = {c.k_extents[1] * c.k_extents[2], c.k_extents[2], 1};
    kernel.buffers[1].elements = c.k_extents[0] * c.k_extents[1] * c.k_extents[2];
    expect_as_interpreted(kernel, target, 1e-5, 1);
  }
}

TEST(ContractionConvolution, channels_of_groups_are_copied_apart) {
  check({.images = 1, .height = 9, .width = 15, .channels = 48, .filters = 48, .groups = 3});
  for (const std::int64_t width : {5, 6, 7})
    check({.images = 2, .height = 7, .width = width, .channels = 24, .filters = 24, .groups = 3});
  check({.images = 2,
         .height = 7,
         .width = 23,
         .channels = 40,
         .filters = 60,
         .stride = 2,
         .groups = 5});
  check({.images = 1,
         .height = 12,
         .width = 17,
         .channels = 24,
         .filters = 32,
         .kernel = 5,
         .dilation = 2,
         .padding = 4,
         .groups = 2});
  check({.images = 1, .height = 8, .width = 14, .channels = 64, .filters = 64, .groups = 2});
}

TEST(ContractionConvolution, one_channel_sums_along_k) {
  for (const std::int64_t channels : {1, 8, 16, 33}) {
    for (const std::int64_t stride : {1, 2}) {
      SCOPED_TRACE(channels);
      check_column({.images = 2,
                    .height = 7,
                    .width = 41,
                    .channels = channels,
                    .filters = 1,
                    .kernel = 5,
                    .stride = stride,
                    .padding = 2},
                   false);
      check_column({.images = 1,
                    .height = 5,
                    .width = 40,
                    .channels = channels,
                    .filters = 1,
                    .kernel = 1,
                    .stride = stride,
                    .padding = 0},
                   false);
    }
  }
  check_column({.images = 1,
                .height = 19,
                .width = 70,
                .channels = 1,
                .filters = 1,
                .kernel = 19,
                .padding = 0},
               true);
  check_column({.images = 1, .height = 4, .width = 9, .channels = 20, .filters = 1}, false);
}

TEST(ContractionConvolution, margins_wider_than_the_image) {
  check({.images = 1, .height = 3, .width = 4, .channels = 3, .filters = 5, .padding = 9});
  check_planar({.images = 1,
                .height = 3,
                .width = 4,
                .channels = 3,
                .filters = 5,
                .stride = 2,
                .padding = 9});
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

/// Groups of k of a window's channels, of any number and of whole tiles.
void check_groups(bool quads, double tolerance) {
  std::vector<Target> targets = host_targets();
  std::erase_if(targets, [&](const Target& target) {
    const Machine machine = machine_of(target);
    return quads ? !machine.vnni : !machine.bf16_dot;
  });
  if (targets.empty()) GTEST_SKIP() << "This machine has no instructions for them.";
  const std::int64_t group = quads ? 4 : 2;
  std::mt19937 random(9);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (std::uint32_t round = 0; round < 60; ++round) {
    Convolution shape{
        .images = 2, .height = pick(5, 13), .width = pick(5, 40), .pairs = !quads, .quads = quads};
    shape.groups = pick(1, 2);
    shape.channels = shape.groups * (round % 2 == 0 ? group * pick(1, 20) : pick(1, 40));
    if (round % 3 == 0) shape.channels = shape.groups * 8 * group * pick(1, 4);
    shape.filters = shape.groups * pick(1, 70);
    shape.kernel = pick(1, 3);
    shape.stride = pick(1, 2);
    shape.dilation = pick(1, 2);
    shape.padding = pick(0, 3);
    SCOPED_TRACE(round);
    for (const Target& target : targets)
      expect_as_interpreted(convolution(shape, target), target, tolerance, round);
  }
}

TEST(ContractionConvolution, pairs_of_bf16) { check_groups(false, 2e-4); }

TEST(ContractionConvolution, quads_of_bytes_are_exact) { check_groups(true, 0); }

/// Taps outside of the image ask for nothing, and whoever asks computes the same.
TEST(ContractionConvolution, windows_ask_for_a_panel_ahead_where_L2_is_large) {
  const Convolution shape{.height = 9, .width = 9, .channels = 64, .filters = 128, .padding = 1};
  const auto blocks_that_ask = [&](const Target& target) {
    const loop::Kernel kernel = convolution(shape, target);
    return plan_contraction(std::get<loop::Contraction>(kernel.body), f32, f32,
                            PlanMachine(machine_of(target)))
        .asking_blocks;
  };
  for (const Target& target : host_targets())
    expect_as_interpreted(convolution(shape, target), target, 1e-4, 3);
  const std::string vectors = "+avx512vnni,+avx512bf16";
  EXPECT_EQ(blocks_that_ask({Isa::avx512, "sapphirerapids", vectors}), 0);
  // Of fourteen blocks of rows the first twelve.
  EXPECT_EQ(blocks_that_ask({Isa::avx512, "sapphirerapids", vectors + ",+avx512fp16"}), 12);
}

/// Windows with padding are tiles, too: their lines are copied, with zeros around them.
TEST(ContractionConvolution, windows_of_groups_are_multiplied_in_tiles) {
  const Target tiles{Isa::avx512, "sapphirerapids",
                     "+avx512vnni,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8"};
  for (const bool quads : {false, true}) {
    const Convolution shape{
        .height = 14, .width = 14, .channels = 64, .filters = 32, .pairs = !quads, .quads = quads};
    const loop::Kernel kernel = convolution(shape, tiles);
    const auto& contraction = std::get<loop::Contraction>(kernel.body);
    const DType a = kernel.buffers[0].dtype, b = kernel.buffers[1].dtype;
    const ContractionPlan plan =
        plan_contraction(contraction, a, b, PlanMachine(machine_of(tiles)));
    EXPECT_EQ(plan.tile_steps, most_tile_steps);
    EXPECT_EQ(plan.line.segments, 14);
    // Without tiles long runs of k hide what guards cost.
    const Target rows{Isa::avx512, "sapphirerapids", "+avx512vnni,+avx512bf16"};
    EXPECT_EQ(plan_contraction(contraction, a, b, PlanMachine(machine_of(rows))).line.segments, 0);
  }
}

/// Any number of dims of each kind, strides of any sign, guards that depend on any dims: addresses
/// are kept inside of A by an offset and the buffer's size, values by the guards alone.
loop::Kernel random_contraction(std::uint32_t seed, const Target& target) {
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  loop::Contraction c;
  std::int64_t low = 0, high = 0, results = 1, depth = 1;
  const auto dims = [&](std::vector<std::int64_t>& extents, std::vector<std::int64_t>& strides,
                        std::int64_t most) {
    for (std::int64_t i = pick(0, 3); i > 0; --i) {
      extents.push_back(pick(1, most));
      strides.push_back(pick(-3, 9));
      (strides.back() < 0 ? low : high) += strides.back() * (extents.back() - 1);
    }
  };
  dims(c.batch_extents, c.a_batch_strides, 3);
  dims(c.m_extents, c.a_m_strides, 6);
  dims(c.k_extents, c.a_k_strides, 7);
  c.a_offset = -low;
  c.n = pick(1, 50);
  for (std::int64_t extent : c.k_extents) depth *= extent;
  std::vector<std::int64_t> all = c.batch_extents;
  all.insert(all.end(), c.m_extents.begin(), c.m_extents.end());
  std::vector<std::int64_t> strides;
  for (std::int64_t extent : all) results *= extent;
  std::int64_t stride = results * c.n;
  for (std::int64_t extent : all) strides.push_back(stride /= extent);
  strides.push_back(1);
  all.insert(all.end(), c.k_extents.begin(), c.k_extents.end());
  for (std::int64_t i = pick(0, 2); i > 0; --i) {
    loop::Guard guard{pick(-4, 2), pick(0, 9), {}};
    for (std::size_t d = 0; d < all.size(); ++d) guard.coefficients.push_back(pick(-1, 2));
    c.a_guards.push_back(guard);
  }
  c.b_buffer = 1;
  c.b_packed = true;
  const auto layout = choose_packed_layout(c.n, depth, f32, target);
  c.panel_width = static_cast<std::int32_t>(layout.panel_width);
  c.b_batch_strides.assign(c.batch_extents.size(), 0);
  if (!c.batch_extents.empty()) c.b_batch_strides.back() = 1;
  c.nodes = {{.op = ScalarOp::accumulator}};
  c.stores = {{loop::Access{2, 0, strides, {}, {}, 0}, 0}};
  const std::int64_t matrices = c.batch_extents.empty() ? 1 : c.batch_extents.back();
  loop::Kernel kernel;
  kernel.buffers = {{f32, high - low + 1, false},
                    {f32, matrices * layout.elements(), false},
                    {f32, results * c.n, true}};
  kernel.body = std::move(c);
  return kernel;
}

TEST(ContractionConvolution, any_dims_and_guards) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    for (const Target& target : host_targets()) {
      expect_as_interpreted(random_contraction(seed, target), target, 1e-5, seed);
    }
  }
}

}  // namespace
}  // namespace rlx::codegen::testing
