// Memory as the caches see it, in pieces of a page or more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace rlx::plan {

/// Pieces of the arena and of every other buffer.
class Pieces {
 public:
  struct Range {
    std::size_t first = 0, last = 0;
  };

  explicit Pieces(const Plan& plan);

  Range of(std::int32_t buffer) const { return ranges_[static_cast<std::size_t>(buffer)]; }
  /// The pieces with its elements in [first, last] of `all`; of others: the whole buffer.
  Range part_of(std::int32_t buffer, const Range& elements, std::int64_t all) const;
  /// By piece.
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  static constexpr double most_pieces = 8192;
  static constexpr std::int64_t largest_piece_bytes = 32 << 10;
  std::size_t pieces_of(std::int64_t bytes) const {
    return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 0) + piece_bytes_ - 1) /
                                    piece_bytes_);
  }

  std::int64_t piece_bytes_ = 4096;
  std::vector<Range> ranges_;
  std::vector<double> bytes_;
};

}  // namespace rlx::plan
