// Scatters of blocks: rows of indices that name blocks of x, and slices written at a place that the
// data tells.
#include <algorithm>

#include "library/combine.hpp"
#include "library/kernels.hpp"

namespace rlx::library {
namespace {

/// Copies rows [begin, end) of x to the result, unless they lie at one place.
void copy_rows(void* const* buffers, std::size_t result, std::int64_t row_bytes, std::int64_t begin,
               std::int64_t end) {
  if (buffers[0] == buffers[result]) return;
  std::memcpy(static_cast<std::byte*>(buffers[result]) + begin * row_bytes,
              static_cast<const std::byte*>(buffers[0]) + begin * row_bytes,
              static_cast<std::size_t>((end - begin) * row_bytes));
}

/// Workers share the rows of x, as with single elements.
class ScatterNdKernel final : public Kernel {
 public:
  ScatterNdKernel(const Call& call, ScatterMode mode)
      : x_(call.in(0)),
        dims_(x_.dims()),
        strides_(dense_strides(dims_)),
        depth_(call.in(1).dims().back()),
        is_long_(call.in(1).dtype == i64),
        bytes_(static_cast<std::int64_t>(size_of(x_.dtype))),
        combine_(combine_function(mode, x_.dtype)) {
    block_ = depth_ == 0 ? x_.elements() : strides_[static_cast<std::size_t>(depth_ - 1)];
    updates_ = call.in(2).elements() / block_;
    row_bytes_ = x_.bytes() / rows();
  }

  bool is_supported() const { return combine_ != nullptr; }
  codegen::StepWork work() const override {
    const auto updates = static_cast<double>(updates_);
    return {.items = rows(),
            .cycles = static_cast<double>(x_.bytes()) / 32 +
                      updates * (6 + static_cast<double>(block_ * bytes_) / 16),
            .cycles_each = updates * 3,
            .in_place = 0};
  }
  std::int64_t scratch_bytes() const override { return 0; }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end, void*) const override {
    copy_rows(buffers, 3, row_bytes_, begin, end);
    const IndexReader indices{buffers[1], is_long_};
    const auto* update = static_cast<const std::byte*>(buffers[2]);
    auto* const out = static_cast<std::byte*>(buffers[3]);
    for (std::int64_t u = 0; u < updates_; ++u, update += block_ * bytes_) {
      std::int64_t offset = 0;
      bool own = true;
      for (std::int64_t k = 0; k < depth_; ++k) {
        const auto axis = static_cast<std::size_t>(k);
        const std::int64_t index = checked_index(indices[u * depth_ + k], dims_[axis], k, x_);
        own = own && (k > 0 || (index >= begin && index < end));
        offset += index * strides_[axis];
      }
      if (own) combine_(out + offset * bytes_, update, block_);
    }
  }

 private:
  std::int64_t rows() const { return depth_ == 0 ? 1 : dims_[0]; }

  const Type x_;
  const Dims dims_, strides_;
  const std::int64_t depth_;
  const bool is_long_;
  const std::int64_t bytes_;
  const CombineFunction combine_;
  std::int64_t block_ = 1, updates_ = 0, row_bytes_ = 1;
};

/// Starts are clamped so that the slice lies inside.
class UpdateSliceKernel final : public Kernel {
 public:
  explicit UpdateSliceKernel(const Call& call)
      : dims_(call.in(0).dims()),
        strides_(dense_strides(dims_)),
        update_dims_(call.in(1).dims()),
        bytes_(static_cast<std::int64_t>(size_of(call.in(0).dtype))),
        x_bytes_(call.in(0).bytes()),
        update_bytes_(call.in(1).bytes()) {
    for (std::size_t i = 2; i < call.inputs.size(); ++i)
      is_long_.push_back(call.in(i).dtype == i64);
    // The trailing axes that the update covers altogether are one run.
    run_axis_ = dims_.size() - 1;
    while (run_axis_ > 0 && update_dims_[run_axis_] == dims_[run_axis_]) --run_axis_;
    run_ = update_dims_[run_axis_] * strides_[run_axis_];
  }

  codegen::StepWork work() const override {
    return {.items = dims_[0],
            .cycles = static_cast<double>(x_bytes_ + update_bytes_) / 32 + 20,
            .in_place = 0};
  }
  std::int64_t scratch_bytes() const override {
    return static_cast<std::int64_t>(2 * dims_.size() * sizeof(std::int64_t));
  }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    const std::size_t result = 2 + is_long_.size();
    copy_rows(buffers, result, strides_[0] * bytes_, begin, end);
    if (update_bytes_ == 0) return;
    auto* const at = static_cast<std::int64_t*>(scratch);
    std::int64_t* const starts = at + dims_.size();
    for (std::size_t i = 0; i < dims_.size(); ++i) {
      const std::int64_t wanted = IndexReader{buffers[2 + i], is_long_[i]}[0];
      starts[i] = std::clamp<std::int64_t>(wanted, 0, dims_[i] - update_dims_[i]);
      at[i] = 0;
    }
    const auto* from = static_cast<const std::byte*>(buffers[1]);
    auto* const out = static_cast<std::byte*>(buffers[result]);
    const auto runs = update_bytes_ / (run_ * bytes_);
    for (std::int64_t r = 0; r < runs; ++r, from += run_ * bytes_) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i <= run_axis_; ++i) offset += (starts[i] + at[i]) * strides_[i];
      if (run_axis_ == 0) {
        // Rows are the run itself: only the own ones.
        const std::int64_t first = std::max(begin, starts[0]),
                           last = std::min(end, starts[0] + update_dims_[0]);
        if (first >= last) return;
        const std::int64_t row = strides_[0] * bytes_;
        std::memcpy(out + first * row, from + (first - starts[0]) * row,
                    static_cast<std::size_t>((last - first) * row));
        return;
      }
      if (starts[0] + at[0] >= begin && starts[0] + at[0] < end)
        std::memcpy(out + offset * bytes_, from, static_cast<std::size_t>(run_ * bytes_));
      for (std::size_t i = run_axis_; i-- > 0;) {
        if (++at[i] < update_dims_[i]) break;
        at[i] = 0;
      }
    }
  }

 private:
  const Dims dims_, strides_, update_dims_;
  const std::int64_t bytes_, x_bytes_, update_bytes_;
  std::vector<bool> is_long_;
  std::size_t run_axis_ = 0;
  std::int64_t run_ = 1;
};

}  // namespace

KernelPtr scatter_blocks_kernel(const Call& call) {
  if (const auto* a = call.op.as<op::ScatterNd>()) {
    if (!is_index(call.in(1))) return nullptr;
    auto kernel = std::make_unique<ScatterNdKernel>(call, a->mode);
    return kernel->is_supported() ? std::move(kernel) : nullptr;
  }
  if (!call.op.is<op::DynamicUpdateSlice>() || call.in(0).rank() == 0) return nullptr;
  for (std::size_t i = 2; i < call.inputs.size(); ++i) {
    if (!call.inputs[i] || !is_index(call.in(i))) return nullptr;
  }
  return std::make_unique<UpdateSliceKernel>(call);
}

}  // namespace rlx::library
