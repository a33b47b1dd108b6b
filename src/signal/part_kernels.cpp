// Parts of complex numbers: real, imag, conj, make_complex as kernels.
#include "signal/part_kernels.hpp"

#include <algorithm>

#include "rlx/ops.hpp"

namespace rlx::signal {
namespace {

constexpr std::int64_t elements_of_item = 4096;

/// `Part::apply(buffers, begin, end)` works on elements [begin, end).
template <class Part>
class PartKernel final : public LineKernel {
 public:
  explicit PartKernel(std::int64_t elements) : elements_(elements) {}
  std::int64_t work_items() const override { return part_items(elements_); }
  std::int64_t scratch_bytes() const override { return 0; }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end, void*) const override {
    Part::apply(buffers, begin * elements_of_item, std::min(elements_, end * elements_of_item));
  }

 private:
  std::int64_t elements_;
};

/// Every second number from the first, or from the second on.
template <class T, int offset>
struct Half {
  static void apply(void* const* buffers, std::int64_t begin, std::int64_t end) {
    const T* const from = static_cast<const T*>(buffers[0]) + offset;
    T* const to = static_cast<T*>(buffers[1]);
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[2 * i];
  }
};
template <class T>
struct Conjugate {
  static void apply(void* const* buffers, std::int64_t begin, std::int64_t end) {
    const T* const from = static_cast<const T*>(buffers[0]);
    T* const to = static_cast<T*>(buffers[1]);
    for (std::int64_t i = begin; i < end; ++i) {
      to[2 * i] = from[2 * i];
      to[2 * i + 1] = -from[2 * i + 1];
    }
  }
};
template <class T>
struct Join {
  static void apply(void* const* buffers, std::int64_t begin, std::int64_t end) {
    const T *const re = static_cast<const T*>(buffers[0]), *const im =
                                                               static_cast<const T*>(buffers[1]);
    T* const to = static_cast<T*>(buffers[2]);
    for (std::int64_t i = begin; i < end; ++i) {
      to[2 * i] = re[i];
      to[2 * i + 1] = im[i];
    }
  }
};

template <class T>
std::unique_ptr<LineKernel> make(const Op& op, std::int64_t elements) {
  if (op.is<op::Real>()) return std::make_unique<PartKernel<Half<T, 0>>>(elements);
  if (op.is<op::Imag>()) return std::make_unique<PartKernel<Half<T, 1>>>(elements);
  if (op.is<op::Conj>()) return std::make_unique<PartKernel<Conjugate<T>>>(elements);
  if (op.is<op::MakeComplex>()) return std::make_unique<PartKernel<Join<T>>>(elements);
  return nullptr;
}

}  // namespace

bool is_part(const Op& op) {
  return op.is<op::Real>() || op.is<op::Imag>() || op.is<op::Conj>() || op.is<op::MakeComplex>();
}

std::int64_t part_items(std::int64_t elements) {
  return (elements + elements_of_item - 1) / elements_of_item;
}

std::unique_ptr<LineKernel> part_kernel(const Op& op, const Type& input) {
  const bool wide = input.dtype == f64 || input.dtype == c128;
  return wide ? make<double>(op, input.elements()) : make<float>(op, input.elements());
}

}  // namespace rlx::signal
