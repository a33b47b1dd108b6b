// What the two sides of the GEMM benchmark share.
#pragma once

#include <cstdint>
#include <functional>

namespace rlx::bench {

struct GemmShape {
  const char* name;
  std::int64_t m, n, k;
  bool gelu;  ///< bias and exact GELU behind it
};

/// One run of oneDNN's matmul with packed weights on one thread. The pointers must outlive it.
std::function<void()> dnnl_gemm(const GemmShape& shape, float* a, float* b, float* bias, float* c);

}  // namespace rlx::bench
