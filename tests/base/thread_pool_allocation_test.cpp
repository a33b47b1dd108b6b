// Runs on the pool allocate nothing: counted by replacing the allocation functions of this program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/thread_pool.hpp"

namespace {

std::atomic<long> allocations = 0;

void* counted_or_null(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted(std::size_t bytes) {
  if (void* memory = counted_or_null(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Where it inlines only the latter, GCC does not see that these operators belong together.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace rlx {
namespace {

TEST(ThreadPoolAllocation, a_run_allocates_nothing) {
  ThreadPool pool(3);
  std::atomic<int> runs = 0;
  const auto run = [&] {
    pool.run_team(3, [&](int, Team& team) {
      team.barrier();
      ++runs;
    });
    pool.parallel_for(100, 7, [&](std::int64_t, std::int64_t) { ++runs; });
  };
  run();
  const long before = allocations;
  ASSERT_GT(before, 0) << "the count does not work";
  for (int i = 0; i < 100; ++i) run();
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace rlx
