// Determinants of square matrices, by elimination with partial pivoting.
#include <algorithm>
#include <cmath>

#include "base/element.hpp"
#include "library/kernels.hpp"

namespace rlx::library {
namespace {

template <class T>
class DeterminantKernel final : public Kernel {
 public:
  DeterminantKernel(std::int64_t count, std::int64_t n) : count_(count), n_(n) {}

  codegen::StepWork work() const override {
    const auto n = static_cast<double>(n_);
    return {.items = count_, .cycles = static_cast<double>(count_) * (20 * n + n * n * n / 4)};
  }
  std::int64_t scratch_bytes() const override {
    return n_ * n_ * static_cast<std::int64_t>(sizeof(double));
  }
  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    auto* const matrix = static_cast<double*>(scratch);
    for (std::int64_t item = begin; item < end; ++item) {
      const T* const from = static_cast<const T*>(buffers[0]) + item * n_ * n_;
      for (std::int64_t i = 0; i < n_ * n_; ++i) matrix[i] = widen(from[i]);
      static_cast<T*>(buffers[1])[item] = narrow<T>(eliminate(matrix));
    }
  }

 private:
  /// The matrix is used up.
  double eliminate(double* matrix) const {
    double result = 1;
    for (std::int64_t k = 0; k < n_; ++k) {
      double* const row = matrix + k * n_;
      std::int64_t pivot = k;
      for (std::int64_t i = k + 1; i < n_; ++i) {
        if (std::abs(matrix[i * n_ + k]) > std::abs(matrix[pivot * n_ + k])) pivot = i;
      }
      if (matrix[pivot * n_ + k] == 0) return 0;
      if (pivot != k) {
        std::swap_ranges(row, row + n_, matrix + pivot * n_);
        result = -result;
      }
      result *= row[k];
      for (std::int64_t i = k + 1; i < n_; ++i) {
        double* const other = matrix + i * n_;
        const double factor = other[k] / row[k];
        for (std::int64_t j = k + 1; j < n_; ++j) other[j] -= factor * row[j];
      }
    }
    return result;
  }

  const std::int64_t count_, n_;
};

}  // namespace

KernelPtr determinant_kernel(const Call& call) {
  if (!call.op.is<op::Determinant>()) return nullptr;
  const std::int64_t n = call.in(0).dims().back(), count = call.results[0].elements();
  return with_element_type(call.in(0).dtype, [&](auto element) -> KernelPtr {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T> || is_complex_type<T>) return nullptr;
    else return std::make_unique<DeterminantKernel<T>>(count, n);
  });
}

}  // namespace rlx::library
