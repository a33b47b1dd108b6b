// Short loops that reach the peaks of arithmetic and of reading; the best of several rounds counts,
// so that others' load matters little.
#include "tools/machine_peaks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <thread>

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
  const char* const forced = std::getenv("RLX_ISA");
  const std::string_view isa = forced ? forced : "";
  const auto may = [&](std::string_view wanted) { return isa.empty() || isa == wanted; };
  if (may("avx512") && __builtin_cpu_supports("avx512f")) return {multiply_adds_64, read_64};
  if ((may("avx2") || isa == "avx512") && __builtin_cpu_supports("avx2"))
    return {multiply_adds_32, read_32};
#endif
  return {multiply_adds_16, read_16};
}

/// Zeros in pages as large as the system gives, as programs have them: else each new page would
/// take longer than its bytes.
class LargePages {
 public:
  explicit LargePages(std::int64_t bytes)
      : size_(static_cast<std::size_t>(bytes)), data_(std::aligned_alloc(page, size_)) {
    if (!data_) throw std::bad_alloc();
    (void)madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 0, size_);
  }
  ~LargePages() { std::free(data_); }
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;
  std::size_t size_;
  void* data_;
};

/// Three quarters of a core's second cache.
std::int64_t most_of_second_cache() {
  constexpr std::int64_t least = 512 * 1024, most = 4096 * 1024, unit = 512;
  const std::int64_t all = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::clamp(all * 3 / 4, least, most) / unit * unit;
}

/// Bytes that one thread reads in a us, at best, of working sets that lie behind each other in
/// `data`; with several threads all of them together, each with its own.
double read_rate(const Loops& loops, std::span<const std::byte> data, std::int64_t bytes,
                 int threads) {
  constexpr std::int64_t mib = 1024 * 1024;
  const int attempts = bytes > 8 * mib ? 3 : 12;
  const std::int64_t repeats = std::max<std::int64_t>(1, 2 * mib / bytes);
  std::vector<double> best(static_cast<std::size_t>(attempts), 0);
  std::barrier<> together(threads);
  const auto read = [&](int thread) {
    volatile float sink = 0;
    const std::byte* const own = data.data() + thread * bytes;
    for (double& rate : best) {
      together.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      for (std::int64_t i = 0; i < repeats; ++i) loops.read_all(own, bytes, &sink);
      together.arrive_and_wait();
      const double us = milliseconds_since(start) * 1e3;
      if (thread == 0) rate = static_cast<double>(bytes * repeats * threads) / us;
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(read, thread);
    read(0);
  }
  return std::ranges::max(best);
}

}  // namespace

MachinePeaks measure_peaks(int threads) {
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
  // Many threads together leave every cache with less.
  const std::int64_t beyond = std::clamp<std::int64_t>(512 / threads, 8, 64) * mib;
  const LargePages pages(beyond * threads);
  const std::span<const std::byte> data = pages.bytes();
  for (const std::int64_t bytes : {24 * kib, most_of_second_cache(), 6 * mib, beyond}) {
    const double alone = read_rate(loops, data, bytes, 1);
    peaks.reads.push_back(
        {bytes, alone,
         threads > 1 ? std::max(read_rate(loops, data, bytes, threads), alone) : alone});
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
    if (!last && bytes / threads > static_cast<double>(rate.working_set_bytes)) continue;
    return bytes / std::min(rate.bytes_per_us * threads, rate.together);
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
