// operator new of the command from pools by size: a compile makes and drops a million small values,
// and the C library's malloc takes a third of its time. Every thread keeps lists of free blocks of
// its own; what a thread leaves behind goes to the next one that needs blocks.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__linux__)

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "tools/allocation_count.hpp"

namespace {

constexpr std::size_t step_bytes = 16, classes = 32, largest_bytes = step_bytes * classes;
/// All blocks of a chunk are of one size; its class stands in a table.
constexpr std::size_t chunk_bytes = 4096, room_bytes = std::size_t{32} << 30;
constexpr std::size_t alignment = alignof(std::max_align_t);
static_assert(alignment <= step_bytes);

struct Block {
  Block* next;
};
using Lists = std::array<Block*, classes>;

/// Addresses for all chunks: the system gives memory to what is touched.
struct Room {
  std::once_flag once;
  std::atomic<std::uintptr_t> begin{0};  ///< 0: the system refused, malloc serves
  std::uint8_t* class_of = nullptr;
  std::atomic<std::size_t> used{0};
  pthread_key_t at_end{};
  std::mutex mutex;
  Lists left{};  ///< by threads that have ended
};
constinit Room room;
constinit thread_local Lists own{};
constinit thread_local bool is_known = false;

void hand_over(void*) {
  const std::lock_guard lock(room.mutex);
  for (std::size_t c = 0; c < classes; ++c) {
    while (Block* const block = own[c]) {
      own[c] = block->next;
      block->next = room.left[c];
      room.left[c] = block;
    }
  }
}

void open_room() {
  const auto map = [](std::size_t bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
  };
  void* begin = nullptr;
  room.class_of = static_cast<std::uint8_t*>(map(room_bytes / chunk_bytes));
  if (room.class_of && pthread_key_create(&room.at_end, hand_over) == 0) begin = map(room_bytes);
  // A huge page for the first few blocks would be most of a small program's memory.
  if (begin) (void)madvise(begin, room_bytes, MADV_NOHUGEPAGE);
  room.begin = reinterpret_cast<std::uintptr_t>(begin);
}

/// A block, and more of them in the thread's list; null where there is no room.
Block* refill(std::size_t c) {
  std::call_once(room.once, open_room);
  if (room.begin == 0) return nullptr;
  if (!is_known) {
    is_known = true;
    pthread_setspecific(room.at_end, &own);
  }
  {
    const std::lock_guard lock(room.mutex);
    if (Block* const block = room.left[c]) {
      own[c] = block->next;
      room.left[c] = nullptr;
      return block;
    }
  }
  const std::size_t offset = room.used.fetch_add(chunk_bytes, std::memory_order_relaxed);
  if (offset + chunk_bytes > room_bytes) return nullptr;
  room.class_of[offset / chunk_bytes] = static_cast<std::uint8_t>(c);
  const std::size_t size = (c + 1) * step_bytes;
  std::byte* const chunk = reinterpret_cast<std::byte*>(room.begin.load()) + offset;
  Block* list = nullptr;
  for (std::size_t at = chunk_bytes / size * size; at >= 2 * size; at -= size) {
    auto* const block = reinterpret_cast<Block*>(chunk + at - size);
    block->next = list;
    list = block;
  }
  own[c] = list;
  return reinterpret_cast<Block*>(chunk);
}

bool is_pooled(const void* memory) {
  const std::uintptr_t begin = room.begin.load(std::memory_order_relaxed);
  return begin != 0 && reinterpret_cast<std::uintptr_t>(memory) - begin < room_bytes;
}

void* allocate(std::size_t size) {
  if (size <= largest_bytes) [[likely]] {
    const std::size_t c = size == 0 ? 0 : (size - 1) / step_bytes;
    Block* block = own[c];
    if (block) [[likely]] {
      own[c] = block->next;
    } else {
      block = refill(c);
    }
    if (block) [[likely]] {
      rlx::tools::count_allocation();
      return block;
    }
  }
  return std::malloc(size == 0 ? 1 : size);
}

void release(void* memory) {
  if (!is_pooled(memory)) return std::free(memory);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(memory) - room.begin;
  const std::size_t c = room.class_of[offset / chunk_bytes];
  auto* const block = static_cast<Block*>(memory);
  block->next = own[c];
  own[c] = block;
}

}  // namespace

// Libraries must find these, though the program hides its symbols: what one allocates another may
// release.
#define RLX_EXPORTED __attribute__((visibility("default")))

RLX_EXPORTED void* operator new(std::size_t size) {
  while (true) {
    if (void* const memory = allocate(size)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}
RLX_EXPORTED void* operator new[](std::size_t size) { return operator new(size); }
RLX_EXPORTED void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
RLX_EXPORTED void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
RLX_EXPORTED void operator delete(void* memory) noexcept { release(memory); }
RLX_EXPORTED void operator delete[](void* memory) noexcept { release(memory); }
RLX_EXPORTED void operator delete(void* memory, std::size_t) noexcept { release(memory); }
RLX_EXPORTED void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
RLX_EXPORTED void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
RLX_EXPORTED void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}

#endif
