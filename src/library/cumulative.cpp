// Sums, products and extremes of all elements before along lines.
#include <algorithm>

#include "base/element.hpp"
#include "library/kernels.hpp"

namespace rlx::library {
namespace {

template <Reduction kind, class W>
inline W combine(W a, W b) {
  if constexpr (std::is_integral_v<W> && (kind == Reduction::sum || kind == Reduction::prod)) {
    // Integers wrap.
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<W>(kind == Reduction::sum ? x + y : x * y);
  }
  if constexpr (kind == Reduction::sum) return a + b;
  if constexpr (kind == Reduction::prod) return a * b;
  if constexpr (kind == Reduction::min) return is_nan_value(a) || a < b ? a : b;
  if constexpr (kind == Reduction::max) return is_nan_value(a) || a > b ? a : b;
  return b;
}

/// Computed in the widest type of its sort, as the reference is. The first element of a line starts
/// it, so that only exclusive lines need a neutral element: that of sums and products.
template <class T, Reduction kind>
class CumulativeKernel final : public Kernel {
 public:
  using W = Wide<T>;
  CumulativeKernel(const Lines& lines, const op::Cumulative& a)
      : lines_(lines), exclusive_(a.exclusive), reverse_(a.reverse) {
    step_ = (reverse_ ? -1 : 1) * lines.inner;
  }

  codegen::StepWork work() const override {
    const double elements = static_cast<double>(lines_.count() * lines_.size);
    return {.items = lines_.inner == 1 ? lines_.outer : lines_.outer * blocks(),
            .cycles = elements * (lines_.inner == 1 ? 1.5 : 1)};
  }
  std::int64_t scratch_bytes() const override { return 0; }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end, void*) const override {
    const T* const from = static_cast<const T*>(buffers[0]);
    T* const to = static_cast<T*>(buffers[1]);
    if (lines_.inner == 1) {
      // Each sum waits for the one before; several lines at once fill the time.
      constexpr std::int64_t together = 4;
      std::int64_t line = begin;
      for (; line + together <= end; line += together) walk<together>(from, to, line);
      for (; line < end; ++line) walk<1>(from, to, line);
      return;
    }
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t first = item % blocks() * block;
      walk_block(from, to, item / blocks() * lines_.size * lines_.inner + first,
                 std::min(block, lines_.inner - first));
    }
  }

 private:
  static constexpr std::int64_t block = 128;
  static constexpr W neutral = kind == Reduction::prod ? W(1) : W(0);
  std::int64_t blocks() const { return (lines_.inner + block - 1) / block; }
  std::int64_t first_offset() const { return reverse_ ? (lines_.size - 1) * lines_.inner : 0; }

  template <std::int64_t together>
  void walk(const T* from, T* to, std::int64_t line) const {
    W values[together];
    const std::int64_t base = line * lines_.size + first_offset();
    std::int64_t p = 0;
    if (exclusive_) {
      std::fill_n(values, together, neutral);
    } else {
      for (std::int64_t i = 0; i < together; ++i) {
        values[i] = widen(from[base + i * lines_.size]);
        to[base + i * lines_.size] = from[base + i * lines_.size];
      }
      p = 1;
    }
    for (; p < lines_.size; ++p) {
      for (std::int64_t i = 0; i < together; ++i) {
        const std::int64_t at = base + i * lines_.size + p * step_;
        const W next = combine<kind>(values[i], static_cast<W>(widen(from[at])));
        to[at] = narrow<T>(exclusive_ ? values[i] : next);
        values[i] = next;
      }
    }
  }

  void walk_block(const T* from, T* to, std::int64_t base, std::int64_t width) const {
    W values[block];
    base += first_offset();
    std::int64_t p = 0;
    if (exclusive_) {
      std::fill_n(values, width, neutral);
    } else {
      for (std::int64_t i = 0; i < width; ++i) values[i] = widen(from[base + i]);
      std::copy_n(from + base, width, to + base);
      p = 1;
    }
    for (; p < lines_.size; ++p) {
      const T* const row = from + base + p * step_;
      T* const out = to + base + p * step_;
      if (exclusive_) {
        for (std::int64_t i = 0; i < width; ++i) {
          out[i] = narrow<T>(values[i]);
          values[i] = combine<kind>(values[i], static_cast<W>(widen(row[i])));
        }
      } else {
        for (std::int64_t i = 0; i < width; ++i) {
          values[i] = combine<kind>(values[i], static_cast<W>(widen(row[i])));
          out[i] = narrow<T>(values[i]);
        }
      }
    }
  }

  const Lines lines_;
  const bool exclusive_, reverse_;
  std::int64_t step_ = 1;
};

template <class T>
KernelPtr make(const Lines& lines, const op::Cumulative& a) {
  switch (a.kind) {
    case Reduction::sum: return std::make_unique<CumulativeKernel<T, Reduction::sum>>(lines, a);
    case Reduction::prod: return std::make_unique<CumulativeKernel<T, Reduction::prod>>(lines, a);
    case Reduction::min:
      if (a.exclusive) return nullptr;
      return std::make_unique<CumulativeKernel<T, Reduction::min>>(lines, a);
    case Reduction::max:
      if (a.exclusive) return nullptr;
      return std::make_unique<CumulativeKernel<T, Reduction::max>>(lines, a);
    default: return nullptr;
  }
}

}  // namespace

KernelPtr cumulative_kernel(const Call& call) {
  const auto* a = call.op.as<op::Cumulative>();
  if (!a) return nullptr;
  const Lines lines(call.in(0), a->axis);
  switch (call.in(0).dtype) {
    case DType::f32: return make<float>(lines, *a);
    case DType::f64: return make<double>(lines, *a);
    case DType::f16: return make<Half>(lines, *a);
    case DType::bf16: return make<BFloat16>(lines, *a);
    case DType::i32: return make<std::int32_t>(lines, *a);
    case DType::i64: return make<std::int64_t>(lines, *a);
    case DType::u32: return make<std::uint32_t>(lines, *a);
    case DType::u64: return make<std::uint64_t>(lines, *a);
    case DType::i8: return make<std::int8_t>(lines, *a);
    case DType::u8: return make<std::uint8_t>(lines, *a);
    default: return nullptr;
  }
}

}  // namespace rlx::library
