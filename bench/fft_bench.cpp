// Fourier transforms beside FFTW's measured plans, one thread: batch 256 of several lengths.
// Rounds of both alternate, and the medians are told.
//   fft_bench [length...]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "codegen/host_target.hpp"
#include "rlx/ops.hpp"
#include "signal/kernels.hpp"
#ifdef RLX_BENCH_FFTW
#include <fftw3.h>
#endif

namespace {

using namespace rlx;
constexpr std::int64_t batch = 256;

double seconds(const std::function<void()>& run, int count) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
}

double median(std::vector<double> list) {
  std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2),
                   list.end());
  return list[list.size() / 2];
}

#ifdef RLX_BENCH_FFTW
/// FFTW's plan of the same work, on memory of its own.
struct Peer {
  std::vector<float> in, out;
  fftwf_plan plan;
  Peer(bool real, int n)
      : in(static_cast<std::size_t>(2 * n * batch + 32)),
        out(static_cast<std::size_t>(2 * (n + 1) * batch + 32)) {
    auto* bins = reinterpret_cast<fftwf_complex*>(out.data());
    plan =
        real ? fftwf_plan_many_dft_r2c(1, &n, batch, in.data(), nullptr, 1, n, bins, nullptr, 1,
                                       n / 2 + 1, FFTW_MEASURE)
             : fftwf_plan_many_dft(1, &n, batch, reinterpret_cast<fftwf_complex*>(in.data()),
                                   nullptr, 1, n, bins, nullptr, 1, n, FFTW_FORWARD, FFTW_MEASURE);
  }
  ~Peer() { fftwf_destroy_plan(plan); }
};
#endif

/// Ratio of FFTW's time to ours; 0 without FFTW.
double compare(bool real, std::int64_t n, codegen::Isa isa) {
  const Type input{real ? f32 : c64, {batch, n}}, result{c64, {batch, real ? n / 2 + 1 : n}};
  const Op op = real ? Op(op::Rfft{}) : Op(op::Fft{});
  const auto kernel = signal::line_kernel(op, std::span(&input, 1), result, isa);
  Tensor x(input.dtype, input.dims()), y(result.dtype, result.dims());
  Tensor scratch(u8, {kernel->scratch_bytes() + 64});
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  auto* values = reinterpret_cast<float*>(x.mutable_data());
  for (std::int64_t i = 0; i < batch * n * (real ? 1 : 2); ++i) values[i] = normal(generator);
  void* const buffers[] = {x.mutable_data(), y.mutable_data()};
  const auto ours = [&] { kernel->run(buffers, 0, kernel->work_items(), scratch.mutable_data()); };
  std::vector<double> own, other;
#ifdef RLX_BENCH_FFTW
  Peer peer(real, static_cast<int>(n));
  std::memcpy(peer.in.data(), values, static_cast<std::size_t>(batch * n * (real ? 4 : 8)));
#endif
  const int count = std::max(1, static_cast<int>(2e6 / static_cast<double>(batch * n)));
  for (int round = 0; round < 21; ++round) {
    own.push_back(seconds(ours, count));
#ifdef RLX_BENCH_FFTW
    other.push_back(seconds([&] { fftwf_execute(peer.plan); }, count));
#endif
  }
  const double time = median(own), points = static_cast<double>(n) * (real ? 0.5 : 1);
  const double gflops = 5 * points * static_cast<double>(batch) * std::log2(n) / time * 1e-9;
  std::printf("%-7s %5lld  rlx %8.1f us %6.1f GFLOP/s", real ? "real" : "complex",
              static_cast<long long>(n), time * 1e6, gflops);
  const double ratio = other.empty() ? 0 : median(other) / time;
  if (!other.empty()) std::printf("   FFTW %8.1f us   ratio %.2f", median(other) * 1e6, ratio);
  std::printf("\n");
  return ratio;
}

}  // namespace

int main(int count, char** arguments) {
  const auto target = codegen::host_target();
  if (!target.ok()) return 2;
  std::vector<std::int64_t> lengths;
  for (int i = 1; i < count; ++i) lengths.push_back(std::max(1, std::atoi(arguments[i])));
  if (lengths.empty()) lengths = {256, 400, 512, 1000, 1024, 4096, 1021};
  for (const bool real : {false, true}) {
    double logs = 0;
    int compared = 0;
    for (const std::int64_t n : lengths) {
      const double ratio = compare(real, n, target->isa);
      if (ratio > 0) logs += std::log(ratio), ++compared;
    }
    if (compared) std::printf("geometric mean of the ratios: %.2f\n", std::exp(logs / compared));
  }
}
