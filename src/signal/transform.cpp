// Fourier transforms of many lines as kernels that workers share.
#include "signal/transform.hpp"

#include <complex>

#include "signal/roots.hpp"

namespace rlx::signal {
namespace {

template <class T>
LaneKernel<T> kernel_for(codegen::Isa isa) {
  constexpr bool narrow = sizeof(T) == 4;
#if defined(__x86_64__)
  if (isa == codegen::Isa::avx512) {
    if constexpr (narrow) return avx512::float_kernel();
    else return avx512::double_kernel();
  }
  if (isa == codegen::Isa::avx2) {
    if constexpr (narrow) return avx2::float_kernel();
    else return avx2::double_kernel();
  }
#else
  (void)isa;
#endif
  if constexpr (narrow) return portable::float_kernel();
  else return portable::double_kernel();
}

}  // namespace

template <class T>
LaneJobKernel<T>::LaneJobKernel(std::int64_t points, bool inverse, codegen::Isa isa, int out_buffer,
                                int split)
    : tables_(points / split, inverse), kernel_(kernel_for<T>(isa)), out_buffer_(out_buffer) {
  job_.tables = tables_.view();
  if (split > 1) make_split(points, inverse, split);
}

template <class T>
int LaneJobKernel<T>::lanes_of(codegen::Isa isa) {
  return kernel_for<T>(isa).lanes;
}

// Lane p has the points whose place modulo `split` is q, p with its bits reversed: their transform
// counts exp(-2 pi i q k / n) in bin k, and butterflies of two join the lanes.
template <class T>
void LaneJobKernel<T>::make_split(std::int64_t points, bool inverse, int split) {
  job_.split = split;
  const auto add = [&](std::vector<T>& list, auto root_of_lane) {
    std::vector<std::complex<double>> roots;
    for (int p = 0; p < split; ++p) {
      const std::complex<double> root = root_of_lane(p);
      roots.push_back(inverse ? std::conj(root) : root);
    }
    for (const auto& root : roots) list.push_back(static_cast<T>(root.real()));
    for (const auto& root : roots) list.push_back(static_cast<T>(root.imag()));
  };
  for (std::int64_t k = 0; k < points / split; ++k) {
    add(split_twiddles_, [&](int p) {
      int q = 0;
      for (int bit = 1; bit < split; bit *= 2) q = 2 * q + (p / bit) % 2;
      return root_of_unity(q * k, points);
    });
  }
  for (int apart = 1; apart < split; apart *= 2) {
    add(split_roots_, [&](int p) {
      return p & apart ? root_of_unity(p % apart, 2 * apart) : std::complex<double>(1);
    });
  }
  // Kernels load whole vectors.
  split_twiddles_.resize(split_twiddles_.size() + static_cast<std::size_t>(kernel_.lanes));
  split_roots_.resize(split_roots_.size() + static_cast<std::size_t>(kernel_.lanes));
  job_.split_twiddles = split_twiddles_.data();
  job_.split_roots = split_roots_.data();
}

template <class T>
std::int64_t LaneJobKernel<T>::work_items() const {
  const std::int64_t each =
      job_.result == Result::mean ? job_.out.inner : kernel_.lanes / job_.split;
  return (job_.lines + each - 1) / each;
}

template <class T>
std::int64_t LaneJobKernel<T>::scratch_bytes() const {
  return scratch_buffers * job_.tables.slots * 2 * kernel_.lanes *
         static_cast<std::int64_t>(sizeof(T));
}

template <class T>
void LaneJobKernel<T>::run(void* const* buffers, std::int64_t begin, std::int64_t end,
                           void* scratch) const {
  run_job(job_, buffers, begin, end, scratch);
}

template <class T>
void LaneJobKernel<T>::run_job(const Job<T>& job, void* const* buffers, std::int64_t begin,
                               std::int64_t end, void* scratch) const {
  kernel_.run(job, static_cast<const T*>(buffers[0]), static_cast<T*>(buffers[out_buffer_]), begin,
              end, scratch);
}

template <class T>
void LaneJobKernel<T>::use_half_roots() {
  const std::int64_t n = job_.tables.n * job_.split;
  for (std::int64_t k = 0; k <= n; ++k) {
    const auto root = root_of_unity(k, 2 * n);
    half_roots_.push_back(static_cast<T>(root.real()));
    half_roots_.push_back(static_cast<T>(root.imag()));
  }
  job_.half_roots = half_roots_.data();
}

template class LaneJobKernel<float>;
template class LaneJobKernel<double>;

}  // namespace rlx::signal
