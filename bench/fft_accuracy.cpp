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

template <class T>
using Lists = std::vector<std::vector<T>>;

/// Of the first of several lines; the others are zero.
template <class T>
Sums own_sums(Kind kind, int n, std::int64_t lines, const Lists<T>& trials,
              const Lists<long double>& truths, codegen::Isa isa) {
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
  void* const buffers[] = {in.mutable_data(), out.mutable_data()};
  Sums sums;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    std::memcpy(in.mutable_data(), trials[i].data(), trials[i].size() * sizeof(T));
    kernel->run(buffers, 0, kernel->work_items(), scratch.mutable_data());
    sums.add(reinterpret_cast<const T*>(out.data()), truths[i]);
  }
  return sums;
}

/// FFTW's names differ by a letter.
#define RLX_FFTW(T, prefix)                                                                        \
  Lists<T> transforms(Kind kind, int n, const Lists<T>& trials) {                                  \
    std::vector<T> x(kind.inputs(n)), y(kind.outputs(n));                                          \
    auto *in = reinterpret_cast<prefix##_complex*>(x.data()),                                      \
         *out = reinterpret_cast<prefix##_complex*>(y.data());                                     \
    const auto plan =                                                                              \
        !kind.real ? prefix##_plan_dft_1d(n, in, out, kind.inverse ? FFTW_BACKWARD : FFTW_FORWARD, \
                                          FFTW_ESTIMATE)                                           \
        : kind.inverse ? prefix##_plan_dft_c2r_1d(n, in, y.data(), FFTW_ESTIMATE)                  \
                       : prefix##_plan_dft_r2c_1d(n, x.data(), out, FFTW_ESTIMATE);                \
    Lists<T> results;                                                                              \
    for (const std::vector<T>& trial : trials) {                                                   \
      std::copy(trial.begin(), trial.end(), x.begin());                                            \
      prefix##_execute(plan);                                                                      \
      results.push_back(y);                                                                        \
    }                                                                                              \
    prefix##_destroy_plan(plan);                                                                   \
    return results;                                                                                \
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
  std::normal_distribution<double> normal;
  // A single short line says little about the error: several of them.
  Lists<T> trials(static_cast<std::size_t>(n <= 64 ? 4096 / n : n <= 1024 ? 4 : 1));
  Lists<long double> exact;
  for (std::vector<T>& x : trials) {
    x.resize(kind.inputs(n));
    for (T& value : x) value = static_cast<T>(normal(generator));
    // Bins that have no mirrored one are real in spectra of real points.
    if (kind.real && kind.inverse) {
      x[1] = 0;
      if (n % 2 == 0) x.back() = 0;
    }
    exact.emplace_back(x.begin(), x.end());
  }
  const Lists<long double> truths = transforms(kind, n, exact);
  const Lists<T> others = transforms(kind, n, trials);
  Sums theirs;
  for (std::size_t i = 0; i < others.size(); ++i) theirs.add(others[i].data(), truths[i]);
  // Lengths so short that FFTW is exact are left out.
  if (!(theirs.difference > 0)) return;
  // Many lines take another way than few.
  for (const std::int64_t lines : {1, 16}) {
    if (lines > 1 && n > 1 << 14) continue;
    const double own = own_sums(kind, n, lines, trials, truths, isa).error();
    const double ratio = own / theirs.error();
    if (ratio > worst.ratio) worst = {ratio, n};
    if (ratio > 1.6)
      std::printf("  %s f%zu n = %d: %.2e, FFTW %.2e, %.2f\n", kind.name, 8 * sizeof(T), n, own,
                  theirs.error(), ratio);
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
