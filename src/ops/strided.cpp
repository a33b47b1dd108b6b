// Moving elements between strided layouts: dims that are one in both layouts are merged, runs are
// copied whole, and planes whose rows lie across (transposes) are walked tile by tile.
#include "ops/strided.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace rlx {
namespace {

struct Loop {
  std::int64_t size, source, destination;
};

// Drops dims of 1 and joins neighbours that are contiguous on both sides.
std::vector<Loop> merged_loops(std::span<const std::int64_t> dims,
                               std::span<const std::int64_t> source,
                               std::span<const std::int64_t> destination) {
  std::vector<Loop> loops;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    const Loop loop{dims[i], source[i], destination[i]};
    if (!loops.empty() && loops.back().source == loop.source * loop.size &&
        loops.back().destination == loop.destination * loop.size) {
      loops.back() = {loops.back().size * loop.size, loop.source, loop.destination};
    } else {
      loops.push_back(loop);
    }
  }
  if (loops.empty()) loops.push_back({1, 1, 1});
  return loops;
}

template <std::size_t size>
void copy_line(const Loop& loop, const std::byte* source, std::byte* destination) {
  if (loop.source == 1 && loop.destination == 1) {
    std::memcpy(destination, source, static_cast<std::size_t>(loop.size) * size);
    return;
  }
  constexpr auto bytes = static_cast<std::int64_t>(size);
  for (std::int64_t i = 0; i < loop.size; ++i) {
    std::memcpy(destination + i * loop.destination * bytes, source + i * loop.source * bytes, size);
  }
}

// A plane of two dims where source and destination run along different ones: both stay in cache
// within a tile.
template <std::size_t size>
void copy_plane(const Loop& outer, const Loop& inner, const std::byte* source,
                std::byte* destination) {
  constexpr std::int64_t tile = 32;
  constexpr auto bytes = static_cast<std::int64_t>(size);
  for (std::int64_t i = 0; i < outer.size; i += tile) {
    const std::int64_t rows = std::min(tile, outer.size - i);
    for (std::int64_t j = 0; j < inner.size; j += tile) {
      const Loop part{std::min(tile, inner.size - j), inner.source, inner.destination};
      for (std::int64_t r = i; r < i + rows; ++r) {
        copy_line<size>(part, source + (r * outer.source + j * inner.source) * bytes,
                        destination + (r * outer.destination + j * inner.destination) * bytes);
      }
    }
  }
}

template <std::size_t size>
void copy_loops(std::span<const Loop> loops, const std::byte* source, std::byte* destination) {
  if (loops.size() == 1) return copy_line<size>(loops[0], source, destination);
  if (loops.size() == 2 && loops[1].source != 1 && loops[1].source != 0) {
    return copy_plane<size>(loops[0], loops[1], source, destination);
  }
  constexpr auto bytes = static_cast<std::int64_t>(size);
  for (std::int64_t i = 0; i < loops[0].size; ++i) {
    copy_loops<size>(loops.subspan(1), source + i * loops[0].source * bytes,
                     destination + i * loops[0].destination * bytes);
  }
}

}  // namespace

Dims row_major_strides(std::span<const std::int64_t> dims) {
  Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

void copy_strided(std::size_t element_size, std::span<const std::int64_t> dims,
                  const std::byte* source, std::span<const std::int64_t> source_strides,
                  std::byte* destination, std::span<const std::int64_t> destination_strides) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return;
  std::vector<Loop> loops = merged_loops(dims, source_strides, destination_strides);
  // The dim along which the source is contiguous goes next to the last one, so that the two make
  // the tiled plane.
  if (loops.size() > 2 && loops.back().source != 1) {
    const auto contiguous =
        std::find_if(loops.begin(), loops.end(), [](const Loop& loop) { return loop.source == 1; });
    if (contiguous != loops.end()) std::rotate(contiguous, contiguous + 1, loops.end() - 1);
  }
  switch (element_size) {
    case 1: return copy_loops<1>(loops, source, destination);
    case 2: return copy_loops<2>(loops, source, destination);
    case 4: return copy_loops<4>(loops, source, destination);
    case 8: return copy_loops<8>(loops, source, destination);
    default: return copy_loops<16>(loops, source, destination);
  }
}

std::int64_t count_before(std::span<const std::int64_t> dims, std::int64_t axis) {
  return element_count(dims.first(static_cast<std::size_t>(axis)));
}

std::int64_t count_from(std::span<const std::int64_t> dims, std::int64_t axis) {
  return element_count(dims.subspan(static_cast<std::size_t>(axis)));
}

void fill_elements(std::size_t element_size, std::byte* data, std::int64_t count,
                   const std::byte* value) {
  const std::size_t total = static_cast<std::size_t>(count) * element_size;
  if (total == 0) return;
  std::memcpy(data, value, element_size);
  // Doubling copies: what is filled is the source of what is not.
  for (std::size_t filled = element_size; filled < total; filled *= 2) {
    std::memcpy(data + filled, data, std::min(filled, total - filled));
  }
}

}  // namespace rlx
