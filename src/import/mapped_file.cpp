// Mapping files for reading.
#include "import/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "import/fail.hpp"
#include "rlx/mapped.hpp"

namespace rlx::importing {

Bytes map_file(const std::filesystem::path& file) {
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    fail("The file ({}) cannot be opened: {}.", file.string(), std::strerror(errno));
  }
  struct stat facts{};
  const bool regular = fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
  const auto size = static_cast<std::size_t>(regular ? facts.st_size : 0);
  void* address = MAP_FAILED;
  if (size > 0) address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (!regular) fail("({}) is no regular file.", file.string());
  if (size == 0) fail("The file ({}) is empty.", file.string());
  if (address == MAP_FAILED) {
    fail("The file ({}) cannot be mapped: {}.", file.string(), std::strerror(errno));
  }
  const std::shared_ptr<const std::byte> owner(static_cast<const std::byte*>(address),
                                               FileUnmap{size});
  return {owner, size, true};
}

Bytes borrow(std::span<const std::byte> memory) {
  const std::shared_ptr<const std::byte> owner(memory.data(), [](const std::byte*) {});
  return {owner, memory.size(), false};
}

void Bytes::release(std::span<const std::byte> part) const {
  if (!mapped_) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace rlx::importing
