// Small blocks from the heap, large ones from the system.
#include "base/memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace rlx {
namespace {

constexpr std::size_t line_bytes = 64, huge_page_bytes = std::size_t{2} << 20;
/// More than any machine has: keeps the sums below from overflowing.
constexpr std::size_t bytes_limit = std::size_t{1} << 60;

std::shared_ptr<std::byte> allocate_small(std::size_t bytes) {
  const std::size_t rounded =
      bytes == 0 ? line_bytes : (bytes + line_bytes - 1) & ~(line_bytes - 1);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(line_bytes, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  return {memory, [](std::byte* p) { std::free(p); }};
}

std::shared_ptr<std::byte> allocate_large(std::size_t bytes) {
  constexpr std::size_t page_bytes = 4096;
  const std::size_t rounded = (bytes + page_bytes - 1) & ~(page_bytes - 1);
  const std::size_t mapped = rounded + huge_page_bytes;
  void* map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  // Only the part from a huge page's border on is kept.
  const auto first = reinterpret_cast<std::uintptr_t>(map);
  const std::uintptr_t begin = (first + huge_page_bytes - 1) & ~(huge_page_bytes - 1);
  if (begin != first) munmap(map, begin - first);
  const std::size_t behind = first + mapped - (begin + rounded);
  if (behind != 0) munmap(reinterpret_cast<void*>(begin + rounded), behind);
  auto* memory = reinterpret_cast<std::byte*>(begin);
  // Whole huge pages only: the rest must not take more memory than it needs. A refusal costs time,
  // nothing else.
  (void)madvise(memory, rounded & ~(huge_page_bytes - 1), MADV_HUGEPAGE);
  return {memory, [rounded](std::byte* p) { munmap(p, rounded); }};
}

}  // namespace

std::shared_ptr<std::byte> allocate_zeroed(std::size_t bytes) {
  if (bytes > bytes_limit) throw std::bad_alloc();
  return bytes < huge_page_bytes ? allocate_small(bytes) : allocate_large(bytes);
}

}  // namespace rlx
