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

/// Fewer lanes where lines are few and long: what stands in lanes without a line only takes memory.
template <class T>
LaneKernel<T> kernel_for(codegen::Isa isa, std::int64_t lines, std::int64_t slots) {
  constexpr std::int64_t cached = 1 << 20;
  LaneKernel<T> kernel = kernel_for<T>(isa);
  for (const codegen::Isa narrower : {codegen::Isa::avx2, codegen::Isa::portable}) {
    const LaneKernel<T> other = kernel_for<T>(narrower);
    const std::int64_t bytes = slots * 2 * kernel.lanes * static_cast<std::int64_t>(sizeof(T));
    if (bytes > cached && lines <= other.lanes && other.lanes < kernel.lanes) kernel = other;
  }
  return kernel;
}

}  // namespace

template <class T>
LaneJobKernel<T>::LaneJobKernel(std::int64_t points, bool inverse, codegen::Isa isa, int out_buffer,
                                int split, std::int64_t lines)
    : tables_(points / split, inverse),
      kernel_(split > 1 ? kernel_for<T>(isa) : kernel_for<T>(isa, lines, tables_.view().slots)),
      out_buffer_(out_buffer) {
  job_.tables = tables_.view();
  if (split > 1) make_split(points, inverse, split);
}

template <class T>
int LaneJobKernel<T>::lanes_of(codegen::Isa isa) {
  return kernel_for<T>(isa).lanes;
}

// Lane q has the points whose place modulo `split` is q: their transform counts exp(-2 pi i q k /
// n) in bin k, and butterflies of `split` points join the lanes.
template <class T>
void LaneJobKernel<T>::make_split(std::int64_t points, bool inverse, int split) {
  job_.split = split;
  job_.split_turn = inverse ? -1 : 1;
  const std::int64_t own = points / split, lanes = kernel_.lanes;
  for (std::int64_t block = 0; block < own; block += lanes) {
    for (int q = 1; q < split; ++q) {
      for (const bool imaginary : {false, true}) {
        for (std::int64_t k = block; k < block + lanes; ++k) {
          const auto root = root_of_unity(inverse ? -q * k : q * k, points);
          split_twiddles_.push_back(static_cast<T>(imaginary ? root.imag() : root.real()));
        }
      }
    }
  }
  for (int k = 0; k < split; ++k) {
    const auto root = root_of_unity(-k, split);
    split_roots_.push_back(static_cast<T>(root.real()));
    split_roots_.push_back(static_cast<T>(root.imag()));
  }
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
  return (scratch_buffers * job_.tables.slots + job_.tables.inner_slots) * 2 * kernel_.lanes *
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
