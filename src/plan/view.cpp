// Strided views.
#include "plan/view.hpp"

#include <numeric>

#include "base/error.hpp"
#include "rlx/ops.hpp"

namespace rlx::plan {
namespace {

View transposed(const View& x, const Axes& perm) {
  View result{x.base, x.offset, {}, {}};
  for (const std::int64_t axis : perm) {
    result.dims.push_back(x.dims[static_cast<std::size_t>(axis)]);
    result.strides.push_back(x.strides[static_cast<std::size_t>(axis)]);
  }
  return result;
}

View sliced(const View& x, const op::Slice& slice, const Dims& dims) {
  View result{x.base, x.offset, dims, x.strides};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    // Only a negative step starts at the marker of the end: at the last element.
    const bool from_end = slice.starts[i] == op::slice_end;
    result.offset += (from_end ? x.dims[i] - 1 : slice.starts[i]) * x.strides[i];
    result.strides[i] *= slice.steps.empty() ? 1 : slice.steps[i];
  }
  return result;
}

View reversed(const View& x, const Axes& named) {
  View result = x;
  Axes axes = named;
  if (axes.empty()) {  // all
    axes.resize(x.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (std::int64_t axis : axes) {
    const auto i =
        static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(x.dims.size()) : axis);
    result.offset += (x.dims[i] - 1) * x.strides[i];
    result.strides[i] = -x.strides[i];
  }
  return result;
}

}  // namespace

View View::dense(ValueId base, Dims dims) {
  View view{base, 0, std::move(dims), {}};
  view.strides.resize(view.dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = view.dims.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= view.dims[i];
  }
  return view;
}

bool View::is_dense() const {
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != stride) return false;
    stride *= dims[i];
  }
  return true;
}

bool View::is_turned() const {
  bool is_last = true, is_turned = false;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (strides[i] == 0 || (is_last && std::abs(strides[i]) == 1)) return false;
    is_turned |= std::abs(strides[i]) == 1;
    is_last = false;
  }
  return is_turned;
}

bool show_other_blocks(const View& a, const View& b, std::int64_t block) {
  if (a.strides != b.strides) return false;
  const std::int64_t apart = std::abs(a.offset - b.offset);
  // The axis along which one lies behind the other: the one of the longest steps that fit.
  std::int64_t step = 0, extent = 0;
  for (std::size_t axis = 0; axis < a.dims.size(); ++axis) {
    const std::int64_t stride = std::abs(a.strides[axis]);
    if (stride > apart || stride <= step) continue;
    step = stride, extent = std::min(a.dims[axis], b.dims[axis]);
  }
  return step > 0 && step * extent >= block && 2 * (apart / step) > extent;
}

bool is_view_op(const Op& op) {
  return op.is<op::Reshape>() || op.is<op::Transpose>() || op.is<op::Broadcast>() ||
         op.is<op::Slice>() || op.is<op::Reverse>();
}

std::optional<View> view_through(const Node& node, const View& input) {
  const Dims dims = node.results[0].dims();
  if (node.op.is<op::Cast>()) return input;
  if (const auto* op = node.op.as<op::Transpose>()) return transposed(input, op->perm);
  if (const auto* op = node.op.as<op::Slice>()) return sliced(input, *op, dims);
  if (const auto* op = node.op.as<op::Reverse>()) return reversed(input, op->axes);
  if (node.op.is<op::Broadcast>())
    return View{input.base, input.offset, dims, broadcast_strides(input, dims)};
  RLX_CHECK(node.op.is<op::Reshape>());
  return reshaped(input, dims);
}

// Groups of axes with equal products are matched from the left; within a group the old axes must be
// one run of memory.
std::optional<View> reshaped(const View& x, const Dims& dims) {
  View result{x.base, x.offset, dims, std::vector<std::int64_t>(dims.size(), 0)};
  if (x.elements() == 0) return View{x.base, x.offset, dims, View::dense(x.base, dims).strides};
  std::vector<std::int64_t> old_dims, old_strides;
  for (std::size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] == 1) continue;
    old_dims.push_back(x.dims[i]);
    old_strides.push_back(x.strides[i]);
  }
  std::size_t old_begin = 0, new_begin = 0;
  while (old_begin < old_dims.size()) {
    std::size_t old_end = old_begin + 1, new_end = new_begin;
    std::int64_t old_product = old_dims[old_begin], new_product = 1;
    while (new_end < dims.size() && new_product < old_product) new_product *= dims[new_end++];
    while (new_product != old_product) {
      if (new_product < old_product) {
        new_product *= dims[new_end++];
      } else {
        old_product *= old_dims[old_end++];
      }
    }
    for (std::size_t i = old_begin; i + 1 < old_end; ++i) {
      if (old_strides[i] != old_strides[i + 1] * old_dims[i + 1]) return std::nullopt;
    }
    std::int64_t stride = old_strides[old_end - 1];
    for (std::size_t i = new_end; i-- > new_begin;) {
      result.strides[i] = stride;
      stride *= dims[i];
    }
    old_begin = old_end;
    new_begin = new_end;
  }
  return result;
}

std::vector<std::int64_t> broadcast_strides(const View& view, const Dims& dims) {
  RLX_CHECK(view.dims.size() <= dims.size());
  std::vector<std::int64_t> strides(dims.size(), 0);
  const std::size_t shift = dims.size() - view.dims.size();
  for (std::size_t i = 0; i < view.dims.size(); ++i) {
    RLX_CHECK(view.dims[i] == 1 || view.dims[i] == dims[i + shift], "dim {} against {}",
              view.dims[i], dims[i + shift]);
    if (view.dims[i] != 1) strides[i + shift] = view.strides[i];
  }
  return strides;
}

}  // namespace rlx::plan
