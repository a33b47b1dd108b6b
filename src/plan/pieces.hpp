// Memory as the caches see it, in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace rlx::plan {

/// How fine memory is cut: pieces of `smallest` bytes, twice as many where a run touches more than
/// `most` of them, and so on up to `largest`. Buffers outside of the arena have `most_apart` at
/// most.
struct PieceSize {
  std::int64_t smallest, largest;
  double most;
  std::size_t most_apart;
};
/// For what caches keep: pages, and more where a run touches so much that where a page lies decides
/// nothing.
inline constexpr PieceSize cache_pieces{4096, 32 << 10, 8192, 4096};
/// For who touched what: kernels with many accesses share out every plane of a buffer.
inline constexpr PieceSize owner_pieces{512, 32 << 10, 4096, 16};
/// Both for a part of a program whose forms are compared: many are, each for itself.
inline constexpr PieceSize cache_pieces_of_forms{4096, 64 << 10, 1024, 512},
    owner_pieces_of_forms{512, 64 << 10, 1024, 16};

/// Pieces of the arena and of every other buffer.
class Pieces {
 public:
  struct Range {
    std::size_t first = 0, last = 0;
  };

  explicit Pieces(const Plan& plan, const PieceSize& size = cache_pieces);

  Range of(std::int32_t buffer) const { return ranges_[static_cast<std::size_t>(buffer)]; }
  /// The pieces with its elements in [first, last] of `all`; of others: the whole buffer.
  Range part_of(std::int32_t buffer, const Range& elements, std::int64_t all) const;
  /// By piece.
  const std::vector<double>& bytes() const { return bytes_; }

 private:
  std::size_t pieces_of(std::int64_t bytes) const {
    return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 0) + piece_bytes_ - 1) /
                                    piece_bytes_);
  }

  std::int64_t piece_bytes_;
  std::vector<Range> ranges_;
  std::vector<double> bytes_;
};

}  // namespace rlx::plan
