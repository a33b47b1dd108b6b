// Positions of the maxima of sliding windows. The first maximum of a window in row-major order
// wins; a NaN is a maximum.
#include <algorithm>
#include <array>

#include "library/kernels.hpp"
#include "library/keys.hpp"

namespace rlx::library {
namespace {

struct Axis {
  std::int64_t in = 1, out = 1, window = 1, stride = 1, dilation = 1, pad = 0;
  std::int64_t position(std::int64_t w, std::int64_t k) const {
    return w * stride + k * dilation - pad;
  }
  bool holds(std::int64_t w, std::int64_t k) const {
    const std::int64_t at = position(w, k);
    return at >= 0 && at < in;
  }
  /// The windows [first, last) whose element k lies inside the axis.
  std::int64_t first(std::int64_t k) const {
    const std::int64_t outside = pad - k * dilation;
    return outside <= 0 ? 0 : std::min((outside + stride - 1) / stride, out);
  }
  std::int64_t last(std::int64_t k) const {
    const std::int64_t left = in + pad - k * dilation;
    return left <= 0 ? 0 : std::min((left + stride - 1) / stride, out);
  }
};
constexpr std::size_t most_axes = 3;

template <class T>
class WindowArgMaxKernel final : public Kernel {
 public:
  /// `axes`: those that a pool lacks stand in front, with one element.
  WindowArgMaxKernel(const std::array<Axis, most_axes>& axes, std::int64_t planes,
                     bool column_major)
      : axes_(axes), planes_(planes), plane_(axes[0].in * axes[1].in * axes[2].in) {
    for (std::size_t i = 0; i < most_axes; ++i) {
      scale_[i] = 1;
      for (std::size_t j = column_major ? 0 : i + 1; j < (column_major ? i : most_axes); ++j)
        scale_[i] *= axes[j].in;
    }
  }

  codegen::StepWork work() const override {
    const Axis* a = axes_.data();
    const double windows = static_cast<double>(work_items() * a[2].out);
    return {.items = planes_ * a[0].out * a[1].out,
            .cycles =
                windows * (8 + 2.5 * static_cast<double>(a[0].window * a[1].window * a[2].window))};
  }
  std::int64_t work_items() const override { return planes_ * axes_[0].out * axes_[1].out; }
  std::int64_t scratch_bytes() const override {
    return axes_[2].out * static_cast<std::int64_t>(sizeof(Key<T>));
  }

  /// An item is a row of windows, which go through their elements together.
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    const auto& [a, b, c] = axes_;
    auto* const best = static_cast<Key<T>*>(scratch);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t plane = row / (a.out * b.out), i = row / b.out % a.out, j = row % b.out;
      const T* const from = static_cast<const T*>(buffers[0]) + plane * plane_;
      auto* const at = static_cast<std::int64_t*>(buffers[1]) + row * c.out;
      // A window that lies in the padding altogether has no maximum.
      std::fill_n(at, c.out, -1);
      std::fill_n(best, c.out, Key<T>{0});
      for (std::int64_t x = 0; x < a.window; ++x) {
        for (std::int64_t y = 0; a.holds(i, x) && y < b.window; ++y) {
          if (!b.holds(j, y)) continue;
          const std::int64_t px = a.position(i, x), py = b.position(j, y);
          const std::int64_t place = plane * plane_ + px * scale_[0] + py * scale_[1];
          const T* const line = from + (px * b.in + py) * c.in;
          for (std::int64_t k = 0; k < c.window; ++k) take(line, place, k, best, at);
        }
      }
    }
  }

 private:
  /// Masks, not conditions: the compiler would make jumps of them, which random numbers mislead.
  void take(const T* line, std::int64_t place, std::int64_t k, Key<T>* best,
            std::int64_t* at) const {
    const Axis& c = axes_[2];
    const std::int64_t last = c.last(k), shift = c.position(0, k), scale = scale_[2];
    for (std::int64_t w = c.first(k); w < last; ++w) {
      const std::int64_t p = w * c.stride + shift;
      const Key<T> key = ascending_key(line[p]), old = best[w];
      const std::int64_t was = at[w], now = place + p * scale;
      const std::int64_t wins = -static_cast<std::int64_t>((was < 0) | (key > old));
      best[w] = old ^ ((key ^ old) & static_cast<Key<T>>(wins));
      at[w] = was ^ ((now ^ was) & wins);
    }
  }

  const std::array<Axis, most_axes> axes_;
  const std::int64_t planes_, plane_;
  std::array<std::int64_t, most_axes> scale_{};
};

std::int64_t entry(const Axes& list, std::size_t i, std::int64_t otherwise) {
  return list.empty() ? otherwise : list[i];
}

}  // namespace

KernelPtr window_arg_max_kernel(const Call& call) {
  const auto* a = call.op.as<op::WindowArgMax>();
  if (!a || a->window.size() > most_axes) return nullptr;
  const Dims in = call.in(0).dims(), out = call.results[0].dims();
  std::array<Axis, most_axes> axes;
  const std::size_t missing = most_axes - a->window.size();
  for (std::size_t i = 0; i < a->window.size(); ++i) {
    axes[missing + i] = {.in = in[2 + i],
                         .out = out[2 + i],
                         .window = a->window[i],
                         .stride = entry(a->strides, i, 1),
                         .dilation = entry(a->dilations, i, 1),
                         .pad = entry(a->pad_low, i, 0)};
  }
  return with_element_type(call.in(0).dtype, [&](auto element) -> KernelPtr {
    using T = decltype(element);
    if constexpr (is_complex_type<T>) return nullptr;
    else return std::make_unique<WindowArgMaxKernel<T>>(axes, in[0] * in[1], a->column_major);
  });
}

}  // namespace rlx::library
