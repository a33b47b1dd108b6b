// Small blocks from the heap, large ones from the system.
#include "base/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

namespace rlx {
namespace {

constexpr std::size_t line_bytes = 64, page_bytes = 4096, mib = std::size_t{1} << 20,
                      huge_page_bytes = 2 * mib;
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
  static const bool lent = memory_is_lent();
  // A refusal costs time, nothing else.
  if (const std::size_t huge = bytes_on_huge_pages(rounded, lent); huge != 0)
    (void)madvise(memory, huge, MADV_HUGEPAGE);
  return {memory, [rounded](std::byte* p) { munmap(p, rounded); }};
}

/// The first line of a file of the system; empty where it is not there.
std::string line_of(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace

bool memory_is_lent(const std::string& root) {
  constexpr std::string_view balloon = "0x0005";  // the device's number, and the feature's bit
  constexpr std::size_t reports_free_pages = 5;
  std::error_code error;
  const std::filesystem::path devices = root + "/sys/bus/virtio/devices";
  for (const auto& device : std::filesystem::directory_iterator(devices, error)) {
    if (line_of(device.path() / "device") != balloon) continue;
    const std::string features = line_of(device.path() / "features");
    if (features.size() > reports_free_pages && features[reports_free_pages] == '1') return true;
  }
  return false;
}

std::size_t bytes_on_huge_pages(std::size_t bytes, bool lent) {
  constexpr std::size_t least_if_lent = 24 * mib, most_if_lent = 128 * mib;
  const std::size_t whole = bytes & ~(huge_page_bytes - 1);
  if (!lent) return whole;
  return whole < least_if_lent ? 0 : std::min(whole, most_if_lent);
}

void get_pages([[maybe_unused]] std::byte* begin, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t from = (first + page_bytes - 1) & ~(page_bytes - 1);
  const std::uintptr_t to = (first + bytes) & ~(page_bytes - 1);
  // A refusal costs time, nothing else.
  if (from < to) (void)madvise(reinterpret_cast<void*>(from), to - from, MADV_POPULATE_WRITE);
#endif
}

std::shared_ptr<std::byte> allocate_zeroed(std::size_t bytes) {
  if (bytes > bytes_limit) throw std::bad_alloc();
  return bytes < huge_page_bytes ? allocate_small(bytes) : allocate_large(bytes);
}

}  // namespace rlx
