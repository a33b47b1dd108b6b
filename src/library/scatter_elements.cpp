// Scatters of single elements: out[indices[i, j], j] = updates[i, j] for axis 0, and so on.
#include <algorithm>

#include "library/combine.hpp"
#include "library/kernels.hpp"

namespace rlx::library {
namespace {

/// Workers share the rows of x: each copies its own rows, unless the result lies over x, and writes
/// those updates that fall into them.
class ScatterElementsKernel final : public Kernel {
 public:
  ScatterElementsKernel(const Call& call, const op::ScatterElements& a)
      : x_(call.in(0)),
        axis_(static_cast<std::size_t>(a.axis < 0 ? a.axis + x_.rank() : a.axis)),
        dims_(x_.dims()),
        strides_(dense_strides(dims_)),
        index_dims_(call.in(1).dims()),
        is_long_(call.in(1).dtype == i64),
        bytes_(static_cast<std::int64_t>(size_of(x_.dtype))),
        updates_(call.in(1).elements()),
        mode_(a.mode),
        combine_(combine_function(a.mode, x_.dtype)) {
    // Rows are those of the first axis that can be shared out.
    while (first_ < axis_ && dims_[first_] == 1) ++first_;
    // Several workers ask of every update whose it is, which half of the time is not foreseen: that
    // pays where there is far more to copy.
    constexpr std::int64_t copied_while_asking = 32 * 12;  // bytes
    shares_ = first_ != axis_ || x_.bytes() > updates_ * copied_while_asking;
  }

  bool is_supported() const { return combine_ != nullptr; }
  codegen::StepWork work() const override {
    const auto updates = static_cast<double>(updates_);
    const bool all_see_all = first_ == axis_;
    return {.items = shares_ ? dims_[first_] : 1,
            .cycles = static_cast<double>(x_.bytes()) / 32 + updates * 4,
            .cycles_each = all_see_all ? updates * 2 : 0,
            .in_place = 0};
  }
  std::int64_t scratch_bytes() const override {
    return static_cast<std::int64_t>(dims_.size() * sizeof(std::int64_t));
  }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    if (!shares_) end = dims_[first_];
    auto* const out = static_cast<std::byte*>(buffers[3]);
    const std::int64_t row = strides_[first_] * bytes_;
    if (buffers[0] != out) {
      std::memcpy(out + begin * row, static_cast<const std::byte*>(buffers[0]) + begin * row,
                  static_cast<std::size_t>((end - begin) * row));
    }
    if (updates_ == 0) return;
    const auto write_with = [&](const auto& put) { write(buffers, begin, end, scratch, put); };
    if (mode_ == ScatterMode::assign && bytes_ == 4) return write_with(copy<4>);
    if (mode_ == ScatterMode::assign && bytes_ == 8) return write_with(copy<8>);
    if (mode_ == ScatterMode::add && x_.dtype == f32) return write_with(add_float);
    write_with([this](std::byte* to, const std::byte* from) { combine_(to, from, 1); });
  }

 private:
  template <std::size_t size>
  static void copy(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, size);
  }
  static void add_float(std::byte* to, const std::byte* from) {
    *reinterpret_cast<float*>(to) += *reinterpret_cast<const float*>(from);
  }

  /// `put` takes where an element lies and its update.
  template <class Put>
  void write(void* const* buffers, std::int64_t begin, std::int64_t end, void* scratch,
             const Put& put) const {
    const IndexReader indices{buffers[1], is_long_};
    const auto* const updates = static_cast<const std::byte*>(buffers[2]);
    auto* const out = static_cast<std::byte*>(buffers[3]);
    auto* const at = static_cast<std::int64_t*>(scratch);
    const std::size_t last = dims_.size() - 1;
    const std::int64_t line = index_dims_[last], along = strides_[axis_];
    const std::int64_t low = first_ == axis_ ? begin : 0,
                       high = first_ == axis_ ? end : dims_[axis_];
    const std::int64_t step = axis_ == last ? 0 : 1;
    std::fill_n(at, dims_.size(), 0);
    for (std::int64_t from = 0; from < updates_; from += line) {
      std::int64_t base = 0;
      for (std::size_t i = 0; i < last; ++i) base += i == axis_ ? 0 : at[i] * strides_[i];
      if (first_ == axis_ || (at[first_] >= begin && at[first_] < end)) {
        for (std::int64_t p = 0; p < line; ++p) {
          const std::int64_t index =
              checked_index(indices[from + p], dims_[axis_], static_cast<std::int64_t>(axis_), x_);
          if (index >= low && index < high)
            put(out + (base + p * step + index * along) * bytes_, updates + (from + p) * bytes_);
        }
      }
      for (std::size_t i = last; i-- > 0;) {
        if (++at[i] < index_dims_[i]) break;
        at[i] = 0;
      }
    }
  }

  const Type x_;
  const std::size_t axis_;
  const Dims dims_, strides_, index_dims_;
  const bool is_long_;
  const std::int64_t bytes_, updates_;
  const ScatterMode mode_;
  const CombineFunction combine_;
  std::size_t first_ = 0;
  bool shares_ = true;  ///< workers share out the rows; else one takes all
};

}  // namespace

KernelPtr scatter_elements_kernel(const Call& call) {
  const auto* a = call.op.as<op::ScatterElements>();
  if (!a || !is_index(call.in(1)) || call.in(0).rank() == 0) return nullptr;
  auto kernel = std::make_unique<ScatterElementsKernel>(call, *a);
  return kernel->is_supported() ? std::move(kernel) : nullptr;
}

}  // namespace rlx::library
