// Copies strided matrices into panels. Element types matter by their size alone.
#include "codegen/pack.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/element.hpp"
#include "base/memory.hpp"
#include "codegen/machine.hpp"

namespace rlx::codegen {
namespace {

#include "base/lane_vector.hpp"

/// The k dims longer than 1, neighbours in memory merged.
void merge_k(std::vector<std::int64_t>& extents, std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> merged_extents, merged_strides;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1) continue;
    if (!merged_extents.empty() && merged_strides.back() == strides[i] * extents[i]) {
      merged_extents.back() *= extents[i];
      merged_strides.back() = strides[i];
    } else {
      merged_extents.push_back(extents[i]);
      merged_strides.push_back(strides[i]);
    }
  }
  if (merged_extents.empty()) merged_extents = {1}, merged_strides = {0};
  extents = std::move(merged_extents);
  strides = std::move(merged_strides);
}

/// Writes a tile of 16 x 16 elements of four bytes with its rows as columns; strides in bytes.
void transpose_tile(const std::byte* from, std::int64_t from_stride, std::byte* to,
                    std::int64_t to_stride) {
  constexpr int lanes = 4;
  constexpr std::int64_t width = lanes * sizeof(std::uint32_t);
  for (std::int64_t j = 0; j < 16; j += lanes) {
    for (std::int64_t i = 0; i < 16; i += lanes) {
      Vector<std::uint32_t, lanes> square[lanes];
      for (int row = 0; row < lanes; ++row)
        square[row] = load_unaligned<Vector<std::uint32_t, lanes>>(from + row * from_stride +
                                                                   i / lanes * width);
      transpose<std::uint32_t, lanes>(square);
      for (int row = 0; row < lanes; ++row)
        store_unaligned(to + (i + row) * to_stride, square[row]);
    }
    from += lanes * from_stride;
    to += width;
  }
}

/// One run along the inner k dim of one panel: `columns` of its `width` columns exist. The source
/// may lie in a mapped file at any address.
template <class T>
void pack_run(const std::byte* source, std::int64_t k, std::int64_t k_stride, std::int64_t n_stride,
              std::int64_t columns, std::int64_t width, T* destination) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  if (n_stride == 1) {
    for (std::int64_t i = 0; i < k; ++i) {
      std::memcpy(destination + i * width, source + i * k_stride * size, columns * sizeof(T));
    }
    return;
  }
  if (n_stride == 0 && k_stride == 0) {  // one number, broadcast
    T value;
    std::memcpy(&value, source, sizeof(T));
    for (std::int64_t i = 0; i < k; ++i) std::fill_n(destination + i * width, columns, value);
    return;
  }
  // Tiles of 16 x 16, so that both sides stay in the L1 cache whichever of them strides.
  constexpr std::int64_t tile = 16;
  for (std::int64_t k0 = 0; k0 < k; k0 += tile) {
    const std::int64_t k_end = std::min(k, k0 + tile);
    for (std::int64_t n0 = 0; n0 < columns; n0 += tile) {
      const std::int64_t n_end = std::min(columns, n0 + tile);
      if (sizeof(T) == 4 && k_stride == 1 && k_end == k0 + tile && n_end == n0 + tile) {
        transpose_tile(source + (k0 + n0 * n_stride) * size, n_stride * size,
                       reinterpret_cast<std::byte*>(destination + k0 * width + n0), width * size);
        continue;
      }
      for (std::int64_t i = k0; i < k_end; ++i) {
        const std::byte* from = source + i * k_stride * size;
        T* to = destination + i * width;
        for (std::int64_t j = n0; j < n_end; ++j)
          std::memcpy(to + j, from + j * n_stride * size, sizeof(T));
      }
    }
  }
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, float>) {
    return To(value);
  } else {
    return static_cast<To>(widen(value));
  }
}

/// Groups of the run that are whole, elements copied as they are; returns the k that these cover,
/// none where neither k nor n has neighbours in memory. Elements are bytes here: a group may be
/// loaded as one word.
template <std::int64_t size, std::int64_t group>
std::int64_t copy_groups(const std::byte* source, std::int64_t k, std::int64_t k_stride,
                         std::int64_t n_stride, std::int64_t columns, std::int64_t width,
                         std::byte* __restrict destination) {
  if (n_stride != 1 && k_stride != 1) return 0;
  const std::int64_t whole = k / group * group;
  constexpr std::int64_t tile = 4;  // of groups: lines of columns are read while they are in L1
  for (std::int64_t k0 = 0; k0 < whole; k0 += tile * group) {
    const std::int64_t k_end = std::min(whole, k0 + tile * group);
    for (std::int64_t i = k0; i < k_end; i += group) {
      const std::byte* from = source + i * k_stride * size;
      std::byte* __restrict to = destination + i * width * size;
      if (n_stride == 1) {
        for (std::int64_t j = 0; j < columns; ++j)
          for (std::int64_t r = 0; r < group; ++r)
            for (std::int64_t b = 0; b < size; ++b)
              to[(j * group + r) * size + b] = from[r * k_stride * size + j * size + b];
      } else {
        for (std::int64_t j = 0; j < columns; ++j)
          std::memcpy(to + j * group * size, from + j * n_stride * size, group * size);
      }
    }
  }
  return whole;
}

/// The same with groups of k side by side and elements converted: tiles of columns, so that each
/// line of the destination is finished while it is in the L1 cache.
template <class T, class From>
void pack_groups(const std::byte* source, std::int64_t k, std::int64_t k_stride,
                 std::int64_t n_stride, std::int64_t columns, std::int64_t width,
                 std::int64_t group, T* destination) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(From));
  std::int64_t first = 0;
  if constexpr (std::is_same_v<T, From> && size <= 2) {
    constexpr std::int64_t word_group = 4 / size;
    if (group == word_group)
      first = copy_groups<size, word_group>(source, k, k_stride, n_stride, columns, width,
                                            reinterpret_cast<std::byte*>(destination));
  }
  const auto at = [&](std::int64_t i, std::int64_t j) {
    From value;
    std::memcpy(&value, source + (i * k_stride + j * n_stride) * size, sizeof value);
    return converted<T>(value);
  };
  constexpr std::int64_t tile = 16;
  for (std::int64_t k0 = first; k0 < k; k0 += tile) {
    const std::int64_t k_end = std::min(k, k0 + tile);
    for (std::int64_t n0 = 0; n0 < columns; n0 += tile) {
      const std::int64_t n_end = std::min(columns, n0 + tile);
      for (std::int64_t i = k0; i < k_end; ++i) {
        T* to = destination + i / group * group * width + i % group;
        for (std::int64_t j = n0; j < n_end; ++j) to[j * group] = at(i, j);
      }
    }
  }
}

constexpr auto piece_bytes = static_cast<std::int64_t>(bytes_got_at_once);

/// The place that a matrix is written to from its begin to its end. Memory is made ready in pieces
/// just ahead of the copy, which is looked at just behind it.
template <class T>
class PackedMatrix {
 public:
  PackedMatrix(T* begin, std::int64_t elements, bool zeroed, const Written& written)
      : next_(begin),
        seen_(begin),
        ready_(begin),
        end_(begin + elements),
        zeroed_(zeroed),
        written_(written) {}

  /// Where the next so many elements go. What was taken before has been written by now.
  T* take(std::int64_t elements) {
    T* const from = next_;
    next_ += elements;
    if (next_ > ready_) {
      show(from);
      make_ready();
    }
    return from;
  }

  /// All of it has been written.
  void finish() { show(next_); }

 private:
  void make_ready() {
    T* const begin = ready_;
    ready_ = std::min(end_, std::max(next_, begin + piece_bytes / std::int64_t{sizeof(T)}));
    get_pages(reinterpret_cast<std::byte*>(begin),
              static_cast<std::size_t>(ready_ - begin) * sizeof(T));
    if (zeroed_) std::fill(begin, ready_, T{});
  }
  void show(T* end) {
    if (written_ && end != seen_)
      written_(std::as_bytes(std::span(seen_, static_cast<std::size_t>(end - seen_))));
    seen_ = end;
  }

  T *next_, *seen_, *ready_, *end_;
  bool zeroed_;
  const Written& written_;
};

template <class T, class From>
void pack_matrix(const std::byte* source, const std::vector<std::int64_t>& extents,
                 const std::vector<std::int64_t>& strides, std::int64_t n_stride,
                 const PackedLayout& layout, T* destination, const Written& written) {
  const std::size_t inner = extents.size() - 1;
  std::vector<std::int64_t> index(extents.size(), 0);
  const std::int64_t run_k = extents[inner];
  const std::int64_t runs = run_k == 0 ? 0 : layout.k / run_k;
  const auto filled = [&](std::int64_t k) {
    return (k + layout.group - 1) / layout.group * layout.group;
  };
  // Whole tiles and groups.
  const std::int64_t rows_of_a_piece = piece_bytes / std::int64_t{sizeof(T)} / layout.panel_width;
  const std::int64_t step = std::max<std::int64_t>(1, rows_of_a_piece / 16) * 16 * layout.group;
  const bool padded = layout.n % layout.panel_width != 0 || filled(run_k) != run_k;
  PackedMatrix<T> to(destination, layout.elements(), padded, written);
  for (std::int64_t panel = 0; panel < layout.panels(); ++panel) {
    const std::int64_t n0 = panel * layout.panel_width;
    const std::int64_t columns = std::min(layout.panel_width, layout.n - n0);
    std::fill(index.begin(), index.end(), 0);
    for (std::int64_t run = 0; run < runs; ++run) {
      std::int64_t offset = n0 * n_stride;
      for (std::size_t i = 0; i < inner; ++i) offset += index[i] * strides[i];
      const std::byte* from = source + offset * static_cast<std::int64_t>(sizeof(From));
      for (std::int64_t first = 0; first < run_k; first += step) {
        const std::int64_t k = std::min(step, run_k - first);
        T* const part = to.take(filled(k) * layout.panel_width);
        if (std::is_same_v<T, From> && layout.group == 1) {
          pack_run(from, k, strides[inner], n_stride, columns, layout.panel_width, part);
        } else {
          pack_groups<T, From>(from, k, strides[inner], n_stride, columns, layout.panel_width,
                               layout.group, part);
        }
        from += k * strides[inner] * static_cast<std::int64_t>(sizeof(From));
      }
      for (std::size_t i = inner; i-- > 0 && ++index[i] == extents[i];) index[i] = 0;
    }
  }
  to.finish();
}

template <class T, class From = T>
void pack_all(const PackSource& source, const PackedLayout& layout, void* destination,
              const Written& written) {
  std::vector<std::int64_t> extents = source.k_extents, strides = source.k_strides;
  // Runs that end inside of a group stay apart.
  const bool whole_groups = layout.group == 1 || layout.inner % layout.group == 0;
  if (whole_groups || extents.empty()) merge_k(extents, strides);
  for (std::int64_t batch = 0; batch < source.batches; ++batch) {
    const std::int64_t first = source.offset + batch * source.batch_stride;
    const auto* begin = static_cast<const std::byte*>(source.data);
    pack_matrix<T, From>(begin + first * std::int64_t{sizeof(From)}, extents, strides,
                         source.n_stride, layout,
                         static_cast<T*>(destination) + batch * layout.elements(), written);
  }
}

}  // namespace

PackedLayout choose_packed_layout(std::int64_t n, std::int64_t k, DType dtype, const Target& target,
                                  std::int64_t rows) {
  PackedLayout layout{n, k, 16, dtype};
  if (target.isa != Isa::avx512) return layout;
  // f64 has eight lanes: two or four registers make a panel.
  layout.panel_width = dtype == DType::f64 ? (n <= 16 ? 16 : 32) : choose_panel_width(n, 16, 4);
  constexpr std::int64_t rows_of_a_block = 6;
  if (dtype != DType::f32 || rows <= rows_of_a_block || !machine_of(target).large_l2) return layout;
  constexpr std::int64_t from_memory = 16 * 1024 * 1024, most_if_from_memory = 832 * 1024;
  const bool is_far = rows * k * static_cast<std::int64_t>(size_of(dtype)) >= from_memory;
  const std::int64_t most = is_far ? most_if_from_memory : most_bytes_of_walked_panel;
  for (const std::int64_t width : {32, 16}) {
    if (layout.panel_bytes() > most) layout.panel_width = std::min(layout.panel_width, width);
  }
  return layout;
}

std::size_t packed_bytes(const PackedLayout& layout, std::int64_t batches) {
  return static_cast<std::size_t>(batches * layout.panels() * layout.panel_bytes());
}

namespace {

/// Packs bytes in pairs of k, then puts each pair into one byte.
void pack_nibbles(const PackSource& source, PackedLayout layout, std::uint8_t* destination,
                  const Written& written) {
  layout.nibbles = false;
  layout.group = 2;
  layout.inner = layout.k;
  std::vector<std::uint8_t> pairs(packed_bytes(layout, source.batches));
  pack(source, layout, pairs.data());
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
    destination[i / 2] =
        static_cast<std::uint8_t>((pairs[i] & 15U) | static_cast<unsigned>(pairs[i + 1]) << 4U);
  if (written) written(std::as_bytes(std::span(destination, pairs.size() / 2)));
}

}  // namespace

void pack(const PackSource& source, const PackedLayout& layout, void* destination,
          const Written& written) {
  if (layout.nibbles)
    return pack_nibbles(source, layout, static_cast<std::uint8_t*>(destination), written);
  if (source.from == DType::f32 && layout.dtype == DType::bf16)
    return pack_all<BFloat16, float>(source, layout, destination, written);
  if (source.from == DType::f32 && layout.dtype == DType::f16)
    return pack_all<Half, float>(source, layout, destination, written);
  if (source.from == DType::f16) return pack_all<float, Half>(source, layout, destination, written);
  if (source.from == DType::bf16)
    return pack_all<float, BFloat16>(source, layout, destination, written);
  if (source.from == DType::i8)
    return pack_all<std::int16_t, std::int8_t>(source, layout, destination, written);
  if (source.from == DType::u8)
    return pack_all<std::int16_t, std::uint8_t>(source, layout, destination, written);
  switch (size_of(layout.dtype)) {
    case 1: return pack_all<std::uint8_t>(source, layout, destination, written);
    case 2: return pack_all<std::uint16_t>(source, layout, destination, written);
    case 4: return pack_all<std::uint32_t>(source, layout, destination, written);
    default: return pack_all<std::uint64_t>(source, layout, destination, written);
  }
}

}  // namespace rlx::codegen
