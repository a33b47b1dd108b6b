// Products of pairs of bf16 or integers and of byte quads along k against the oracle, and packing
// for them.
#include <algorithm>
#include <cmath>
#include <span>

#include "base/half.hpp"
#include "codegen/machine.hpp"
#include "codegen/pack.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// The host's targets that have the instructions.
std::vector<Target> targets_with(bool Machine::* feature) {
  std::vector<Target> targets = host_targets();
  std::erase_if(targets, [&](const Target& target) { return !(machine_of(target).*feature); });
  return targets;
}

/// Groups of k as they lie in panels: runs of any length, or whole tiles of `tile` elements.
std::int64_t depth(std::mt19937& random, std::int64_t most, std::int64_t tile) {
  return random() % 2 == 0 ? between(random, 1, most) : tile * between(random, 1, most / tile);
}

TEST(ContractionGroups, bf16_pairs_of_packed_weights) {
  const std::vector<Target> targets = targets_with(&Machine::bf16_dot);
  if (targets.empty()) GTEST_SKIP() << "This machine has no AVX512-BF16.";
  for (const Target& target : targets) {
    std::mt19937 random(3);
    for (std::uint32_t round = 0; round < 60; ++round) {
      MatmulOptions options{.m = round < 20 ? 1 + round : between(random, 1, 150),
                            .n = between(random, 1, 140),
                            .k = depth(random, 300, 32),
                            .batch = between(random, 1, 3),
                            .a = bf16,
                            .b = bf16,
                            .k_group = 2};
      SCOPED_TRACE(round);
      expect_as_interpreted(matmul(options, target), target, 2e-4, round);
    }
  }
}

TEST(ContractionGroups, bf16_pairs_of_panels_in_scratch) {
  const std::vector<Target> targets = targets_with(&Machine::bf16_dot);
  if (targets.empty()) GTEST_SKIP() << "This machine has no AVX512-BF16.";
  for (const Target& target : targets) {
    std::mt19937 random(4);
    for (std::uint32_t round = 0; round < 60; ++round) {
      MatmulOptions options{.m = between(random, 1, 60),
                            .n = between(random, 1, 140),
                            .k = depth(random, 150, 32),
                            .batch = between(random, 1, 3),
                            .packed = false,
                            .a = bf16,
                            .b = bf16};
      options.transposed_b = random() % 2 == 0;
      options.transposed_a = random() % 4 == 0;
      SCOPED_TRACE(round);
      expect_as_interpreted(matmul(options, target), target, 2e-4, round);
    }
  }
}

TEST(ContractionGroups, byte_quads_are_exact) {
  const std::vector<Target> targets = targets_with(&Machine::vnni);
  if (targets.empty()) GTEST_SKIP() << "This machine has no AVX512-VNNI.";
  for (const Target& target : targets) {
    std::mt19937 random(5);
    for (std::uint32_t round = 0; round < 60; ++round) {
      MatmulOptions options{.m = round < 20 ? 1 + round : between(random, 1, 150),
                            .n = between(random, 1, 140),
                            .k = depth(random, 300, 64),
                            .batch = between(random, 1, 3),
                            .a = u8,
                            .b = i8,
                            .accumulator = i32,
                            .k_group = 4};
      SCOPED_TRACE(round);
      expect_as_interpreted(matmul(options, target), target, 0, round);
    }
  }
}

TEST(ContractionGroups, pairs_of_integers_are_exact_on_every_machine) {
  constexpr DType dtypes[] = {u8, i8, i16};
  std::mt19937 random(6);
  for (const Target& target : host_targets()) {
    for (std::uint32_t round = 0; round < 60; ++round) {
      MatmulOptions options{.m = round < 10 ? 1 + round : between(random, 1, 60),
                            .n = between(random, 1, 140),
                            .k = between(random, 1, 100),
                            .batch = between(random, 1, 3),
                            .packed = round % 4 != 0,
                            .a = dtypes[random() % 3],
                            .b = dtypes[random() % 3],
                            .accumulator = i32};
      options.k_group = options.packed ? 2 : 1;
      options.transposed_b = !options.packed && random() % 2 == 0;
      SCOPED_TRACE(round);
      expect_as_interpreted(matmul(options, target), target, 0, round);
    }
  }
}

TEST(ContractionGroups, a_machine_without_the_instructions_refuses) {
  if (!generator()) return;
  const Target portable{};
  const auto pairs = generator()->generate(
      matmul({.m = 4, .n = 16, .k = 8, .a = bf16, .b = bf16, .k_group = 2}, portable), portable);
  ASSERT_FALSE(pairs);
  EXPECT_EQ(pairs.error().kind, ErrorKind::unsupported);
}

TEST(PackGroups, widens_bytes) {
  const std::int64_t k = 5, n = 3, width = 16;
  std::vector<std::int8_t> source;
  for (std::int64_t i = 0; i < k * n; ++i)
    source.push_back(static_cast<std::int8_t>(i % 2 == 0 ? i : -128 + i));
  for (const DType dtype : {u8, i8}) {
    const PackSource from{
        .data = source.data(), .from = dtype, .k_extents = {k}, .k_strides = {n}, .n_stride = 1};
    const PackedLayout layout{n, k, width, i16, 2, k};
    std::vector<std::int16_t> packed(static_cast<std::size_t>(layout.elements()), -1);
    pack(from, layout, packed.data());
    for (std::int64_t row = 0; row < k; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const std::int8_t value = source[static_cast<std::size_t>(row * n + column)];
        const auto place = static_cast<std::size_t>(row / 2 * 2 * width + column * 2 + row % 2);
        EXPECT_EQ(packed[place], dtype == i8 ? value : static_cast<std::uint8_t>(value));
      }
    }
  }
}

TEST(PackGroups, rounds_and_fills) {
  for (const std::int64_t inner : {1, 5, 8}) {
    const std::int64_t outer = 3, n = 20, width = 16, k = outer * inner;
    std::vector<float> source(static_cast<std::size_t>(k * n));
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::sin(static_cast<float>(i)) * 3;
    const PackSource from{.data = source.data(),
                          .from = f32,
                          .k_extents = {outer, inner},
                          .k_strides = {inner, 1},
                          .n_stride = k};
    const PackedLayout layout{n, k, width, bf16, 2, inner};
    const std::int64_t filled = (inner + 1) / 2 * 2;
    ASSERT_EQ(layout.filled_k(), outer * filled);
    std::vector<std::uint16_t> packed(static_cast<std::size_t>(layout.elements()), 0xffff);
    pack(from, layout, packed.data());
    for (std::int64_t column = 0; column < 32; ++column) {
      for (std::int64_t at = 0; at < layout.filled_k(); ++at) {
        const std::int64_t row = at / filled * inner + at % filled;
        const bool exists = column < n && at % filled < inner;
        const auto wanted =
            exists ? BFloat16(source[static_cast<std::size_t>(column * k + row)]).bits : 0;
        const std::int64_t place =
            (column / width * layout.filled_k() + at / 2 * 2) * width + column % width * 2 + at % 2;
        EXPECT_EQ(packed[static_cast<std::size_t>(place)], wanted) << column << " " << at;
      }
    }
  }
}

/// Where an element of the source goes, and what: the layout as pack.hpp tells it.
template <class T>
std::vector<T> packed_plainly(const PackSource& source, const PackedLayout& layout) {
  std::vector<T> packed(static_cast<std::size_t>(layout.elements() * source.batches), T{0});
  const auto* elements = static_cast<const T*>(source.data);
  const std::int64_t inner = source.k_extents.back(), group = layout.group;
  const std::int64_t filled = group == 1 ? inner : (inner + group - 1) / group * group;
  for (std::int64_t batch = 0; batch < source.batches; ++batch) {
    for (std::int64_t row = 0; row < layout.k; ++row) {
      const std::int64_t from =
          source.offset + batch * source.batch_stride +
          (source.k_extents.size() > 1 ? row / inner * source.k_strides.front() : 0) +
          row % inner * source.k_strides.back();
      const std::int64_t k = row / inner * filled + row % inner;
      for (std::int64_t column = 0; column < layout.n; ++column) {
        const std::int64_t panel = column / layout.panel_width;
        const std::int64_t place =
            batch * layout.elements() +
            (panel * layout.filled_k() + k / group * group) * layout.panel_width +
            column % layout.panel_width * group + k % group;
        packed[static_cast<std::size_t>(place)] = elements[from + column * source.n_stride];
      }
    }
  }
  return packed;
}

/// Rows side by side, columns side by side, neither, and one number for all, from an odd offset;
/// some of several pieces. What is shown is all of it, in order, as it stays.
template <class T>
void expect_packed_plainly(DType dtype, std::int64_t group) {
  std::mt19937 random(9);
  for (int round = 0; round < 268; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t outer = between(random, 1, 3);
    const std::int64_t inner = between(random, 0, round % 7 == 0 ? 5000 : 40);
    const std::int64_t n = between(random, 1, 150), gap = between(random, 1, 3);
    const std::int64_t k = outer * inner, batches = between(random, 1, 2);
    const std::int64_t width = 16 * between(random, 1, 4);
    PackSource source{.offset = round % 5, .batches = batches, .batch_stride = k * n * gap};
    source.k_extents = {outer, inner};
    if (round % 4 == 0) source.k_strides = {inner * n, n}, source.n_stride = 1;
    if (round % 4 == 1) source.k_strides = {inner, 1}, source.n_stride = k;
    if (round % 4 == 2) source.k_strides = {inner * gap, gap}, source.n_stride = k * gap;
    if (round % 4 == 3) source.k_strides = {0, 0}, source.n_stride = 0;
    std::vector<T> elements(static_cast<std::size_t>(source.offset + batches * k * n * gap));
    for (T& element : elements) element = static_cast<T>(random());
    source.data = elements.data();
    const PackedLayout layout{n, k, width, dtype, group, inner};
    std::vector<T> packed(static_cast<std::size_t>(layout.elements() * batches), T{77});
    std::vector<std::byte> shown;
    pack(source, layout, packed.data(), [&](std::span<const std::byte> bytes) {
      shown.insert(shown.end(), bytes.begin(), bytes.end());
    });
    EXPECT_TRUE(packed == packed_plainly<T>(source, layout));
    EXPECT_TRUE(std::ranges::equal(shown, std::as_bytes(std::span(packed))));
  }
}

TEST(PackGroups, quads_and_pairs_of_bytes) {
  expect_packed_plainly<std::uint8_t>(i8, 4);
  expect_packed_plainly<std::uint8_t>(u8, 2);
}

TEST(PackGroups, pairs_of_sixteen_bits) { expect_packed_plainly<std::uint16_t>(bf16, 2); }

TEST(PackGroups, single_elements) {
  expect_packed_plainly<std::uint8_t>(i8, 1);
  expect_packed_plainly<std::uint32_t>(f32, 1);
}

}  // namespace
}  // namespace rlx::codegen::testing
