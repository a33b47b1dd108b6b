// Reductions over windows, with their borders, strides, tails of channels and epilogues.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>

#include "codegen/llvm/nest_plan.hpp"
#include "nest_build.hpp"
#include "nest_fixture.hpp"

namespace rlx::testing {
namespace {

struct Window {
  std::vector<std::int64_t> size, kernel, stride, dilation, pad;  ///< by spatial dim
  std::int64_t images = 1, channels = 1;

  std::int64_t out(std::size_t i) const {
    return (size[i] + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
  std::size_t rank() const { return size.size(); }
  std::string text() const {
    return fmt::format("{} images of {} x {}, kernel {} stride {} dilation {} pad {}", images, size,
                       channels, kernel, stride, dilation, pad);
  }
};

enum class Kind { depthwise, two_sums, narrow, largest };

/// Channels last; the domain is (image, spatial..., channel | taps...).
class WindowBuilder {
 public:
  explicit WindowBuilder(const Window& window) : window_(window), nest_(extents(window)) {
    image_.assign(rank(), 0);
    out_.assign(rank(), 0);
    std::int64_t in_step = window.channels, out_step = window.channels;
    image_[spatial() + 1] = out_[spatial() + 1] = 1;
    for (std::size_t i = spatial(); i-- > 0;) {
      image_[i + 1] = in_step * window.stride[i];
      image_[spatial() + 2 + i] = in_step * window.dilation[i];
      offset_ -= in_step * window.pad[i];
      out_[i + 1] = out_step;
      in_step *= window.size[i];
      out_step *= window.out(i);
    }
    image_[0] = in_step, out_[0] = out_step;
    in_elements_ = in_step * window.images, out_elements_ = out_step * window.images;
  }

  loop::Kernel make(Kind kind, bool in_place) {
    const DType dtype = kind == Kind::narrow ? DType::f16 : DType::f32;
    const bool largest = kind == Kind::largest;
    ScalarId x = nest_.load(image(dtype, largest ? -std::numeric_limits<double>::infinity() : 0));
    if (kind == Kind::narrow) x = nest_.cast(x, DType::f32);
    ScalarId result = -1;
    if (largest) {
      result = nest_.reduce(ReduceKind::max, x);
    } else {
      const int weights = this->weights();
      const ScalarId product = nest_.binary(ScalarOp::mul, x, nest_.load(weights, taps_));
      result = nest_.reduce(ReduceKind::sum, product);
      if (kind == Kind::two_sums) {
        const ScalarId square = nest_.binary(ScalarOp::mul, x, x);
        const ScalarId squares = nest_.reduce(ReduceKind::sum, square);
        result = nest_.binary(ScalarOp::add, result, squares);
      }
    }
    std::vector<std::int64_t> along(rank(), 0);
    along[spatial() + 1] = 1;
    const int bias = nest_.buffer(DType::f32, window_.channels);
    result = nest_.binary(ScalarOp::add, result, nest_.load(bias, along));
    const int out = nest_.buffer(DType::f32, out_elements_);
    if (in_place) result = nest_.binary(ScalarOp::add, result, nest_.load(out, out_));
    result = nest_.unary(ScalarOp::tanh, result);
    nest_.store(out, result, out_);
    return nest_.kernel(static_cast<int>(spatial()) + 2);
  }

 private:
  std::size_t spatial() const { return window_.rank(); }
  std::size_t rank() const { return 2 * window_.rank() + 2; }

  static std::vector<std::int64_t> extents(const Window& window) {
    std::vector<std::int64_t> list{window.images};
    for (std::size_t i = 0; i < window.rank(); ++i) list.push_back(window.out(i));
    list.push_back(window.channels);
    list.insert(list.end(), window.kernel.begin(), window.kernel.end());
    return list;
  }

  loop::Access image(DType dtype, double fill) {
    loop::Access access{.buffer = nest_.buffer(dtype, in_elements_),
                        .offset = offset_,
                        .strides = image_,
                        .fill = fill};
    for (std::size_t i = 0; i < spatial(); ++i) {
      if (window_.pad[i] == 0) continue;
      loop::Guard guard{-window_.pad[i], window_.size[i], std::vector<std::int64_t>(rank(), 0)};
      guard.coefficients[i + 1] = window_.stride[i];
      guard.coefficients[spatial() + 2 + i] = window_.dilation[i];
      access.guards.push_back(std::move(guard));
    }
    return access;
  }

  int weights() {
    taps_.assign(rank(), 0);
    std::int64_t step = window_.channels;
    taps_[spatial() + 1] = 1;
    for (std::size_t i = spatial(); i-- > 0;) {
      taps_[spatial() + 2 + i] = step;
      step *= window_.kernel[i];
    }
    return nest_.buffer(DType::f32, step);
  }

  const Window& window_;
  NestBuilder nest_;
  std::vector<std::int64_t> image_, out_, taps_;
  std::int64_t offset_ = 0, in_elements_ = 0, out_elements_ = 0;
};

void expect_right(const Window& window, Kind kind, bool in_place = false, unsigned seed = 1) {
  SCOPED_TRACE(window.text());
  const double tolerance = kind == Kind::narrow ? 1e-3 : 2e-5;
  expect_as_interpreted(WindowBuilder(window).make(kind, in_place), tolerance, seed);
}

Window square(std::int64_t size, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
              std::int64_t dilation = 1) {
  const std::int64_t pad = dilation * (kernel - 1) / 2;
  return {.size = {size, size},
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .dilation = {dilation, dilation},
          .pad = {pad, pad},
          .images = 2,
          .channels = channels};
}

TEST(NestWindow, ChannelsFillRegistersOrNot) {
  for (const std::int64_t channels : {1, 3, 4, 8, 9, 15, 16, 20, 32, 40, 58, 88})
    expect_right(square(9, channels, 3, 1), Kind::depthwise);
}

TEST(NestWindow, RowsFromOnePointToManyTiles) {
  for (const std::int64_t size : {1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 25, 33}) {
    expect_right(square(size, 16, 3, 1), Kind::depthwise);
    expect_right(square(size, 24, 5, 2), Kind::depthwise);
  }
}

TEST(NestWindow, KernelsStridesAndDilations) {
  for (const std::int64_t kernel : {1, 2, 3, 5, 7, 11}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t dilation : {1, 2, 5})
        expect_right(square(18, 16, kernel, stride, dilation), Kind::depthwise);
    }
  }
}

TEST(NestWindow, WindowsLargerThanTheImage) {
  expect_right(square(4, 16, 9, 1), Kind::depthwise);
  expect_right(square(4, 16, 9, 1), Kind::largest);
  expect_right(square(3, 16, 3, 1, 6), Kind::depthwise);
}

TEST(NestWindow, LongWindowsHaveWideTiles) {
  for (const std::int64_t size : {16, 33}) {
    for (const std::int64_t kernel : {7, 13})
      expect_right(square(size, 16, kernel, 1), Kind::depthwise);
  }
  expect_right(square(17, 16, 9, 1), Kind::two_sums);
}

// The lines that a row of windows reads are more than L2 keeps.
TEST(NestWindow, WideImagesGoByPiecesOfTheirChannels) {
  for (const std::int64_t channels : {1120, 1133}) {
    expect_right({.size = {3, 17},
                  .kernel = {7, 7},
                  .stride = {1, 1},
                  .dilation = {1, 1},
                  .pad = {3, 3},
                  .images = 2,
                  .channels = channels},
                 Kind::depthwise);
  }
}

// Of images of 4 MB and more the next row is asked for.
TEST(NestWindow, RowsOfLargeImagesAreAskedFor) {
  Window window = square(130, 64, 3, 1);
  window.images = 1;
  expect_right(window, Kind::depthwise);
  const auto asked = [&](std::int64_t size, std::int64_t stride, std::int64_t dilation) {
    const loop::Kernel kernel =
        WindowBuilder(square(size, 64, 3, stride, dilation)).make(Kind::depthwise, false);
    const auto code = generator().generate(kernel, {codegen::Isa::avx2, "", ""});
    EXPECT_TRUE(code.ok());
    const auto byte = [&](std::size_t at) { return std::to_integer<int>(code->object[at]); };
    int count = 0;  // PREFETCHT1 m8 with a base and a distance: 0F 18 /2
    for (std::size_t i = 0; i + 2 < code->object.size(); ++i)
      count += byte(i) == 0x0f && byte(i + 1) == 0x18 && (byte(i + 2) & 0xb8) == 0x90;
    return count;
  };
  EXPECT_EQ(asked(40, 1, 1), 0) << "L3 has these as fast";
  const int once = asked(130, 1, 1);
  EXPECT_GE(once, 5) << "a line of each column";
  EXPECT_EQ(asked(130, 1, 2), once) << "one row is new, however far apart the taps are";
  EXPECT_GT(asked(130, 2, 1), once) << "two rows are new";
}

// A row of windows reads more than L1 holds, but not with some of the channels.
TEST(NestWindow, ImagesBeyondL1GoDownTheirRows) {
  const auto bands = [](const Window& window) {
    const loop::Kernel kernel = WindowBuilder(window).make(Kind::depthwise, false);
    const codegen::Machine machine = codegen::machine_of(host_targets().front());
    const codegen::NestPlan plan = codegen::plan_nest(std::get<loop::Nest>(kernel.body), machine);
    return codegen::bands_of_window(plan, kernel.buffers, machine);
  };
  EXPECT_EQ(bands(square(9, 96, 3, 1)).channels, 0) << "it fits";
  EXPECT_EQ(bands(square(20, 256, 5, 1)).channels, 0) << "too few sets of L1 hold it";
  EXPECT_EQ(bands(square(60, 192, 3, 1)).channels, 0) << "nor does L2 hold it";
  for (const std::int64_t channels : {192, 200, 187}) {
    for (const std::int64_t stride : {1, 2}) {
      const Window window = square(stride * 10, channels, 5, stride);
      EXPECT_GT(bands(window).channels, 0) << window.text();
      expect_right(window, Kind::depthwise);
      expect_right(window, Kind::largest);
    }
  }
  Window odd = square(15, 240, 5, 1);
  odd.size[0] = 11;
  EXPECT_GT(bands(odd).channels, 0);
  expect_right(odd, Kind::depthwise, true);
}

// More sets and narrower bands where L1 is known to hold 48 KB.
TEST(NestWindow, CoresWithLargeL2TakeNarrowerBands) {
  const auto channels = [](const codegen::Target& target) {
    const Window window = square(28, 192, 5, 1);
    const loop::Kernel kernel = WindowBuilder(window).make(Kind::depthwise, false);
    const codegen::Machine machine = codegen::machine_of(target);
    const codegen::NestPlan plan = codegen::plan_nest(std::get<loop::Nest>(kernel.body), machine);
    return codegen::bands_of_window(plan, kernel.buffers, machine).channels;
  };
  EXPECT_GE(channels({codegen::Isa::avx512, "", "+avx512fp16"}), 32);
  EXPECT_EQ(channels({codegen::Isa::avx512, "", ""}), 0);
  expect_right(square(28, 192, 5, 1), Kind::depthwise);
}

// A worker who had a half of the channels of all rows would fetch half of every row from the other.
TEST(NestWindow, WorkersHaveAllChannelsOfTheirRowsOfSums) {
  constexpr std::int64_t channels = 192;
  for (const std::int64_t rows : {10, 16, 20, 24}) {
    for (const std::int64_t places : {10, 16, 17, 24, 60}) {
      NestBuilder nest({rows, channels, places});
      const int in = nest.buffer(f32, rows * places * channels),
                out = nest.buffer(f32, rows * channels);
      const ScalarId x = nest.load(in, {places * channels, 1, channels});
      nest.store(out, nest.reduce(ReduceKind::sum, x), {channels, 1, 0});
      const loop::Kernel kernel = nest.kernel(2);
      for (const codegen::Target& target : host_targets()) {
        std::mt19937 random(3);
        Contents contents = random_contents(kernel, random);
        const std::vector<std::byte> before = contents[1];
        run_half(kernel, target, contents, 0);
        const auto is_written = [&](std::int64_t row, std::int64_t channel) {
          const auto at = static_cast<std::size_t>((row * channels + channel) * 4);
          return std::memcmp(&contents[1][at], &before[at], 4) != 0;
        };
        for (std::int64_t row = 0; row < rows; ++row) {
          for (const std::int64_t channel : {std::int64_t{0}, channels / 2, channels - 1})
            EXPECT_EQ(is_written(row, channel), row < rows / 2)
                << row << " of " << rows << ", " << places;
        }
      }
    }
  }
}

// As the products around have theirs: by channels where those are so many more than the points that
// products of such images share out columns.
TEST(NestWindow, ImagesOfManyChannelsFallToWorkersByThem) {
  for (const auto& [size, channels] :
       {std::pair<std::int64_t, std::int64_t>{10, 384}, {12, 192}, {20, 192}}) {
    Window window = square(size, channels, 5, 1);
    window.images = 1;
    const loop::Kernel kernel = WindowBuilder(window).make(Kind::depthwise, false);
    for (const codegen::Target& target : host_targets()) {
      const codegen::Machine machine = codegen::machine_of(target);
      std::mt19937 random(5);
      Contents contents = random_contents(kernel, random);
      const std::size_t out = contents.size() - 1;
      const std::vector<std::byte> before = contents[out];
      run_half(kernel, target, contents, 0);
      for (const std::int64_t point : {std::int64_t{0}, size * size - 1}) {
        for (const std::int64_t channel : {std::int64_t{0}, channels - 1}) {
          const auto at = static_cast<std::size_t>((point * channels + channel) * 4);
          const std::int64_t most = codegen::most_columns_for_a_row(machine.large_l2);
          const bool is_mine = channels > most * size * size ? channel == 0 : point == 0;
          EXPECT_EQ(std::memcmp(&contents[out][at], &before[at], 4) != 0, is_mine)
              << window.text() << ", point " << point << ", channel " << channel;
        }
      }
    }
  }
}

TEST(NestWindow, OneAndThreeSpatialDims) {
  expect_right({.size = {300},
                .kernel = {9},
                .stride = {1},
                .dilation = {1},
                .pad = {4},
                .images = 1,
                .channels = 40},
               Kind::depthwise);
  expect_right({.size = {5, 6, 11},
                .kernel = {3, 2, 3},
                .stride = {1, 2, 1},
                .dilation = {1, 1, 2},
                .pad = {1, 0, 2},
                .images = 1,
                .channels = 18},
               Kind::depthwise);
  expect_right({.size = {12, 7},
                .kernel = {5, 1},
                .stride = {1, 1},
                .dilation = {1, 1},
                .pad = {2, 0},
                .images = 1,
                .channels = 16},
               Kind::depthwise);
}

TEST(NestWindow, PoolsSharedOperandsAndNarrowFloats) {
  for (const std::int64_t size : {6, 13, 20}) {
    expect_right(square(size, 24, 3, 2), Kind::largest);
    expect_right(square(size, 24, 3, 1), Kind::two_sums);
    expect_right(square(size, 24, 3, 1), Kind::narrow);
  }
}

TEST(NestWindow, ResultsMayLieWhereTheResidualLay) {
  for (const std::int64_t size : {7, 11, 17, 19})
    expect_right(square(size, 21, 3, 1), Kind::depthwise, true);
}

TEST(NestWindow, RandomWindows) {
  std::mt19937 random(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (unsigned round = 0; round < 40; ++round) {
    Window window{.size = {},
                  .kernel = {},
                  .stride = {},
                  .dilation = {},
                  .pad = {},
                  .images = 1,
                  .channels = pick(1, 50)};
    for (std::int64_t i = pick(1, 3); i-- > 0;) {
      window.kernel.push_back(pick(1, 5));
      window.dilation.push_back(pick(1, 2));
      const std::int64_t reach = window.dilation.back() * (window.kernel.back() - 1) + 1;
      window.size.push_back(pick(reach, reach + 14));
      window.stride.push_back(pick(1, 3));
      window.pad.push_back(pick(0, reach));
    }
    expect_right(window, static_cast<Kind>(pick(0, 3)), pick(0, 1) == 1, round);
  }
}

}  // namespace
}  // namespace rlx::testing
