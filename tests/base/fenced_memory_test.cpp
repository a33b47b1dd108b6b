// The memory that tests of kernels run in stops whoever touches what lies beside it.
#include "fenced_memory.hpp"

namespace rlx::testing {
namespace {

std::byte read(const std::byte* at) { return *static_cast<const volatile std::byte*>(at); }

TEST(FencedMemoryDeathTest, WhoTouchesAFenceIsStopped) {
  const std::vector<std::byte> contents(5000, std::byte{7});
  for (const std::size_t bytes : {1, 4096, 5000}) {
    const FencedMemory ends{std::span(contents).first(bytes), Fence::behind};
    EXPECT_EQ(read(ends.data()), std::byte{7});
    EXPECT_EQ(read(ends.data() + bytes - 1), std::byte{7});
    EXPECT_DEATH(read(ends.data() + bytes), "");
    const FencedMemory begins{std::span(contents).first(bytes), Fence::before};
    EXPECT_EQ(read(begins.data()), std::byte{7});
    EXPECT_EQ(read(begins.data() + bytes - 1), std::byte{7});
    EXPECT_DEATH(read(begins.data() - 1), "");
  }
  const FencedMemory nothing(0, Fence::behind);
  EXPECT_DEATH(read(nothing.data()), "");
}

}  // namespace
}  // namespace rlx::testing
