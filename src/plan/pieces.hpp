// Memory as the caches see it, in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace rlx::plan {

/// How fine memory is cut: pieces of `smallest` bytes, twice as many where a run touches more than
/// `most` of them, and so on up to `largest`; and the arena also where a buffer smaller than a
/// piece begins or ends, so that it does not stand for what lies around it. Buffers outside of the
/// arena have `most_apart` at most.
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
  /// The pieces with its elements in [first, last]; where first > last: the whole buffer.
  Range part_of(std::int32_t buffer, const Range& elements, DType dtype) const;
  /// The piece that so many bytes of the buffer lie in front of, or its end.
  std::size_t at(std::int32_t buffer, double bytes) const;
  /// By piece.
  const std::vector<double>& bytes() const { return bytes_; }
  /// Of all pieces of a range.
  double bytes_of(const Range& range) const { return begin_of(range.last) - begin_of(range.first); }

 private:
  double begin_of(std::size_t piece) const { return static_cast<double>(begins_[piece]); }
  std::size_t piece_at(std::int64_t place) const;

  std::vector<Range> ranges_;
  std::vector<std::int64_t> places_;  ///< of buffers: those of the arena, then the others in a row
  std::vector<std::int64_t> begins_;  ///< of pieces, and the end of the last one
  std::vector<double> bytes_;
};

}  // namespace rlx::plan
