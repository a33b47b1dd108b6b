// Subnormal numbers of the calling thread: kept, or taken and made as zeros.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rlx {

/// While it lives the thread's arithmetic takes subnormal operands for zero and makes zeros of
/// subnormal results, if asked to; else the thread computes as before.
class SubnormalScope {
 public:
  explicit SubnormalScope(bool flushes) : flushes_(flushes) {
    if (!flushes_) return;
    before_ = mode();
    set_mode(before_ | flush_bits);
  }
  ~SubnormalScope() {
    if (flushes_) set_mode(before_);
  }
  SubnormalScope(const SubnormalScope&) = delete;
  SubnormalScope& operator=(const SubnormalScope&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = std::uint32_t;
  static constexpr Mode flush_bits = 0x8040;  // of MXCSR: results, operands
  static Mode mode() { return _mm_getcsr(); }
  static void set_mode(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode flush_bits = std::uint64_t{1} << 24;  // FPCR.FZ: both
  static Mode mode() {
    Mode mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
#error "How does this processor flush subnormal numbers?"
#endif

  const bool flushes_;
  Mode before_ = 0;
};

}  // namespace rlx
