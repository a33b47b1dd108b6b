// Kernels that share code: who does, and that each computes what its own code computes.
#include "codegen/code_family.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "base/error.hpp"
#include "codegen/code_library.hpp"
#include "codegen/contraction_fixture.hpp"
#include "codegen/host_target.hpp"
#include "codegen/nest_build.hpp"

namespace rlx::codegen {
namespace {

OpenCode open_code(std::string structure, std::vector<std::int64_t> numbers) {
  return OpenCode(KernelOutline{std::move(structure), std::move(numbers), 1, 0});
}

TEST(CodeFamily, kernels_of_one_structure_belong_together) {
  const std::vector<std::optional<OpenCode>> kernels = {open_code("a", {1, 5, 5, 7}),
                                                        open_code("b", {1}), std::nullopt,
                                                        open_code("a", {1, 6, 6, 9}), std::nullopt};
  const std::vector<CodeFamily> families = families_of(kernels);
  ASSERT_EQ(families.size(), 4U);
  EXPECT_EQ(families[0].members, (std::vector<std::size_t>{0, 3}));
  // What is equal in all stays, and what is equal in each has one name.
  EXPECT_EQ(families[0].names, (std::vector<std::int32_t>{-1, 0, 0, 1}));
  EXPECT_EQ(families[0].values[0], (std::vector<std::int64_t>{5, 7}));
  EXPECT_EQ(families[0].values[1], (std::vector<std::int64_t>{6, 9}));
  EXPECT_EQ(families[1].members, (std::vector<std::size_t>{1}));
  EXPECT_EQ(families[2].members, (std::vector<std::size_t>{2}));
  EXPECT_EQ(families[3].members, (std::vector<std::size_t>{4}));
}

TEST(CodeFamily, numbers_that_no_instruction_holds_keep_kernels_apart) {
  const std::vector<std::optional<OpenCode>> kernels = {open_code("a", {std::int64_t{1} << 31}),
                                                        open_code("a", {4}),
                                                        open_code("a", {-(std::int64_t{1} << 31)})};
  EXPECT_EQ(families_of(kernels).size(), 3U);
  EXPECT_EQ(families_of(std::span(kernels).subspan(1)).size(), 1U);
}

TEST(CodeFamily, objects_that_are_none_are_refused) {
  EXPECT_FALSE(with_numbers(KernelCode{}, open_code("a", {1}), std::vector<std::int64_t>{1}));
}

std::vector<float> result_of(const LoadedKernel& code, const loop::Kernel& kernel) {
  std::vector<std::vector<float>> memory;
  std::vector<void*> buffers;
  for (const loop::Buffer& buffer : kernel.buffers) {
    std::vector<float>& values = memory.emplace_back(static_cast<std::size_t>(buffer.elements));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11);
  }
  for (std::vector<float>& values : memory) buffers.push_back(values.data());
  const auto bytes = static_cast<std::size_t>(code.scratch_bytes) + 64;
  std::vector<std::byte> scratch(bytes + 64);
  void* aligned = scratch.data();
  std::size_t room = scratch.size();
  aligned = std::align(64, bytes, aligned, room);
  code.function(buffers.data(), 0, code.work_items, aligned);
  return memory.back();
}

/// Both of the library, which shares code, and alone: the same numbers.
void expect_same_results(std::span<const loop::Kernel> kernels, const Target& target) {
  CodeLibrary library(target, CodeCache(not_available("No cache ({}).", "test")),
                      GeneratorSource::of(*testing::generator()), 2);
  const std::vector<LoadedKernel> shared = library.load(kernels).value();
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const KernelCode own = testing::generator()->generate(kernels[i], target).value();
    const std::vector<LoadedKernel> loaded = CodeLibrary::adopt(std::span(&own, 1)).value();
    EXPECT_EQ(shared[i].work_items, loaded[0].work_items) << i;
    EXPECT_EQ(result_of(shared[i], kernels[i]), result_of(loaded[0], kernels[i])) << i;
  }
}

/// How many families the kernels make; each has open code.
std::size_t family_count(std::span<const loop::Kernel> kernels, const Target& target) {
  std::vector<std::optional<OpenCode>> open;
  for (const loop::Kernel& kernel : kernels)
    open.emplace_back(testing::generator()->outline(kernel, target).value());
  return families_of(open).size();
}

/// op(x) of [a, b, c], stored as [b, a, c]: items are rows of b, or parts of them.
loop::Kernel turned_rows(ScalarOp op, std::int64_t a, std::int64_t b, std::int64_t c) {
  rlx::testing::NestBuilder nest({a, b, c});
  const int in = nest.buffer(f32, a * b * c), out = nest.buffer(f32, a * b * c);
  nest.store(out, nest.unary(op, nest.load(in, {b * c, c, 1})), {c, a * c, 1});
  return nest.kernel(3);
}

TEST(CodeFamily, shared_code_computes_what_own_code_does) {
  const Target target = host_target().value();
  std::vector<loop::Kernel> kernels;
  for (const std::int64_t depth : {64, 96, 128, 160, 1000})
    kernels.push_back(testing::matmul({.m = 28, .n = 32, .k = depth}, target));
  for (const std::int64_t rows : {1, 13, 14, 15, 41, 42, 200})
    kernels.push_back(testing::matmul({.m = rows, .n = 32, .k = 64}, target));
  // Other numbers of column blocks, of which eight and fewer may ask for rows.
  for (const std::int64_t columns : {576, 640, 768})
    kernels.push_back(testing::matmul({.m = 28, .n = columns, .k = 64}, target));
#if defined(__x86_64__)
  EXPECT_LT(family_count(kernels, target), kernels.size());
  EXPECT_EQ(family_count(std::span(kernels).last(3), target), 1U);
#endif
  expect_same_results(kernels, target);
}

/// op(x) of so many numbers: items are pieces, of which the last one is shorter.
loop::Kernel pieces(ScalarOp op, std::int64_t count) {
  rlx::testing::NestBuilder nest({count});
  const int in = nest.buffer(f32, count), out = nest.buffer(f32, count);
  nest.store(out, nest.unary(op, nest.load(in, {1})), {1});
  return nest.kernel(1);
}

// What an item is depends on divisions by extents, of which none keeps kernels apart; nor do the
// ends of parts, or the numbers of an approximation, which are loaded.
TEST(CodeFamily, kernels_that_divide_by_other_numbers_share_code) {
  const Target target = host_target().value();
  for (const ScalarOp op : {ScalarOp::neg, ScalarOp::exp}) {
    const std::vector<loop::Kernel> kernels = {
        turned_rows(op, 12, 7, 640), turned_rows(op, 16, 9, 960), turned_rows(op, 20, 11, 640)};
    const std::vector<loop::Kernel> ends = {pieces(op, 193600), pieces(op, 580800)};
#if defined(__x86_64__)
    EXPECT_EQ(family_count(kernels, target), 1U);
    EXPECT_EQ(family_count(ends, target), 1U);
#endif
    expect_same_results(ends, target);
    expect_same_results(kernels, target);
  }
}

}  // namespace
}  // namespace rlx::codegen
