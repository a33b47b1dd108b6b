// The packed matrices of the experts of one weight: in memory, or in a file that is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory_budget.hpp"
#include "base/thread_pool.hpp"
#include "plan/plan.hpp"
#include "rlx/result.hpp"
#include "rlx/tensor.hpp"

namespace rlx::plan {

/// Where the matrices of one weight lie for one program. Matrices in memory are shared with the
/// programs that have the same experts there.
struct ExpertPlaces {
  std::vector<std::shared_ptr<const std::byte>> owners;  ///< by expert
  std::vector<const std::byte*> matrices;                ///< by expert
  std::vector<std::uint8_t> resident;                    ///< by expert
  std::int64_t resident_bytes = 0;
};

/// All that programs of one weight share. Thread-safe. A matrix has the same bytes wherever it
/// lies.
class ExpertStore {
 public:
  ExpertStore(const WeightPlan& weight, Tensor source, std::shared_ptr<MemoryBudget> budget);
  /// Of matrices that lie one after the other in a mapped file already: nothing is copied.
  ExpertStore(const WeightPlan& weight, std::shared_ptr<const std::byte> packed,
              std::shared_ptr<MemoryBudget> budget);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  std::int64_t experts() const { return weight_.experts; }
  std::int64_t matrix_bytes() const { return matrix_bytes_; }

  /// Brings the experts that the mask names into memory, and the others into the file. Errors: the
  /// session's memory limit, a cache folder that cannot be written.
  Result<ExpertPlaces> place(const std::vector<bool>& resident, ThreadPool& pool);

  /// All matrices, one after the other, in the file.
  Result<std::shared_ptr<const std::byte>> whole(ThreadPool& pool);

 private:
  Status open_file();
  /// What is missing of these experts in the file.
  Status write(const std::vector<bool>& experts, ThreadPool& pool);
  void pack(std::int64_t expert, std::byte* target, ThreadPool& pool) const;
  void fetch(std::int64_t expert, std::byte* target, ThreadPool& pool) const;

  const WeightPlan weight_;
  const Tensor source_;  ///< none where the matrices were packed before
  const std::shared_ptr<MemoryBudget> budget_;
  const std::int64_t matrix_bytes_;
  std::mutex mutex_;  ///< of what follows
  std::vector<std::weak_ptr<const std::byte>> in_memory_;
  std::shared_ptr<const std::byte> file_;  ///< mapped for reading
  std::vector<bool> in_file_;
  int descriptor_ = -1;
};

/// Pages of a mapped file: `read_ahead` brings them in, `drop` lets them leave memory until they
/// are read again. Allocates nothing.
void read_ahead(const std::byte* begin, std::int64_t bytes);
void drop_pages(const std::byte* begin, std::int64_t bytes);

}  // namespace rlx::plan
