// Blocks of all sizes are aligned, zero and writable to the end.
#include "base/memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "temporary_folder.hpp"

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

/// A virtio device as the system shows it.
void add_device(const std::string& root, const std::string& name, const std::string& number,
                const std::string& features) {
  const std::filesystem::path folder = root + "/sys/bus/virtio/devices/" + name;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "device") << number << '\n';
  std::ofstream(folder / "features") << features << '\n';
}

TEST(Memory, is_lent_by_hosts_to_whom_a_balloon_reports_free_pages) {
  const rlx::testing::TemporaryFolder root;
  EXPECT_FALSE(memory_is_lent(root.path()));
  add_device(root.path(), "virtio0", "0x0002", "0010010011001000");  // a disk
  add_device(root.path(), "virtio1", "0x0005", "0110000000000000");  // a balloon that does not
  add_device(root.path(), "virtio2", "0x0005", "011");
  EXPECT_FALSE(memory_is_lent(root.path()));
  add_device(root.path(), "virtio3", "0x0005", "0110010100000000");
  EXPECT_TRUE(memory_is_lent(root.path()));
}

TEST(Memory, pages_that_were_got_are_there_and_zero) {
  constexpr std::size_t pages = 64, page = 4096, bytes = pages * page;
  const auto block = allocate_zeroed(std::size_t{4} << 20);
  const auto present = [&] {
    std::array<unsigned char, pages> state{};
    EXPECT_EQ(mincore(block.get(), bytes, state.data()), 0);
    return std::ranges::count_if(state, [](unsigned char each) { return (each & 1U) != 0; });
  };
  if (present() != 0) GTEST_SKIP() << "pages are there before they are touched";
  get_pages(block.get() + 1, page);  // no whole page
  EXPECT_EQ(present(), 0);
  get_pages(block.get() + 1, bytes - 1);
  EXPECT_GE(present(), static_cast<std::ptrdiff_t>(pages) - 1);
  EXPECT_TRUE(std::all_of(block.get(), block.get() + bytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  block.get()[page] = std::byte{7};
  get_pages(block.get(), bytes);
  EXPECT_EQ(block.get()[page], std::byte{7});
}

TEST(Memory, lies_on_whole_huge_pages_and_on_few_where_it_is_lent) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  EXPECT_EQ(bytes_on_huge_pages(2 * mib - 1, false), 0U);
  EXPECT_EQ(bytes_on_huge_pages(7 * mib, false), 6 * mib);
  EXPECT_EQ(bytes_on_huge_pages(600 * mib, false), 600 * mib);
  EXPECT_EQ(bytes_on_huge_pages(7 * mib, true), 0U);
  EXPECT_EQ(bytes_on_huge_pages(41 * mib, true), 40 * mib);
  EXPECT_EQ(bytes_on_huge_pages(600 * mib, true), 128 * mib);
}

}  // namespace
}  // namespace rlx
