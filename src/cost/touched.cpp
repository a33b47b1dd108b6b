// Extents of accesses: a buffer may be a concatenation of which a kernel writes one part.
#include "cost/touched.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

namespace rlx::cost {
namespace {

using Integers = std::vector<std::int64_t>;

class Touched {
 public:
  Touched(const loop::Kernel& kernel, std::size_t buffer, bool with_stores)
      : buffer_(static_cast<std::int32_t>(buffer)),
        with_stores_(with_stores),
        size_(static_cast<double>(size_of(kernel.buffers[buffer].dtype))),
        elements_(static_cast<double>(kernel.buffers[buffer].elements)) {}

  double whole() const { return elements_ * size_; }

  double in(const loop::Nest& nest) {
    add_all(nest.accesses, nest.stores, nest.extents);
    return std::min(sum(), whole());
  }

  /// A single step touches its own part of the inputs and outputs.
  double in(const loop::Recurrence& r) {
    if (r.step_buffer < 0 || r.r_buffer == buffer_) return whole();
    const Integers extents{r.directions, r.batch, 1, r.units};
    add_all(r.accesses, r.stores, extents);
    for (const loop::Access& state : r.last) add(state, extents);
    return std::min(sum(), whole());
  }

  double in(const loop::Contraction& c) {
    if (c.b_buffer == buffer_ || c.b_scale_buffer == buffer_ || c.b_zero_buffer == buffer_)
      return whole();
    Integers rows = c.batch_extents;
    rows.insert(rows.end(), c.m_extents.begin(), c.m_extents.end());
    if (c.a_buffer == buffer_) {
      Integers extents = rows, strides = c.a_batch_strides;
      extents.insert(extents.end(), c.k_extents.begin(), c.k_extents.end());
      strides.insert(strides.end(), c.a_m_strides.begin(), c.a_m_strides.end());
      strides.insert(strides.end(), c.a_k_strides.begin(), c.a_k_strides.end());
      add({c.a_buffer, c.a_offset, strides, {}, {}, 0}, extents);
    }
    rows.push_back(c.n);
    add_all(c.accesses, c.stores, rows);
    add_all(c.row_epilogue.accesses, c.row_epilogue.stores, c.row_epilogue.extents);
    return std::min(sum(), whole());
  }

  double in(const loop::Strips& strips) {
    for (const auto& stage : strips.stages) {
      if (const auto* nest = std::get_if<loop::Nest>(&stage))
        add_all(nest->accesses, nest->stores, nest->extents);
      const auto* product = std::get_if<loop::Contraction>(&stage);
      if (product && product->b_buffer == buffer_) return whole();
    }
    return std::min(sum(), whole());
  }

 private:
  struct Part {
    double from, to, bytes;
  };

  void add_all(const std::vector<loop::Access>& accesses, const std::vector<loop::Store>& stores,
               const Integers& extents) {
    for (const loop::Access& access : accesses) add(access, extents);
    if (!with_stores_) return;
    for (const loop::Store& store : stores) add(store.access, extents);
  }

  void add(const loop::Access& access, const Integers& extents) {
    if (access.buffer != buffer_) return;
    if (!access.indirect.empty()) {  // only data tells where
      double all = 1;
      for (const std::int64_t extent : extents) all *= static_cast<double>(extent);
      parts_.push_back({0, whole() + size_, std::min(all, elements_) * size_});
      return;
    }
    double low = static_cast<double>(access.offset), high = low;
    for (std::size_t dim = 0; dim < extents.size(); ++dim) {
      const auto way = static_cast<double>(access.strides[dim] * (extents[dim] - 1));
      if (extents[dim] > 1) (way < 0 ? low : high) += way;
    }
    parts_.push_back(
        {low * size_, (high + 1) * size_, reached_bytes(access, extents, size_, elements_)});
  }

  double sum() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return std::tie(a.from, a.to) < std::tie(b.from, b.to);
    });
    double sum = 0, from = 0, to = -1, bytes = 0;
    for (const Part& part : parts_) {
      if (part.from >= to) {
        sum += std::min(bytes, std::max(to - from, 0.0));
        from = part.from, to = part.to, bytes = 0;
      }
      to = std::max(to, part.to);
      bytes += part.bytes;
    }
    return sum + std::min(bytes, std::max(to - from, 0.0));
  }

  const std::int32_t buffer_;
  const bool with_stores_;
  const double size_, elements_;
  std::vector<Part> parts_;
};

double bytes_in(const loop::Kernel& kernel, Touched touched) {
  if (const auto* nest = std::get_if<loop::Nest>(&kernel.body)) return touched.in(*nest);
  if (const auto* product = std::get_if<loop::Contraction>(&kernel.body))
    return touched.in(*product);
  if (const auto* r = std::get_if<loop::Recurrence>(&kernel.body)) return touched.in(*r);
  if (const auto* strips = std::get_if<loop::Strips>(&kernel.body)) return touched.in(*strips);
  return touched.whole();
}

}  // namespace

Rows rows_of(const loop::Access& access, std::span<const std::int64_t> extents, std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  // Bytes from point to point, and points; in place, for every access of a plan is asked about.
  std::array<std::pair<std::int64_t, std::int64_t>, 64> steps;
  std::size_t used = 0;
  for (std::size_t dim = 0; dim < extents.size() && used < steps.size(); ++dim) {
    const std::int64_t step = std::abs(access.strides[dim]) * bytes;
    if (step != 0 && extents[dim] > 1) steps[used++] = {step, extents[dim]};
  }
  std::sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(used));
  Rows rows{1, bytes, bytes, access.offset * bytes};
  // Rows of the same distance, how many times there are.
  std::int64_t distance = 0, alike = 1;
  for (const auto& [step, count] : std::span(steps).first(used)) {
    if (distance == 0 && step <= rows.length) {
      rows.length += step * (count - 1);
      rows.apart = rows.length;
    } else if (distance != 0 && step % distance == 0 && step / distance <= alike) {
      // Neighbours, which windows share.
      alike += step / distance * (count - 1);
    } else {
      if (distance == 0) rows.apart = step;
      rows.count *= static_cast<double>(alike);
      distance = step, alike = count;
    }
  }
  rows.count *= static_cast<double>(alike);
  return rows;
}

double reached_bytes(const loop::Access& access, std::span<const std::int64_t> extents, double size,
                     double elements) {
  constexpr double line = 64;
  double low = static_cast<double>(access.offset), high = low, points = 1, least = HUGE_VAL;
  for (std::size_t dim = 0; dim < extents.size(); ++dim) {
    const auto stride = static_cast<double>(access.strides[dim]);
    const auto extent = static_cast<double>(extents[dim]);
    if (stride == 0 || extent <= 1) continue;
    (stride < 0 ? low : high) += stride * (extent - 1);
    points *= extent;
    least = std::min(least, std::abs(stride));
  }
  const double all = high - low + 1;
  double bytes = points * std::clamp(least * size, size, std::max(line, size));
  if (least == 1) {
    const Rows rows = rows_of(access, extents, static_cast<std::size_t>(size));
    // Windows reach beyond the image, where they read nothing.
    const double inside = std::min(high, elements - 1) - std::max(low, 0.0) + 1;
    if (rows.apart > rows.length) bytes = rows.count * inside / all * lines_of_row(rows) * line;
  }
  return std::min(bytes, all * size);
}

double lines_of_row(const Rows& rows) {
  constexpr std::int64_t line = 64;
  // Rows begin in turn at all places of a line that are so many bytes apart.
  const std::int64_t step = rows.count > 1 ? std::gcd(rows.apart, line) : line;
  const std::int64_t first = (rows.begin % step + step) % step;
  double lines = 0;
  for (std::int64_t at = first; at < line; at += step)
    lines += static_cast<double>((at + rows.length + line - 1) / line);
  return lines * static_cast<double>(step) / line;
}

double touched_bytes(const loop::Kernel& kernel, std::size_t buffer) {
  return bytes_in(kernel, Touched(kernel, buffer, true));
}

double loaded_bytes(const loop::Kernel& kernel, std::size_t buffer) {
  return bytes_in(kernel, Touched(kernel, buffer, false));
}

}  // namespace rlx::cost
