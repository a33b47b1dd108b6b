// malloc and its sisters as this program's own symbols: they count, then hand over to the next ones
// in line (a preloaded allocator's, or the C library's), so that operator new, LLVM and all
// libraries are counted alike.
#include "tools/allocation_count.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace rlx::tools {
std::optional<std::int64_t> allocations_so_far() { return std::nullopt; }
void count_allocation() {}
}  // namespace rlx::tools

#else

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

// Constant-initialised: malloc is called before any constructor runs. Nothing is counted before
// somebody asks: all threads share the number, and a compile allocates a million times.
constinit std::atomic<std::int64_t> count{0};
constinit std::atomic<bool> is_watched{false};

// The next function of that name. dlsym may allocate while it looks: that call gets null, which it
// copes with.
template <class Function>
class Next {
 public:
  explicit constexpr Next(const char* name) : name_(name) {}

  Function get() {
    if (is_watched.load(std::memory_order_relaxed)) [[unlikely]]
      count.fetch_add(1, std::memory_order_relaxed);
    Function found = found_.load(std::memory_order_acquire);
    if (found) [[likely]]
      return found;
    static thread_local bool looking = false;
    if (looking) return nullptr;
    looking = true;
    found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name_));
    looking = false;
    found_.store(found, std::memory_order_release);
    return found;
  }

 private:
  const char* name_;
  std::atomic<Function> found_{nullptr};
};

constinit Next<void* (*)(std::size_t)> next_malloc("malloc");
constinit Next<void* (*)(std::size_t, std::size_t)> next_calloc("calloc");
constinit Next<void* (*)(void*, std::size_t)> next_realloc("realloc");
constinit Next<void* (*)(std::size_t, std::size_t)> next_aligned_alloc("aligned_alloc");
constinit Next<void* (*)(std::size_t, std::size_t)> next_memalign("memalign");
constinit Next<int (*)(void**, std::size_t, std::size_t)> next_posix_memalign("posix_memalign");

}  // namespace

// Libraries must find these, though the program hides its symbols.
#define RLX_EXPORTED extern "C" __attribute__((visibility("default")))

RLX_EXPORTED void* malloc(std::size_t size) {
  const auto next = next_malloc.get();
  return next ? next(size) : nullptr;
}

RLX_EXPORTED void* calloc(std::size_t items, std::size_t size) {
  const auto next = next_calloc.get();
  return next ? next(items, size) : nullptr;
}

RLX_EXPORTED void* realloc(void* memory, std::size_t size) {
  const auto next = next_realloc.get();
  return next ? next(memory, size) : nullptr;
}

RLX_EXPORTED void* aligned_alloc(std::size_t alignment, std::size_t size) {
  const auto next = next_aligned_alloc.get();
  return next ? next(alignment, size) : nullptr;
}

RLX_EXPORTED void* memalign(std::size_t alignment, std::size_t size) {
  const auto next = next_memalign.get();
  return next ? next(alignment, size) : nullptr;
}

RLX_EXPORTED int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  const auto next = next_posix_memalign.get();
  return next ? next(memory, alignment, size) : ENOMEM;
}

namespace rlx::tools {
std::optional<std::int64_t> allocations_so_far() {
  is_watched = true;
  return count.load();
}

void count_allocation() {
  if (is_watched.load(std::memory_order_relaxed)) [[unlikely]]
    count.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace rlx::tools

#endif
