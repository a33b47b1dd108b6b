// Order: sorting and the k largest. NaN counts as the largest number.
#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "graph/rules.hpp"
#include "ops/element.hpp"
#include "ops/families.hpp"
#include "ops/strided.hpp"

namespace rlx {
namespace {

using Types = Result<std::vector<Type>>;

/// A number as an unsigned integer that grows with it: NaN above all, -0 as 0. `descending` turns
/// the order round.
template <class T>
std::uint64_t sort_key(T value, bool descending) {
  const Wide<T> wide = widen(value);
  std::uint64_t key = 0;
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  if constexpr (std::is_unsigned_v<Wide<T>>) {
    key = wide;
  } else if constexpr (std::is_integral_v<Wide<T>>) {
    key = static_cast<std::uint64_t>(wide) ^ sign;
  } else if (is_nan_value(wide)) {
    key = ~std::uint64_t{0};
  } else {
    key = std::bit_cast<std::uint64_t>(wide + 0.0);
    key = key & sign ? ~key : key | sign;
  }
  return descending ? ~key : key;
}

/// The same in 32 bits, for types that fit in them.
template <class T>
constexpr bool is_short_key = sizeof(T) <= 4;

template <class T>
std::uint32_t short_key(T value, bool descending) {
  constexpr std::uint32_t sign = std::uint32_t{1} << 31;
  std::uint32_t key = 0;
  if constexpr (std::is_integral_v<T>) {
    key = static_cast<std::uint32_t>(static_cast<std::int64_t>(value)) ^
          (std::is_signed_v<T> ? sign : 0);
  } else {
    const auto number = static_cast<float>(widen(value));
    if (number != number) {
      key = ~std::uint32_t{0};
    } else {
      key = std::bit_cast<std::uint32_t>(number + 0.0F);
      key = key & sign ? ~key : key | sign;
    }
  }
  return descending ? ~key : key;
}

/// A key and the position that it stands at: equal keys keep their order.
struct LongEntry {
  static constexpr int key_bits = 64;
  std::uint64_t key;
  std::int64_t at;
  std::int64_t position() const { return at; }
  std::uint64_t key_from(int bit) const { return key >> bit; }
  bool operator<(const LongEntry& other) const {
    return key < other.key || (key == other.key && at < other.at);
  }
};
struct ShortEntry {
  static constexpr int key_bits = 32;
  std::uint64_t key_and_at;
  std::int64_t position() const {
    return static_cast<std::int64_t>(key_and_at & std::uint64_t{0xffffffff});
  }
  std::uint64_t key_from(int bit) const { return key_and_at >> (32 + bit); }
  bool operator<(const ShortEntry& other) const { return key_and_at < other.key_and_at; }
};

/// Sorts entries that stand in the order of their positions: by the lowest bits of the keys first,
/// each pass keeping the order of the one before.
template <class Entry>
void sort_by_digits(std::vector<Entry>& entries, std::vector<Entry>& other) {
  constexpr int digit_bits = 11;
  constexpr std::size_t digits = std::size_t{1} << digit_bits;
  other.resize(entries.size());
  for (int bit = 0; bit < Entry::key_bits; bit += digit_bits) {
    std::array<std::uint32_t, digits> starts{};
    const auto digit = [bit](const Entry& entry) { return entry.key_from(bit) & (digits - 1); };
    for (const Entry& entry : entries) ++starts[digit(entry)];
    if (starts[digit(entries[0])] == entries.size()) continue;
    std::uint32_t start = 0;
    for (std::uint32_t& each : starts) start += std::exchange(each, start);
    for (const Entry& entry : entries) other[starts[digit(entry)]++] = entry;
    entries.swap(other);
  }
}

/// The first `count` of a line's entries, in order, at the front of `entries`.
template <class Entry, class Read>
void order_first(std::vector<Entry>& entries, std::vector<Entry>& other, std::int64_t size,
                 std::int64_t count, Read read) {
  entries.clear();
  const std::int64_t kept = std::max<std::int64_t>(4 * count, 64);
  if (count > 0 && kept < size) {
    // Only what lies before the last of the best so far is looked at again.
    const auto last = entries.begin() + (count - 1);
    Entry limit{};
    for (std::int64_t p = 0; p < size; ++p) {
      const Entry entry = read(p);
      if (p >= kept && !(entry < limit)) continue;
      entries.push_back(entry);
      if (static_cast<std::int64_t>(entries.size()) < kept) continue;
      std::nth_element(entries.begin(), last, entries.end());
      limit = *last;
      entries.resize(static_cast<std::size_t>(count));
    }
    std::sort(entries.begin(), entries.end());
    return;
  }
  for (std::int64_t p = 0; p < size; ++p) entries.push_back(read(p));
  if (size >= 512 && size < (std::int64_t{1} << 32)) return sort_by_digits(entries, other);
  std::sort(entries.begin(), entries.end());
}

// Puts the first `count` elements of each line along `axis`, in order, and their positions into the
// outputs.
template <class T, class Entry, class MakeEntry>
void order_lines(const TensorView& x, std::int64_t axis, std::int64_t count, const EvalArgs& args,
                 MakeEntry make_entry) {
  const std::int64_t size = x.dims[static_cast<std::size_t>(axis)];
  const std::int64_t outer = count_before(x.dims, axis), inner = count_from(x.dims, axis + 1);
  std::vector<Entry> entries, other;
  entries.reserve(static_cast<std::size_t>(size));
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const T* from = x.as<T>() + o * size * inner + i;
      order_first(entries, other, size, count,
                  [&](std::int64_t p) { return make_entry(from[p * inner], p); });
      for (std::int64_t p = 0; p < count; ++p) {
        const std::int64_t at = (o * count + p) * inner + i,
                           position = entries[static_cast<std::size_t>(p)].position();
        args.out(0).as<T>()[at] = from[position * inner];
        args.out(1).as<std::int64_t>()[at] = position;
      }
    }
  }
}

template <class T>
void order_typed(const TensorView& x, std::int64_t axis, std::int64_t count, bool descending,
                 const EvalArgs& args) {
  if constexpr (is_short_key<T>) {
    if (x.dims[static_cast<std::size_t>(axis)] < (std::int64_t{1} << 32)) {
      return order_lines<T, ShortEntry>(x, axis, count, args,
                                        [descending](T value, std::int64_t p) -> ShortEntry {
                                          const std::uint64_t key = short_key(value, descending);
                                          return {key << 32 | static_cast<std::uint64_t>(p)};
                                        });
    }
  }
  order_lines<T, LongEntry>(x, axis, count, args,
                            [descending](T value, std::int64_t p) -> LongEntry {
                              return {sort_key(value, descending), p};
                            });
}

void order_all(const EvalArgs& args, std::int64_t axis, std::int64_t count, bool descending) {
  const TensorView& x = args.in(0);
  with_element_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!is_complex_type<T>)
      order_typed<T>(x, axis < 0 ? axis + x.rank() : axis, count, descending, args);
  });
}

}  // namespace

template <>
struct Rules<op::Sort> {
  static constexpr std::string_view name = "sort";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("axis", &op::Sort::axis), field("descending", &op::Sort::descending)};
  static Types infer(const op::Sort& a, const InferArgs& args) {
    RLX_TRY(require(!is_complex(args[0].dtype), name, "what has an order", args[0]));
    RLX_TRY(normalize_axis(a.axis, args[0].rank(), args[0]));
    return std::vector<Type>{args[0], {i64, args[0].shape}};
  }
  static Status eval(const op::Sort& a, const EvalArgs& args) {
    const TensorView& x = args.in(0);
    order_all(args, a.axis,
              x.dims[static_cast<std::size_t>(a.axis < 0 ? a.axis + x.rank() : a.axis)],
              a.descending);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::Sort{-1, false}, .inputs = {Type{f32, {3, 9}}}},
            {.op = op::Sort{0, true}, .inputs = {Type{f16, {7, 2}}}},
            {.op = op::Sort{1, false}, .inputs = {Type{i64, {2, 8, 3}}}},
            {.op = op::Sort{0, true}, .inputs = {Type{boolean, {9}}}}};
  }
};
RLX_OP(op::Sort, "order")

template <>
struct Rules<op::TopK> {
  static constexpr std::string_view name = "top_k";
  static constexpr Arity arity{1, 1};
  static constexpr OpTraits traits{};
  static constexpr auto fields =
      std::tuple{field("k", &op::TopK::k), field("axis", &op::TopK::axis),
                 field("largest", &op::TopK::largest), field("sorted", &op::TopK::sorted)};
  static Types infer(const op::TopK& a, const InferArgs& args) {
    const Type& x = args[0];
    RLX_TRY(require(!is_complex(x.dtype), name, "what has an order", x));
    RLX_ASSIGN(const std::int64_t axis, normalize_axis(a.axis, x.rank(), x));
    Shape shape = x.shape;
    Dim& dim = shape[static_cast<std::size_t>(axis)];
    if (a.k < 0 || (dim.is_static() && a.k > dim.value()))
      return bad_input("The k ({}) of top_k lies outside axis ({}) of {}.", a.k, axis, x.text());
    dim = Dim(a.k);
    return std::vector<Type>{{x.dtype, shape}, {i64, shape}};
  }
  static Status eval(const op::TopK& a, const EvalArgs& args) {
    order_all(args, a.axis, a.k, a.largest);
    return {};
  }
  static std::vector<Sample> samples() {
    return {{.op = op::TopK{3, -1}, .inputs = {Type{f32, {4, 10}}}},
            {.op = op::TopK{2, 0, false}, .inputs = {Type{bf16, {5, 3}}}},
            {.op = op::TopK{5, 1, true, false}, .inputs = {Type{i32, {2, 5}}}},
            {.op = op::TopK{0, 0}, .inputs = {Type{f32, {4}}}}};
  }
};
RLX_OP(op::TopK, "order")

OpList order_ops() {
  static const OpInfo* const list[] = {&info_of<op::Sort>(), &info_of<op::TopK>()};
  return list;
}

}  // namespace rlx
