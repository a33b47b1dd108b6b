// Short loops that reach the peaks of arithmetic and of reading; the best of several rounds counts,
// so that others' load matters little.
#include "tools/machine_peaks.hpp"

#include <algorithm>
#include <cstring>

#include "tools/clock.hpp"

#if defined(__x86_64__)
#define RLX_WIDE_AS(features) __attribute__((target(features)))
#else
#define RLX_WIDE_AS(features)
#endif

namespace rlx::tools {
namespace {

// Chains cover the latency of multiply-adds (5 cycles in two units at most) and stay in registers
// beside their factor and addend: x86-64 has 32 with AVX-512, and 16 without.
constexpr int chains_of_32_registers = 16, chains_of_16_registers = 12;
constexpr int rounds = 1 << 14;

template <int Bytes>
using Vector __attribute__((vector_size(Bytes))) = float;

/// Gives the floating-point operations done.
template <int Bytes, int chains>
__attribute__((always_inline)) inline double multiply_adds(volatile float* sink) {
  Vector<Bytes> sums[chains] = {};
  Vector<Bytes> factor = {}, addend = {};
  factor += 0.5F, addend += *sink;
  // Equal chains would be computed once.
  for (Vector<Bytes>& sum : sums) sum += *sink;
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + addend;
  }
  for (const Vector<Bytes>& sum : sums) *sink = *sink + sum[0];
  return 2.0 * chains * rounds * Bytes / sizeof(float);
}

/// Reads `bytes` (a multiple of 512) once.
template <int Bytes>
__attribute__((always_inline)) inline void read_all(const std::byte* data, std::int64_t bytes,
                                                    volatile float* sink) {
  Vector<Bytes> sums[8] = {};
  for (std::int64_t at = 0; at < bytes; at += 8 * Bytes) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      Vector<Bytes> value;
      std::memcpy(&value, data + at + i * Bytes, Bytes);
      sums[i] += value;
    }
  }
  for (const Vector<Bytes>& sum : sums) *sink = *sink + sum[0];
}

struct Loops {
  double (*multiply_adds)(volatile float*);
  void (*read_all)(const std::byte*, std::int64_t, volatile float*);
};

#if defined(__x86_64__)
RLX_WIDE_AS("avx512f,fma") double multiply_adds_64(volatile float* s) {
  return multiply_adds<64, chains_of_32_registers>(s);
}
RLX_WIDE_AS("avx512f") void read_64(const std::byte* d, std::int64_t n, volatile float* s) {
  read_all<64>(d, n, s);
}
RLX_WIDE_AS("avx2,fma") double multiply_adds_32(volatile float* s) {
  return multiply_adds<32, chains_of_16_registers>(s);
}
RLX_WIDE_AS("avx2") void read_32(const std::byte* d, std::int64_t n, volatile float* s) {
  read_all<32>(d, n, s);
}
#endif
double multiply_adds_16(volatile float* s) {
#if defined(__x86_64__)
  return multiply_adds<16, chains_of_16_registers>(s);
#else
  return multiply_adds<16, chains_of_32_registers>(s);
#endif
}
void read_16(const std::byte* d, std::int64_t n, volatile float* s) { read_all<16>(d, n, s); }

Loops widest_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {multiply_adds_64, read_64};
  if (__builtin_cpu_supports("avx2")) return {multiply_adds_32, read_32};
#endif
  return {multiply_adds_16, read_16};
}

}  // namespace

MachinePeaks measure_peaks() {
  MachinePeaks peaks;
  const Loops loops = widest_loops();
  volatile float sink = 0;
  for (int attempt = 0; attempt < 30; ++attempt) {
    const Clock::time_point start = Clock::now();
    const double operations = loops.multiply_adds(&sink);
    peaks.flops_per_us =
        std::max(peaks.flops_per_us, operations * 1e-3 / milliseconds_since(start));
  }
  constexpr std::int64_t kib = 1024, mib = 1024 * kib;
  std::vector<std::byte> data(static_cast<std::size_t>(64 * mib), std::byte{0});
  for (const std::int64_t bytes : {24 * kib, 512 * kib, 6 * mib, 64 * mib}) {
    ReadRate rate{bytes, 0};
    const int attempts = bytes > 8 * mib ? 3 : 12;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const std::int64_t repeats = std::max<std::int64_t>(1, 2 * mib / bytes);
      const Clock::time_point start = Clock::now();
      for (std::int64_t i = 0; i < repeats; ++i) loops.read_all(data.data(), bytes, &sink);
      const double us = milliseconds_since(start) * 1e3;
      rate.bytes_per_us = std::max(rate.bytes_per_us, static_cast<double>(bytes * repeats) / us);
    }
    peaks.reads.push_back(rate);
  }
  return peaks;
}

namespace {

double arithmetic_us(const MachinePeaks& peaks, const KernelProfile& kernel) {
  return kernel.flops / (peaks.flops_per_us * kernel.threads * kernel.products);
}

double reading_us(const MachinePeaks& peaks, double bytes, int threads) {
  for (const ReadRate& rate : peaks.reads) {
    const bool last = &rate == &peaks.reads.back();
    // Each core has its own caches; memory is shared.
    if (!last && bytes / threads > static_cast<double>(rate.working_set_bytes)) continue;
    return bytes / (rate.bytes_per_us * (last ? 1 : threads));
  }
  return 0;
}

}  // namespace

double MachinePeaks::least_us(const KernelProfile& kernel) const {
  return std::max(arithmetic_us(*this, kernel), reading_us(*this, kernel.bytes, kernel.threads));
}

bool MachinePeaks::bound_by_bytes(const KernelProfile& kernel) const {
  return reading_us(*this, kernel.bytes, kernel.threads) > arithmetic_us(*this, kernel);
}

}  // namespace rlx::tools
