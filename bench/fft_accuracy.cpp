// Errors of Fourier transforms beside FFTW's of the same precision, against FFTW's in extended
// precision: all lengths to 4096 and 50 random ones to 2^20; complex and real, forward and inverse,
// f32 and f64; one line (which lanes share) and a line of several.
//   fft_accuracy [step [first]]    only every step-th length from `first` on, for a quick look
// Exit code 1 where a root mean square error is more than twice FFTW's.
#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "codegen/host_target.hpp"
#include "rlx/ops.hpp"
#include "signal/kernels.hpp"

namespace {

using namespace rlx;

/// A transform of n points; real ones have n / 2 + 1 bins.
struct Kind {
  const char* name;
  bool real, inverse;
  std::size_t inputs(int n) const { return numbers(n, real && !inverse); }
  std::size_t outputs(int n) const { return numbers(n, real && inverse); }

 private:
  std::size_t numbers(int n, bool points) const {
    return static_cast<std::size_t>(points ? n : real ? 2 * (n / 2 + 1) : 2 * n);
  }
};

/// Sums of squares, of several trials: the relative root mean square error is what counts.
struct Sums {
  long double difference = 0, size = 0;
  template <class T>
  void add(const T* got, const std::vector<long double>& truth) {
    for (std::size_t i = 0; i < truth.size(); ++i) {
      difference += (got[i] - truth[i]) * (got[i] - truth[i]);
      size += truth[i] * truth[i];
    }
  }
  double error() const { return static_cast<double>(std::sqrt(difference / size)); }
};

/// Of the first of several lines; the others are zero.
template <class T>
void add_own(Kind kind, int n, std::int64_t lines, const std::vector<T>& x,
             const std::vector<long double>& truth, codegen::Isa isa, Sums& sums) {
  constexpr bool wide = sizeof(T) == 8;
  const DType numbers = wide ? f64 : f32, bins = wide ? c128 : c64;
  const Type points{kind.real ? numbers : bins, {lines, n}},
      spectrum{bins, {lines, kind.real ? n / 2 + 1 : n}};
  const Type &input = kind.inverse ? spectrum : points, &result = kind.inverse ? points : spectrum;
  const Op op = !kind.real     ? Op(op::Fft{.inverse = kind.inverse, .norm = FftNorm::none})
                : kind.inverse ? Op(op::Irfft{.length = n, .norm = FftNorm::none})
                               : Op(op::Rfft{});
  const auto kernel = signal::line_kernel(op, std::span(&input, 1), result, isa);
  Tensor in(input.dtype, input.dims()), out(result.dtype, result.dims()),
      scratch(u8, {kernel->scratch_bytes() + 64});
  std::memset(in.mutable_data(), 0, in.bytes());
  std::memcpy(in.mutable_data(), x.data(), x.size() * sizeof(T));
  void* const buffers[] = {in.mutable_data(), out.mutable_data()};
  kernel->run(buffers, 0, kernel->work_items(), scratch.mutable_data());
  sums.add(reinterpret_cast<const T*>(out.data()), truth);
}

/// FFTW's names differ by a letter.
#define RLX_FFTW(T, prefix)                                                                        \
  std::vector<T> transform(Kind kind, int n, std::vector<T> x) {                                   \
    std::vector<T> y(kind.outputs(n));                                                             \
    auto *in = reinterpret_cast<prefix##_complex*>(x.data()),                                      \
         *out = reinterpret_cast<prefix##_complex*>(y.data());                                     \
    const auto plan =                                                                              \
        !kind.real ? prefix##_plan_dft_1d(n, in, out, kind.inverse ? FFTW_BACKWARD : FFTW_FORWARD, \
                                          FFTW_ESTIMATE)                                           \
        : kind.inverse ? prefix##_plan_dft_c2r_1d(n, in, y.data(), FFTW_ESTIMATE)                  \
                       : prefix##_plan_dft_r2c_1d(n, x.data(), out, FFTW_ESTIMATE);                \
    prefix##_execute(plan);                                                                        \
    prefix##_destroy_plan(plan);                                                                   \
    return y;                                                                                      \
  }
RLX_FFTW(float, fftwf)
RLX_FFTW(double, fftw)
RLX_FFTW(long double, fftwl)

struct Worst {
  double ratio = 0;
  int length = 0;
};

template <class T>
void compare(Kind kind, int n, std::mt19937_64& generator, codegen::Isa isa, Worst& worst) {
  Sums theirs, own[2];
  std::normal_distribution<double> normal;
  // A single short line says little about the error: several of them.
  for (int trial = 0; trial < std::max(1, 4096 / n); ++trial) {
    std::vector<T> x(kind.inputs(n));
    for (T& value : x) value = static_cast<T>(normal(generator));
    // Bins that have no mirrored one are real in spectra of real points.
    if (kind.real && kind.inverse) {
      x[1] = 0;
      if (n % 2 == 0) x.back() = 0;
    }
    const std::vector<long double> truth =
        transform(kind, n, std::vector<long double>(x.begin(), x.end()));
    theirs.add(transform(kind, n, x).data(), truth);
    add_own(kind, n, 1, x, truth, isa, own[0]);
    // Many lines take another way than few.
    if (n <= 1 << 14) add_own(kind, n, 16, x, truth, isa, own[1]);
    if (n > 64 && trial > 8) break;
  }
  // Lengths so short that FFTW is exact are left out.
  if (!(theirs.difference > 0)) return;
  for (const Sums& sums : own) {
    if (!(sums.size > 0)) continue;
    const double ratio = sums.error() / theirs.error();
    if (ratio > worst.ratio) worst = {ratio, n};
    if (ratio > 1.6)
      std::printf("  %s f%zu n = %d: %.2e, FFTW %.2e, %.2f\n", kind.name, 8 * sizeof(T), n,
                  sums.error(), theirs.error(), ratio);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto target = codegen::host_target();
  if (!target.ok()) return 2;
  const int step = count > 1 ? std::max(1, std::atoi(arguments[1])) : 1;
  std::vector<int> lengths;
  for (int n = count > 2 ? std::atoi(arguments[2]) : 1; n <= 4096; n += step) lengths.push_back(n);
  std::mt19937_64 generator(7);
  for (int i = 0; i < 50; i += step)
    lengths.push_back(4097 + static_cast<int>(generator() % ((1 << 20) - 4096)));
  bool fits = true;
  for (const Kind kind : {Kind{"fft", false, false}, Kind{"ifft", false, true},
                          Kind{"rfft", true, false}, Kind{"irfft", true, true}}) {
    Worst narrow, wide;
    for (const int n : lengths) {
      compare<float>(kind, n, generator, target->isa, narrow);
      compare<double>(kind, n, generator, target->isa, wide);
    }
    std::printf("%-5s %zu lengths: most of FFTW's error: f32 %.2f (n = %d), f64 %.2f (n = %d)\n",
                kind.name, lengths.size(), narrow.ratio, narrow.length, wide.ratio, wide.length);
    std::fflush(stdout);
    fits = fits && narrow.ratio <= 2 && wide.ratio <= 2;
  }
  return fits ? 0 : 1;
}
