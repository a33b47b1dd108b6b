// Sorting and the k largest, line by line. NaN counts as the largest number, -0 as 0; equal ones
// keep their order.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/element.hpp"
#include "library/kernels.hpp"
#include "library/keys.hpp"

namespace rlx::library {
namespace {

/// Keys that grow in the order that is asked for.
template <class T>
inline Key<T> key_of(T value, Key<T> flip) {
  return ascending_key(value) ^ flip;
}

/// A key and the position that it stands at.
struct LongEntry {
  static constexpr int key_bits = 64;
  std::uint64_t key;
  std::int64_t at;
  static LongEntry of(std::int64_t key, std::int64_t at) {
    return {static_cast<std::uint64_t>(key) ^ (std::uint64_t{1} << 63), at};
  }
  std::int64_t position() const { return at; }
  std::uint64_t key_from(int bit) const { return key >> bit; }
  bool operator<(const LongEntry& other) const {
    return key < other.key || (key == other.key && at < other.at);
  }
};
struct ShortEntry {
  static constexpr int key_bits = 32;
  std::uint64_t key_and_at;
  static ShortEntry of(std::int32_t key, std::int64_t at) {
    const std::uint32_t raised = static_cast<std::uint32_t>(key) ^ (std::uint32_t{1} << 31);
    return {std::uint64_t{raised} << 32 | static_cast<std::uint64_t>(at)};
  }
  std::int64_t position() const {
    return static_cast<std::int64_t>(key_and_at & std::uint64_t{0xffffffff});
  }
  std::uint64_t key_from(int bit) const { return key_and_at >> (32 + bit); }
  bool operator<(const ShortEntry& other) const { return key_and_at < other.key_and_at; }
};

/// Sorts entries that stand in the order of their positions: by the lowest bits of the keys first,
/// each pass keeping the order of the one before. Gives where the sorted ones are: in `entries` or
/// in `other`.
template <class Entry>
Entry* sort_by_digits(Entry* entries, Entry* other, std::int64_t count) {
  constexpr int digit_bits = 11;
  constexpr std::size_t digits = std::size_t{1} << digit_bits;
  for (int bit = 0; bit < Entry::key_bits; bit += digit_bits) {
    std::array<std::uint32_t, digits> starts{};
    const auto digit = [bit](const Entry& entry) { return entry.key_from(bit) & (digits - 1); };
    for (std::int64_t i = 0; i < count; ++i) ++starts[digit(entries[i])];
    if (starts[digit(entries[0])] == static_cast<std::uint64_t>(count)) continue;
    std::uint32_t start = 0;
    for (std::uint32_t& each : starts) start += std::exchange(each, start);
    for (std::int64_t i = 0; i < count; ++i) other[starts[digit(entries[i])]++] = entries[i];
    std::swap(entries, other);
  }
  return entries;
}

enum class Way { insert, filter, all };

template <class T>
class OrderKernel final : public Kernel {
 public:
  using Entry = std::conditional_t<is_short<T>, ShortEntry, LongEntry>;
  /// What grows in the order that is asked for and is compared without making keys: no NaN has a
  /// place in it.
  using Rank = std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, double>, T, Key<T>>;

  OrderKernel(const Lines& lines, std::int64_t count, bool descending)
      : lines_(lines), count_(count), flip_(descending ? -1 : 0) {
    constexpr std::int64_t short_line = 128;
    groups_ = std::max<std::int64_t>(2 * count, 64);
    way_ = count <= few && lines.size <= short_line ? Way::insert
           : 2 * groups_ <= lines.size              ? Way::filter
                                                    : Way::all;
  }

  codegen::StepWork work() const override {
    const auto size = static_cast<double>(lines_.size), count = static_cast<double>(count_);
    double cycles = size * 3 + count * 30;
    if (way_ == Way::filter) {
      // A few more than are asked for reach the bound, most in blocks of their own.
      const double looked_at = std::min(size, 1.2 * count * block);
      cycles = size * 1.2 + looked_at * 4.5 + static_cast<double>(groups_) * 8 + count * 30;
    }
    if (way_ == Way::all) cycles = size * (by_digits() ? 15 : 4 * std::log2(size + 1));
    return {.items = lines_.count(), .cycles = cycles * static_cast<double>(lines_.count())};
  }
  std::int64_t scratch_bytes() const override {
    const std::int64_t entries = way_ == Way::insert   ? count_
                                 : way_ == Way::filter ? groups_ + block
                                                       : (by_digits() ? 2 : 1) * lines_.size;
    const std::int64_t ranks = way_ == Way::filter ? groups_ : 0;
    return entries * static_cast<std::int64_t>(sizeof(Entry)) +
           ranks * static_cast<std::int64_t>(sizeof(Rank));
  }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    for (std::int64_t line = begin; line < end; ++line) {
      const T* const from = static_cast<const T*>(buffers[0]) + lines_.start(line);
      const Entry* const best = order(from, static_cast<Entry*>(scratch));
      const std::int64_t to = line / lines_.inner * count_ * lines_.inner + line % lines_.inner;
      T* const values = static_cast<T*>(buffers[1]) + to;
      auto* const positions = static_cast<std::int64_t*>(buffers[2]) + to;
      for (std::int64_t p = 0; p < count_; ++p) {
        const std::int64_t position = best[p].position();
        values[p * lines_.inner] = from[position * lines_.inner];
        positions[p * lines_.inner] = position;
      }
    }
  }

 private:
  static constexpr std::int64_t few = 8, block = 32;
  bool by_digits() const { return lines_.size >= 512; }
  Key<T> key_at(const T* from, std::int64_t p) const {
    return key_of(from[p * lines_.inner], flip_);
  }

  const Entry* order(const T* from, Entry* entries) const {
    switch (way_) {
      case Way::insert: insert_best(from, entries); break;
      case Way::filter: filter_best(from, entries); break;
      case Way::all: return order_all(from, entries);
    }
    return entries;
  }

  /// A short list that stays sorted.
  void insert_best(const T* from, Entry* best) const {
    std::int64_t held = 0;
    for (std::int64_t p = 0; p < lines_.size; ++p) {
      const Entry entry = Entry::of(key_at(from, p), p);
      if (held == count_) {
        if (count_ == 0 || !(entry < best[count_ - 1])) continue;
      } else {
        ++held;
      }
      std::int64_t at = held - 1;
      for (; at > 0 && entry < best[at - 1]; --at) best[at] = best[at - 1];
      best[at] = entry;
    }
  }

  /// The best of each of some groups tell a bound that at least as many as are asked for reach, and
  /// few others: the rest need not be looked at again.
  void filter_best(const T* from, Entry* entries) const {
    auto* const ranks = reinterpret_cast<Rank*>(entries + groups_ + block);
    const Rank bound = bound_of(from, ranks);
    std::int64_t held = 0;
    Entry* const last = entries + (count_ - 1);
    Entry limit = Entry::of(std::numeric_limits<Key<T>>::max(), lines_.size);
    const auto take = [&](std::int64_t p) {
      const Entry entry = Entry::of(key_at(from, p), p);
      entries[held] = entry;
      held += static_cast<std::int64_t>(entry < limit);
    };
    for (std::int64_t begin = 0; begin < lines_.size; begin += block) {
      const std::int64_t end = std::min(begin + block, lines_.size);
      if (lines_.inner == 1 && end - begin == block) {
        const Hits hits = hits_of(from + begin, bound);
        for (std::size_t i = 0; i < hits.size(); ++i)
          for (std::uint64_t bytes = hits[i]; bytes != 0; bytes &= bytes - 1)
            take(begin + static_cast<std::int64_t>(8 * i) + std::countr_zero(bytes) / 8);
      } else {
        for (std::int64_t p = begin; p < end; ++p)
          if (!(rank_of(from[p * lines_.inner]) > bound)) take(p);
      }
      if (held < groups_) continue;
      std::nth_element(entries, last, entries + held);
      limit = *last;
      held = count_;
    }
    std::nth_element(entries, last, entries + held);
    std::sort(entries, entries + count_);
  }

  /// A rank that no fewer than `count_` numbers of the line reach: that one of the groups' best.
  Rank bound_of(const T* from, Rank* ranks) const {
    constexpr Rank worst = std::numeric_limits<Rank>::has_infinity
                               ? std::numeric_limits<Rank>::infinity()
                               : std::numeric_limits<Rank>::max();
    std::fill(ranks, ranks + groups_, worst);
    const auto take_rounds = [&](std::int64_t step) {
      for (std::int64_t begin = 0; begin + groups_ <= lines_.size; begin += groups_) {
        for (std::int64_t g = 0; g < groups_; ++g) {
          const Rank rank = rank_of(from[(begin + g) * step]);
          ranks[g] = rank < ranks[g] ? rank : ranks[g];
        }
      }
    };
    if (lines_.inner == 1) take_rounds(1);
    else take_rounds(lines_.inner);
    if (count_ <= few) std::partial_sort(ranks, ranks + count_, ranks + groups_);
    else std::nth_element(ranks, ranks + (count_ - 1), ranks + groups_);
    return ranks[count_ - 1];
  }

  Rank rank_of(T value) const {
    if constexpr (std::is_same_v<T, Rank> && std::is_floating_point_v<T>)
      return flip_ ? -value : value;
    else return key_of(value, flip_);
  }

  /// A byte for each number of a block, the first one the lowest: 1 where it may reach the bound.
  using Hits = std::array<std::uint64_t, block / 8>;
  Hits hits_of(const T* from, Rank bound) const {
    std::array<std::uint8_t, block> reaches;  // by a vector loop
    for (std::size_t p = 0; p < block; ++p) reaches[p] = !(rank_of(from[p]) > bound);
    static_assert(std::endian::native == std::endian::little);
    return std::bit_cast<Hits>(reaches);
  }

  const Entry* order_all(const T* from, Entry* entries) const {
    for (std::int64_t p = 0; p < lines_.size; ++p) entries[p] = Entry::of(key_at(from, p), p);
    if (by_digits()) return sort_by_digits(entries, entries + lines_.size, lines_.size);
    std::sort(entries, entries + lines_.size);
    return entries;
  }

  const Lines lines_;
  const std::int64_t count_;
  const Key<T> flip_;
  std::int64_t groups_ = 0;
  Way way_ = Way::all;
};

}  // namespace

KernelPtr order_kernel(const Call& call) {
  const auto* sort = call.op.as<op::Sort>();
  const auto* top = call.op.as<op::TopK>();
  if (!sort && !top) return nullptr;
  const Lines lines(call.in(0), sort ? sort->axis : top->axis);
  // Short entries and digit counts hold positions of 32 bits.
  if (lines.size >= (std::int64_t{1} << 32) || lines.size == 0) return nullptr;
  return with_element_type(call.in(0).dtype, [&](auto element) -> KernelPtr {
    using T = decltype(element);
    if constexpr (is_complex_type<T>) return nullptr;
    else
      return std::make_unique<OrderKernel<T>>(lines, sort ? lines.size : top->k,
                                              sort ? sort->descending : top->largest);
  });
}

}  // namespace rlx::library
