// A limit on the bytes that several owners take together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace rlx {

/// Thread-safe.
class MemoryBudget {
 public:
  /// 0: no limit.
  explicit MemoryBudget(std::int64_t bytes_limit = 0) : limit_(bytes_limit) {}

  /// Errors: bad_input with the figures.
  Status take(std::int64_t bytes, std::string_view what) {
    const std::int64_t before = used_.fetch_add(bytes);
    if (limit_ == 0 || before + bytes <= limit_) return {};
    used_ -= bytes;
    return bad_input("The {} need ({}) bytes; of the session's limit of {} bytes {} are in use.",
                     what, bytes, limit_, before);
  }
  void give_back(std::int64_t bytes) { used_ -= bytes; }
  std::int64_t used() const { return used_; }

 private:
  const std::int64_t limit_;
  std::atomic<std::int64_t> used_ = 0;
};

/// Bytes taken from a budget for as long as this lives.
class MemoryShare {
 public:
  MemoryShare() = default;
  static Result<MemoryShare> take(std::shared_ptr<MemoryBudget> budget, std::int64_t bytes,
                                  std::string_view what) {
    RLX_TRY(budget->take(bytes, what));
    MemoryShare share;
    share.budget_ = std::move(budget);
    share.bytes_ = bytes;
    return share;
  }
  MemoryShare(MemoryShare&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryShare& operator=(MemoryShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryShare() {
    if (budget_) budget_->give_back(bytes_);
  }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::int64_t bytes_ = 0;
};

}  // namespace rlx
