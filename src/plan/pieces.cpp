// Cuts the buffers of a plan into pieces.
#include "plan/pieces.hpp"

namespace rlx::plan {

Pieces::Pieces(const Plan& plan, const PieceSize& size)
    : piece_bytes_(size.smallest), ranges_(plan.buffers.size()) {
  double touched = 0;
  for (const Step& step : plan.steps) {
    for (const std::int32_t buffer : step.buffers)
      touched += static_cast<double>(plan.buffers[static_cast<std::size_t>(buffer)].bytes());
  }
  while (touched > size.most * static_cast<double>(piece_bytes_) && piece_bytes_ < size.largest)
    piece_bytes_ *= 2;
  const std::size_t arena = pieces_of(plan.arena_bytes);
  bytes_.assign(arena, static_cast<double>(piece_bytes_));
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (buffer.bytes() <= 0 || buffer.storage == Storage::worker) continue;
    if (buffer.storage == Storage::arena) {
      const auto first = static_cast<std::size_t>(buffer.offset / piece_bytes_);
      ranges_[i] = {first, std::max(pieces_of(buffer.offset + buffer.bytes()), first + 1)};
      continue;
    }
    const std::size_t count = std::min(pieces_of(buffer.bytes()), size.most_apart);
    ranges_[i] = {bytes_.size(), bytes_.size() + count};
    bytes_.insert(bytes_.end(), count,
                  static_cast<double>(buffer.bytes()) / static_cast<double>(count));
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].storage == Storage::arena)
      ranges_[i].last = std::min(ranges_[i].last, std::max(arena, ranges_[i].first));
  }
}

Pieces::Range Pieces::part_of(std::int32_t buffer, const Range& elements, std::int64_t all) const {
  const Range whole = of(buffer);
  const std::size_t count = whole.last - whole.first;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(all, 1));
  if (elements.first > elements.last || elements.last >= size) return whole;
  const std::size_t first = whole.first + elements.first * count / size;
  const std::size_t last = whole.first + (elements.last + 1) * count / size + 1;
  return {first, std::min(last, whole.last)};
}

}  // namespace rlx::plan
