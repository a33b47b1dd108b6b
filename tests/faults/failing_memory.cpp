// The C library's functions, replaced; under a sanitizer the operators of C++.
#include "faults/failing_memory.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constinit std::atomic<bool> is_armed{false};
constinit std::atomic<long> seen{0}, failing{-1}, alive{0};

/// Is this the one?
bool fails() {
  return is_armed.load(std::memory_order_relaxed) &&
         seen.fetch_add(1, std::memory_order_relaxed) == failing.load(std::memory_order_relaxed);
}

}  // namespace

namespace rlx::test {

void arm(long fail_at) {
  seen = 0;
  failing = fail_at;
  is_armed = true;
}

long disarm() {
  is_armed = false;
  return seen;
}

long living() { return alive; }

}  // namespace rlx::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace {
void* allocated(std::size_t bytes, std::size_t alignment) {
  if (fails()) throw std::bad_alloc();
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(bytes ? bytes : 1)
                           : std::aligned_alloc(alignment, whole ? whole : alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return allocated(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocated(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes ? bytes : 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes ? bytes : 1);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#else

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {
template <class Allocate>
void* counted(const Allocate& allocate) {
  if (fails()) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const memory = allocate();
  if (memory) alive.fetch_add(1, std::memory_order_relaxed);
  return memory;
}
}  // namespace

#define RLX_REPLACES extern "C" __attribute__((visibility("default")))

RLX_REPLACES void* malloc(std::size_t bytes) {
  return counted([&] { return __libc_malloc(bytes); });
}
RLX_REPLACES void* calloc(std::size_t items, std::size_t bytes) {
  return counted([&] { return __libc_calloc(items, bytes); });
}
RLX_REPLACES void* realloc(void* memory, std::size_t bytes) {
  if (!memory) return malloc(bytes);
  if (bytes == 0) alive.fetch_sub(1, std::memory_order_relaxed);
  if (bytes != 0 && fails()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_realloc(memory, bytes);
}
RLX_REPLACES void* memalign(std::size_t alignment, std::size_t bytes) {
  return counted([&] { return __libc_memalign(alignment, bytes); });
}
RLX_REPLACES void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}
RLX_REPLACES int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *memory = made;
  return 0;
}
RLX_REPLACES void free(void* memory) {
  if (memory) alive.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(memory);
}
RLX_REPLACES void* mmap(void* at, std::size_t bytes, int protection, int flags, int file,
                        off_t offset) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

#endif
