// Adds bytes in i16 for as long as these hold the sums, then in i32.
#include "plan/byte_sums.hpp"

#include <algorithm>
#include <array>

#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

constexpr std::int64_t rows_at_a_time = 128;  ///< 128 * 255 < 2^15
constexpr std::int64_t stretch = 512;         ///< columns whose sums stay in the L1 cache

/// Adds `count` rows of `width` columns, `inner` apart. Sums wrap, as the reference's do.
template <class T>
void add_rows(const T* row, std::int64_t count, std::int64_t inner, std::int64_t width,
              std::uint32_t* __restrict sums) {
  std::array<std::int16_t, stretch> part;
  for (std::int64_t done = 0; done < count; done += rows_at_a_time) {
    part.fill(0);
    const std::int64_t rows = std::min(rows_at_a_time, count - done);
    for (std::int64_t r = 0; r < rows; ++r, row += inner)
      for (std::int64_t i = 0; i < width; ++i)
        part[static_cast<std::size_t>(i)] =
            static_cast<std::int16_t>(part[static_cast<std::size_t>(i)] + row[i]);
    for (std::int64_t i = 0; i < width; ++i)
      sums[i] += static_cast<std::uint32_t>(part[static_cast<std::size_t>(i)]);
  }
}

template <class T>
void sum_columns(const ByteSum& sum, const T* bytes, std::int32_t* results) {
  std::array<std::uint32_t, stretch> sums;
  for (std::int64_t o = 0; o < sum.outer; ++o) {
    for (std::int64_t first = 0; first < sum.inner; first += stretch) {
      const std::int64_t width = std::min(stretch, sum.inner - first);
      sums.fill(0);
      add_rows(bytes + o * sum.count * sum.inner + first, sum.count, sum.inner, width, sums.data());
      std::transform(sums.begin(), sums.begin() + width, results + o * sum.inner + first,
                     [](std::uint32_t each) { return static_cast<std::int32_t>(each); });
    }
  }
}

/// Sums of neighbours.
template <class T>
void sum_lines(const ByteSum& sum, const T* bytes, std::int32_t* results) {
  for (std::int64_t o = 0; o < sum.outer; ++o, bytes += sum.count) {
    std::uint32_t total = 0;
    for (std::int64_t i = 0; i < sum.count; ++i) total += static_cast<std::uint32_t>(bytes[i]);
    results[o] = static_cast<std::int32_t>(total);
  }
}

template <class T>
void sum_all(const ByteSum& sum, const Tensor& bytes, std::int32_t* results) {
  const auto* elements = reinterpret_cast<const T*>(bytes.data());
  if (sum.inner == 1) return sum_lines(sum, elements, results);
  sum_columns(sum, elements, results);
}

}  // namespace

std::optional<ByteSum> byte_sum(const Graph& graph, ValueId id) {
  const auto* reduce = graph.node(id).op.as<op::Reduce>();
  if (!reduce || reduce->kind != Reduction::sum || reduce->axes.empty()) return std::nullopt;
  ByteSum sum;
  sum.wide = graph.node(id).inputs[0];
  const Node& cast = graph.node(sum.wide);
  if (!cast.op.is<op::Cast>() || graph.type(sum.wide).dtype != i32) return std::nullopt;
  sum.bytes = cast.inputs[0];
  const Type& type = graph.type(sum.bytes);
  if (type.dtype != i8 && type.dtype != u8) return std::nullopt;
  if (!type.is_static() || type.elements() == 0) return std::nullopt;
  const Dims dims = type.dims();
  Axes axes = reduce->axes;
  for (std::int64_t& axis : axes) axis += axis < 0 ? type.rank() : 0;
  std::ranges::sort(axes);
  if (axes.back() - axes.front() + 1 != std::ssize(axes)) return std::nullopt;
  for (std::int64_t axis = 0; axis < std::ssize(dims); ++axis) {
    std::int64_t& part = axis < axes.front()  ? sum.outer
                         : axis > axes.back() ? sum.inner
                                              : sum.count;
    part *= dims[static_cast<std::size_t>(axis)];
  }
  return sum;
}

void sum_bytes(const ByteSum& sum, const Tensor& bytes, std::int32_t* results) {
  if (bytes.dtype() == u8) return sum_all<std::uint8_t>(sum, bytes, results);
  sum_all<std::int8_t>(sum, bytes, results);
}

}  // namespace rlx::plan
