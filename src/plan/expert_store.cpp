// Matrices of experts: packed once, kept where masks say.
#include "plan/expert_store.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/cache_folder.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "codegen/pack.hpp"
#include "plan/weights.hpp"
#include "rlx/mapped.hpp"

namespace rlx::plan {
namespace {

struct PageRange {
  void* begin = nullptr;
  std::size_t bytes = 0;
};

/// The whole pages that hold the bytes.
PageRange pages_of(const std::byte* begin, std::int64_t bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = address / page * page;
  const std::uintptr_t last = (address + static_cast<std::uintptr_t>(bytes) + page - 1) / page;
  return {reinterpret_cast<void*>(first), last * page - first};
}

/// A matrix in memory. A member of what is held, not of its deleter: deleters outlive the last
/// holder where somebody still has a weak pointer.
struct Block {
  Block(std::shared_ptr<std::byte> memory, MemoryShare share)
      : memory(std::move(memory)), share(std::move(share)) {}
  std::shared_ptr<std::byte> memory;
  MemoryShare share;
};

/// Memory that goes back to the system when it is given up: what the heap frees it keeps. Small
/// matrices stay with the heap, as mappings are few.
std::shared_ptr<std::byte> allocate_matrix(std::size_t bytes) {
  constexpr std::size_t least = std::size_t{1} << 16, huge = std::size_t{1} << 21;
  if (bytes < least || bytes >= huge) return allocate_zeroed(bytes);
  void* const address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(address), [bytes](std::byte* memory) { munmap(memory, bytes); }};
}

bool write_at(int file, const std::byte* data, std::int64_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const ssize_t count = pwrite(file, data, static_cast<std::size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count, bytes -= count, offset += count;
  }
  return true;
}

}  // namespace

void read_ahead(const std::byte* begin, std::int64_t bytes) {
#ifdef MADV_POPULATE_READ
  // The disk, if it must be, in one go; then the page tables.
  const PageRange pages = pages_of(begin, bytes);
  (void)madvise(pages.begin, pages.bytes, MADV_WILLNEED);
  (void)madvise(pages.begin, pages.bytes, MADV_POPULATE_READ);
#else
  const PageRange pages = pages_of(begin, bytes);
  (void)madvise(pages.begin, pages.bytes, MADV_WILLNEED);
#endif
}

void drop_pages(const std::byte* begin, std::int64_t bytes) {
  const PageRange pages = pages_of(begin, bytes);
  (void)madvise(pages.begin, pages.bytes, MADV_DONTNEED);
}

ExpertStore::ExpertStore(const WeightPlan& weight, Tensor source,
                         std::shared_ptr<MemoryBudget> budget)
    : weight_(weight),
      source_(std::move(source)),
      budget_(std::move(budget)),
      matrix_bytes_(static_cast<std::int64_t>(codegen::packed_bytes(weight.layout, 1))),
      in_memory_(static_cast<std::size_t>(weight.experts)),
      in_file_(static_cast<std::size_t>(weight.experts), false) {}

ExpertStore::ExpertStore(const WeightPlan& weight, std::shared_ptr<const std::byte> packed,
                         std::shared_ptr<MemoryBudget> budget)
    : ExpertStore(weight, Tensor(), std::move(budget)) {
  file_ = std::move(packed);
  in_file_.assign(in_file_.size(), true);
}

ExpertStore::~ExpertStore() {
  if (descriptor_ >= 0) close(descriptor_);
}

void ExpertStore::pack(std::int64_t expert, std::byte* target, ThreadPool& pool) const {
  const std::int64_t panel_bytes = matrix_bytes_ / weight_.layout.panels();
  const std::int64_t grain =
      std::max<std::int64_t>(1, (std::int64_t{1} << 18) / std::max<std::int64_t>(1, panel_bytes));
  pool.parallel_for(weight_.layout.panels(), grain, [&](std::int64_t begin, std::int64_t end) {
    pack_panels(weight_, source_, expert, begin, end, target);
  });
}

void ExpertStore::fetch(std::int64_t expert, std::byte* target, ThreadPool& pool) const {
  if (!in_file_[static_cast<std::size_t>(expert)]) return pack(expert, target, pool);
  const std::byte* const from = file_.get() + expert * matrix_bytes_;
  std::memcpy(target, from, static_cast<std::size_t>(matrix_bytes_));
  drop_pages(from, matrix_bytes_);
}

Status ExpertStore::open_file() {
  if (file_) return {};
  const auto bytes = static_cast<std::size_t>(weight_.bytes);
  RLX_ASSIGN(const CacheFolder folder, CacheFolder::open_for_user("experts"));
  RLX_ASSIGN(descriptor_, folder.open_unnamed(bytes));
  void* const address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (address == MAP_FAILED) {
    close(std::exchange(descriptor_, -1));
    return not_available("The file of the experts cannot be mapped: {}.", std::strerror(errno));
  }
  // Read where the choice falls: what lies beside is not wanted.
  (void)madvise(address, bytes, MADV_RANDOM);
  file_ = {static_cast<const std::byte*>(address), FileUnmap{bytes}};
  return {};
}

Status ExpertStore::write(const std::vector<bool>& experts, ThreadPool& pool) {
  std::shared_ptr<std::byte> room;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    if (!experts[e] || in_file_[e]) continue;
    RLX_TRY(open_file());
    const auto expert = static_cast<std::int64_t>(e);
    std::shared_ptr<const std::byte> matrix = in_memory_[e].lock();
    if (!matrix) {
      if (!room) room = allocate_matrix(static_cast<std::size_t>(matrix_bytes_));
      pack(expert, room.get(), pool);
      matrix = room;
    }
    if (!write_at(descriptor_, matrix.get(), matrix_bytes_, expert * matrix_bytes_))
      return not_available("The file of the experts cannot be written: {}.", std::strerror(errno));
    in_file_[e] = true;
  }
  return {};
}

Result<ExpertPlaces> ExpertStore::place(const std::vector<bool>& resident, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  const bool adopted = source_.empty();
  std::vector<bool> others(resident);
  others.flip();
  RLX_TRY(write(others, pool));
  ExpertPlaces places;
  for (std::size_t e = 0; e < resident.size(); ++e) {
    std::shared_ptr<const std::byte> matrix;
    if (!resident[e] || adopted) {
      matrix = {file_, file_.get() + static_cast<std::int64_t>(e) * matrix_bytes_};
      if (!resident[e]) drop_pages(matrix.get(), matrix_bytes_);
    } else if (!(matrix = in_memory_[e].lock())) {
      RLX_ASSIGN(MemoryShare taken, MemoryShare::take(budget_, matrix_bytes_, "experts in memory"));
      const auto block = std::make_shared<Block>(
          allocate_matrix(static_cast<std::size_t>(matrix_bytes_)), std::move(taken));
      fetch(static_cast<std::int64_t>(e), block->memory.get(), pool);
      matrix = {block, block->memory.get()};
      in_memory_[e] = matrix;
    }
    places.matrices.push_back(matrix.get());
    places.resident.push_back(resident[e] ? 1 : 0);
    if (resident[e]) places.resident_bytes += matrix_bytes_;
    places.owners.push_back(std::move(matrix));
  }
  if (!adopted) forget_pages(source_);
  return places;
}

Result<std::shared_ptr<const std::byte>> ExpertStore::whole(ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  RLX_TRY(write(std::vector<bool>(in_file_.size(), true), pool));
  return file_;
}

}  // namespace rlx::plan
