// Memory that ends, or begins, where nothing may be read or written.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace rlx::testing {

/// Which end of the memory lies at a page that nobody may touch: whoever reads or writes there ends
/// the test program (SIGSEGV). Up to a page at the other end may be touched.
enum class Fence : std::uint8_t { before, behind };

/// Kernels' buffers lie anywhere: their first element behind a fence, or their last one in front of
/// it, at any multiple of an element's size.
class FencedMemory {
 public:
  FencedMemory(std::size_t bytes, Fence fence) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t whole = (bytes + page - 1) / page * page;
    mapped_ = whole + page;
    pages_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages_ == MAP_FAILED) throw std::runtime_error("no pages for fenced memory");
    std::byte* const usable = static_cast<std::byte*>(pages_) + (fence == Fence::before ? page : 0);
    if (whole > 0 && mprotect(usable, whole, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("no access to fenced memory");
    bytes_ = {fence == Fence::before ? usable : usable + (whole - bytes), bytes};
  }
  /// Holds a copy.
  FencedMemory(std::span<const std::byte> contents, Fence fence)
      : FencedMemory(contents.size(), fence) {
    std::ranges::copy(contents, bytes_.begin());
  }
  FencedMemory(FencedMemory&& other) noexcept
      : pages_(std::exchange(other.pages_, nullptr)),
        mapped_(other.mapped_),
        bytes_(other.bytes_) {}
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;
  FencedMemory& operator=(FencedMemory&&) = delete;
  ~FencedMemory() {
    if (pages_) munmap(pages_, mapped_);
  }

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }

 private:
  void* pages_ = nullptr;
  std::size_t mapped_ = 0;
  std::span<std::byte> bytes_;
};

/// Calls `run(buffers, scratch)` with copies of the contents and of scratch (aligned to 64, full of
/// NaN), once with fences behind them and once with fences before them. The contents are then what
/// it made; fails the test where the two calls made different ones.
template <class Run>
void run_fenced(std::vector<std::vector<std::byte>>& contents, std::int64_t scratch_bytes,
                Run run) {
  constexpr std::size_t line = 64;
  const auto run_at = [&](Fence fence) {
    std::vector<FencedMemory> copies;
    std::vector<void*> buffers;
    for (const std::vector<std::byte>& bytes : contents) {
      copies.emplace_back(bytes, fence);
      buffers.push_back(copies.back().data());
    }
    const std::size_t whole_lines =
        (static_cast<std::size_t>(scratch_bytes) + line - 1) / line * line;
    const FencedMemory scratch(whole_lines, fence);
    std::ranges::fill(scratch.bytes(), std::byte{0xff});
    run(static_cast<void* const*>(buffers.data()), static_cast<void*>(scratch.data()));
    return copies;
  };
  const std::vector<FencedMemory> made = run_at(Fence::behind), again = run_at(Fence::before);
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(made[i].bytes(), again[i].bytes()))
        << "buffer " << i << " depends on where the buffers lie";
    std::ranges::copy(made[i].bytes(), contents[i].begin());
  }
}

}  // namespace rlx::testing
