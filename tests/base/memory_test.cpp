// Blocks of all sizes are aligned, zero and writable to the end.
#include "base/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace rlx {
namespace {

TEST(Memory, blocks_are_aligned_and_zero) {
  for (const std::size_t bytes :
       {0UL, 1UL, 63UL, 65UL, 5000UL, (2UL << 20) - 1, 2UL << 20, (2UL << 20) + 1, 7'000'003UL}) {
    for (int round = 0; round < 2; ++round) {
      const auto block = allocate_zeroed(bytes);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % 64, 0U);
      EXPECT_TRUE(std::all_of(block.get(), block.get() + bytes, [](std::byte byte) {
        return byte == std::byte{0};
      })) << bytes;
      std::memset(block.get(), 1, bytes);
    }
  }
}

TEST(Memory, what_no_machine_has_throws) {
  EXPECT_THROW(allocate_zeroed(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(allocate_zeroed(SIZE_MAX / 2), std::bad_alloc);
  EXPECT_THROW(allocate_zeroed(std::size_t{1} << 59), std::bad_alloc);
}

}  // namespace
}  // namespace rlx
