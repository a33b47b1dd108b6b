// What the library's files share: their makers, lines along an axis, indices.
#pragma once

#include <cstring>

#include "base/error.hpp"
#include "library/library.hpp"
#include "rlx/ops.hpp"

namespace rlx::library {

struct Call {
  const Op& op;
  std::span<const Type* const> inputs;
  std::span<const Type> results;
  const Type& in(std::size_t i) const { return *inputs[i]; }
};
using KernelPtr = std::unique_ptr<Kernel>;

// Each makes the kernel of its own ops; null for others, and for types that it does not take.
KernelPtr order_kernel(const Call& call);
KernelPtr scatter_elements_kernel(const Call& call);
KernelPtr scatter_blocks_kernel(const Call& call);
KernelPtr cumulative_kernel(const Call& call);
KernelPtr window_arg_max_kernel(const Call& call);
KernelPtr pad_kernel(const Call& call);
KernelPtr determinant_kernel(const Call& call);
KernelPtr router_kernel(const Call& call);

/// The lines of a tensor along one axis: element p of line (o, i) is (o * size + p) * inner + i.
struct Lines {
  std::int64_t outer = 1, size = 1, inner = 1;
  Lines(const Type& type, std::int64_t axis) {
    if (axis < 0) axis += type.rank();
    for (std::int64_t i = 0; i < type.rank(); ++i) {
      std::int64_t& part = i < axis ? outer : i == axis ? size : inner;
      part *= type.shape[static_cast<std::size_t>(i)].value();
    }
  }
  std::int64_t count() const { return outer * inner; }
  std::int64_t start(std::int64_t line) const { return line / inner * size * inner + line % inner; }
};

/// Indices of i64 or i32.
struct IndexReader {
  const void* data = nullptr;
  bool is_long = true;
  std::int64_t operator[](std::int64_t at) const {
    return is_long ? static_cast<const std::int64_t*>(data)[at]
                   : static_cast<const std::int32_t*>(data)[at];
  }
};
inline bool is_index(const Type& type) { return type.dtype == i64 || type.dtype == i32; }

/// The index counted from the end where negative; throws where it lies outside the axis of x.
inline std::int64_t checked_index(std::int64_t index, std::int64_t size, std::int64_t axis,
                                  const Type& x) {
  const std::int64_t inside = index < 0 ? index + size : index;
  if (inside < 0 || inside >= size) [[unlikely]]
    throw Exception(bad_input("Index ({}) is outside axis ({}) of {}.", index, axis, x.text()));
  return inside;
}

/// The strides of a dense tensor, in elements.
inline Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace rlx::library
