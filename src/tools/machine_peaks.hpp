// What this machine can do at most: the roof under which kernels are judged.
#pragma once

#include <cstdint>
#include <vector>

#include "rlx/runtime.hpp"

namespace rlx::tools {

/// Bandwidth of reading data that lies in a working set of at most so many bytes.
struct ReadRate {
  std::int64_t working_set_bytes = 0;
  double bytes_per_us = 0;  ///< one core
  double together = 0;      ///< all cores at once, each with a working set of its own
};

struct MachinePeaks {
  /// f32 multiply-adds counted as two, one core; other elements are multiplied
  /// KernelProfile::products times as fast.
  double flops_per_us = 0;
  std::vector<ReadRate> reads;  ///< by growing working set; the last one is memory

  /// The least time of a kernel in us: its threads' cores at their peak of arithmetic, or its bytes
  /// from the smallest level that holds them.
  double least_us(const KernelProfile& kernel) const;
  /// Whether the bytes rather than the arithmetic set least_us.
  bool bound_by_bytes(const KernelProfile& kernel) const;
};

/// Measures for about 150 ms on so many threads, with the widest registers that rlx makes code for
/// (RLX_ISA).
MachinePeaks measure_peaks(int threads);

}  // namespace rlx::tools
