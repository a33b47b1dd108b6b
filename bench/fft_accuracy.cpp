// Errors of Fourier transforms beside FFTW's of the same precision, against FFTW's in extended
// precision: all lengths to 4096 and 50 random ones to 2^20, complex and real, f32 and f64.
//   fft_accuracy [step]    only every step-th length, for a quick look
// Exit code 1 where a root mean square error is more than twice FFTW's.
#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "codegen/host_target.hpp"
#include "rlx/ops.hpp"
#include "signal/kernels.hpp"

namespace {

using namespace rlx;
using Truth = std::vector<std::complex<long double>>;

/// Relative to the root mean square of the truth.
template <class T>
double error(const T* got, const Truth& truth) {
  long double difference = 0, size = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    difference += std::norm(std::complex<long double>(got[2 * i], got[2 * i + 1]) - truth[i]);
    size += std::norm(truth[i]);
  }
  return static_cast<double>(std::sqrt(difference / size));
}

template <class T>
double own_error(bool real, int n, const std::vector<T>& x, const Truth& truth, codegen::Isa isa) {
  constexpr bool wide = sizeof(T) == 8;
  const DType numbers = wide ? f64 : f32, bins = wide ? c128 : c64;
  const Type input{real ? numbers : bins, {1, n}}, result{bins, {1, real ? n / 2 + 1 : n}};
  const Op op = real ? Op(op::Rfft{}) : Op(op::Fft{});
  const auto kernel = signal::line_kernel(op, std::span(&input, 1), result, isa);
  Tensor y(result.dtype, result.dims()), scratch(u8, {kernel->scratch_bytes() + 64});
  void* const buffers[] = {const_cast<T*>(x.data()), y.mutable_data()};
  kernel->run(buffers, 0, kernel->work_items(), scratch.mutable_data());
  return error(reinterpret_cast<const T*>(y.data()), truth);
}

/// FFTW's names differ by a letter.
#define RLX_FFTW(T, prefix)                                                                 \
  void transform(bool real, int n, std::vector<T>& x, std::vector<T>& y) {                  \
    auto* bins = reinterpret_cast<prefix##_complex*>(y.data());                             \
    const auto plan =                                                                       \
        real ? prefix##_plan_dft_r2c_1d(n, x.data(), bins, FFTW_ESTIMATE)                   \
             : prefix##_plan_dft_1d(n, reinterpret_cast<prefix##_complex*>(x.data()), bins, \
                                    FFTW_FORWARD, FFTW_ESTIMATE | FFTW_PRESERVE_INPUT);     \
    prefix##_execute(plan);                                                                 \
    prefix##_destroy_plan(plan);                                                            \
  }
RLX_FFTW(float, fftwf)
RLX_FFTW(double, fftw)
RLX_FFTW(long double, fftwl)

struct Worst {
  double ratio = 0;
  int length = 0;
};

/// The same numbers, of f32, in each precision.
template <class T>
void compare(bool real, int n, const std::vector<float>& values, const Truth& truth,
             codegen::Isa isa, Worst& worst) {
  std::vector<T> x(values.begin(), values.end()), y(2 * truth.size());
  const std::vector<T> kept = x;
  transform(real, n, x, y);
  const double theirs = error(y.data(), truth), own = own_error(real, n, kept, truth, isa);
  // Lengths so short that FFTW is exact are left out.
  const double ratio = theirs > 0 ? own / theirs : 0;
  if (ratio > worst.ratio) worst = {ratio, n};
}

}  // namespace

int main(int count, char** arguments) {
  const auto target = codegen::host_target();
  if (!target.ok()) return 2;
  const int step = count > 1 ? std::max(1, std::atoi(arguments[1])) : 1;
  std::vector<int> lengths;
  for (int n = 1; n <= 4096; n += step) lengths.push_back(n);
  std::mt19937_64 generator(7);
  for (int i = 0; i < 50; i += step)
    lengths.push_back(4097 + static_cast<int>(generator() % ((1 << 20) - 4096)));
  std::normal_distribution<float> normal;
  bool fits = true;
  for (const bool real : {false, true}) {
    Worst narrow, wide;
    for (const int n : lengths) {
      std::vector<float> values(static_cast<std::size_t>(real ? n : 2 * n));
      for (float& value : values) value = normal(generator);
      std::vector<long double> x(values.begin(), values.end()),
          y(2 * static_cast<std::size_t>(real ? n / 2 + 1 : n));
      transform(real, n, x, y);
      Truth truth;
      for (std::size_t i = 0; i < y.size(); i += 2) truth.emplace_back(y[i], y[i + 1]);
      compare<float>(real, n, values, truth, target->isa, narrow);
      compare<double>(real, n, values, truth, target->isa, wide);
    }
    std::printf("%-7s %zu lengths: most of FFTW's error: f32 %.2f (n = %d), f64 %.2f (n = %d)\n",
                real ? "real" : "complex", lengths.size(), narrow.ratio, narrow.length, wide.ratio,
                wide.length);
    fits = fits && narrow.ratio <= 2 && wide.ratio <= 2;
  }
  return fits ? 0 : 1;
}
