// Padding with elements of the operand itself, or with a value that the run tells.
#include <algorithm>

#include "library/kernels.hpp"

namespace rlx::library {
namespace {

/// The element of an axis of `size` that stands at `position`, which may lie outside; -1: the fill
/// value.
std::int64_t source_position(PadMode mode, std::int64_t position, std::int64_t size) {
  if (position >= 0 && position < size) return position;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::edge) return position < 0 ? 0 : size - 1;
  const std::int64_t period =
      mode == PadMode::wrap ? size : std::max<std::int64_t>(1, 2 * (size - 1));
  const std::int64_t inside = (position % period + period) % period;
  return mode == PadMode::reflect && inside >= size ? period - inside : inside;
}

/// Items are lines along the last padded axis; what lies behind it moves in blocks.
class PadKernel final : public Kernel {
 public:
  PadKernel(const Call& call, const op::Pad& a)
      : mode_(a.mode),
        in_(call.in(0).dims()),
        out_(call.results[0].dims()),
        strides_(dense_strides(in_)),
        low_(a.low.begin(), a.low.end()),
        size_(size_of(call.in(0).dtype)),
        has_fill_(call.inputs.size() > 1 && call.inputs[1]),
        result_(call.inputs.size()) {
    axis_ = in_.size() - 1;
    while (axis_ > 0 && low_[axis_] == 0 && in_[axis_] == out_[axis_]) --axis_;
    block_ = static_cast<std::size_t>(strides_[axis_]) * size_;
    for (std::size_t i = 0; i < axis_; ++i) rows_ *= out_[i];
    begin_ = std::clamp<std::int64_t>(low_[axis_], 0, out_[axis_]);
    end_ = std::clamp<std::int64_t>(low_[axis_] + in_[axis_], begin_, out_[axis_]);
  }

  codegen::StepWork work() const override {
    const double line = static_cast<double>(out_[axis_]) * static_cast<double>(block_);
    const auto edges = static_cast<double>(out_[axis_] - (end_ - begin_));
    return {.items = rows_, .cycles = static_cast<double>(rows_) * (20 + line / 24 + edges * 4)};
  }
  std::int64_t scratch_bytes() const override { return 0; }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end, void*) const override {
    constexpr std::byte zero[16] = {};
    const auto* const x = static_cast<const std::byte*>(buffers[0]);
    const std::byte* const fill = has_fill_ ? static_cast<const std::byte*>(buffers[1]) : zero;
    auto* const out = static_cast<std::byte*>(buffers[result_]);
    const std::size_t line = static_cast<std::size_t>(out_[axis_]) * block_;
    for (std::int64_t row = begin; row < end; ++row) {
      std::byte* const to = out + static_cast<std::size_t>(row) * line;
      const std::int64_t offset = offset_of(row);
      if (offset < 0) {
        fill_elements(to, fill, line);
        continue;
      }
      const std::byte* const from = x + static_cast<std::size_t>(offset) * size_;
      place(to, from, fill, 0, begin_);
      if (begin_ < end_) {
        std::memcpy(to + static_cast<std::size_t>(begin_) * block_,
                    from + static_cast<std::size_t>(begin_ - low_[axis_]) * block_,
                    static_cast<std::size_t>(end_ - begin_) * block_);
      }
      place(to, from, fill, end_, out_[axis_]);
    }
  }

 private:
  /// Of the line of x that the row shows; -1: it lies in the padding.
  std::int64_t offset_of(std::int64_t row) const {
    std::int64_t offset = 0;
    for (std::size_t i = axis_; i-- > 0; row /= out_[i]) {
      const std::int64_t source = source_position(mode_, row % out_[i] - low_[i], in_[i]);
      if (source < 0) return -1;
      offset += source * strides_[i];
    }
    return offset;
  }

  void place(std::byte* to, const std::byte* from, const std::byte* fill, std::int64_t begin,
             std::int64_t end) const {
    for (std::int64_t p = begin; p < end; ++p) {
      std::byte* const target = to + static_cast<std::size_t>(p) * block_;
      const std::int64_t source = source_position(mode_, p - low_[axis_], in_[axis_]);
      if (source < 0) fill_elements(target, fill, block_);
      else if (block_ == 4) std::memcpy(target, from + source * 4, 4);
      else std::memcpy(target, from + static_cast<std::size_t>(source) * block_, block_);
    }
  }

  void fill_elements(std::byte* to, const std::byte* fill, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes; at += size_) std::memcpy(to + at, fill, size_);
  }

  const PadMode mode_;
  const Dims in_, out_, strides_, low_;
  const std::size_t size_;
  const bool has_fill_;
  const std::size_t result_;
  std::size_t axis_ = 0, block_ = 1;
  std::int64_t rows_ = 1, begin_ = 0, end_ = 0;
};

}  // namespace

KernelPtr pad_kernel(const Call& call) {
  const auto* a = call.op.as<op::Pad>();
  if (!a || call.in(0).rank() == 0 || call.in(0).elements() == 0) return nullptr;
  return std::make_unique<PadKernel>(call, *a);
}

}  // namespace rlx::library
