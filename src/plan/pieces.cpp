// Cuts the buffers of a plan into pieces.
#include "plan/pieces.hpp"

namespace rlx::plan {
namespace {

constexpr std::int64_t line_bytes = 64;

std::int64_t touched_bytes(const Plan& plan) {
  std::int64_t touched = 0;
  for (const Step& step : plan.steps) {
    for (const std::int32_t buffer : step.buffers)
      touched += plan.buffers[static_cast<std::size_t>(buffer)].bytes();
  }
  return touched;
}

std::int64_t piece_bytes_of(const Plan& plan, const PieceSize& size) {
  const auto touched = static_cast<double>(touched_bytes(plan));
  std::int64_t bytes = size.smallest;
  while (touched > size.most * static_cast<double>(bytes) && bytes < size.largest) bytes *= 2;
  return bytes;
}

/// Where the pieces of the arena begin, and its end.
std::vector<std::int64_t> cuts_of_arena(const Plan& plan, std::int64_t piece_bytes) {
  std::vector<std::int64_t> cuts;
  for (std::int64_t at = 0; at < plan.arena_bytes; at += piece_bytes) cuts.push_back(at);
  for (const BufferPlan& buffer : plan.buffers) {
    if (buffer.storage != Storage::arena || buffer.bytes() <= 0 || buffer.bytes() >= piece_bytes)
      continue;
    cuts.push_back(buffer.offset / line_bytes * line_bytes);
    cuts.push_back((buffer.offset + buffer.bytes() + line_bytes - 1) / line_bytes * line_bytes);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::erase_if(cuts, [&](std::int64_t cut) { return cut >= plan.arena_bytes; });
  cuts.push_back(std::max<std::int64_t>(plan.arena_bytes, 0));
  return cuts;
}

}  // namespace

Pieces::Pieces(const Plan& plan, const PieceSize& size)
    : ranges_(plan.buffers.size()),
      places_(plan.buffers.size(), 0),
      begins_(cuts_of_arena(plan, piece_bytes_of(plan, size))) {
  const std::int64_t piece_bytes = piece_bytes_of(plan, size);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& buffer = plan.buffers[i];
    if (buffer.bytes() <= 0 || buffer.storage == Storage::worker) continue;
    if (buffer.storage == Storage::arena) {
      const std::int64_t end = std::min(buffer.offset + buffer.bytes(), plan.arena_bytes);
      if (buffer.offset < 0 || buffer.offset >= end) continue;
      places_[i] = buffer.offset;
      ranges_[i] = {piece_at(buffer.offset), piece_at(end - 1) + 1};
      continue;
    }
    const std::int64_t pieces = (buffer.bytes() + piece_bytes - 1) / piece_bytes;
    const std::int64_t count = std::min(pieces, static_cast<std::int64_t>(size.most_apart));
    places_[i] = begins_.back();
    ranges_[i].first = begins_.size() - 1;
    for (std::int64_t piece = 1; piece <= count; ++piece)
      begins_.push_back(places_[i] + buffer.bytes() * piece / count);
    ranges_[i].last = begins_.size() - 1;
  }
  for (std::size_t piece = 0; piece + 1 < begins_.size(); ++piece)
    bytes_.push_back(static_cast<double>(begins_[piece + 1] - begins_[piece]));
}

std::size_t Pieces::piece_at(std::int64_t place) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), place);
  return static_cast<std::size_t>(behind - begins_.begin()) - 1;
}

std::size_t Pieces::at(std::int32_t buffer, double bytes) const {
  const Range whole = of(buffer);
  const std::int64_t place =
      places_[static_cast<std::size_t>(buffer)] + static_cast<std::int64_t>(std::max(bytes, 0.0));
  if (place >= begins_[whole.last]) return whole.last;
  if (whole.first == whole.last || place < begins_[whole.first + 1]) return whole.first;
  if (place >= begins_[whole.last - 1]) return whole.last - 1;
  const auto first = begins_.begin() + static_cast<std::ptrdiff_t>(whole.first),
             last = begins_.begin() + static_cast<std::ptrdiff_t>(whole.last);
  const auto behind = std::upper_bound(first, last, place);
  return behind == first ? whole.first : static_cast<std::size_t>(behind - begins_.begin()) - 1;
}

Pieces::Range Pieces::part_of(std::int32_t buffer, const Range& elements, DType dtype) const {
  const Range whole = of(buffer);
  const auto size = static_cast<double>(size_of(dtype));
  if (whole.last - whole.first < 2 || elements.first > elements.last) return whole;
  const std::size_t first = at(buffer, static_cast<double>(elements.first) * size);
  const std::size_t last = at(buffer, static_cast<double>(elements.last) * size) + 1;
  return {first, std::min(last, whole.last)};
}

}  // namespace rlx::plan
