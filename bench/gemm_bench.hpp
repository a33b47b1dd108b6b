// The shapes that the benchmarks of contractions measure, and their peers in oneDNN.
#pragma once

#include <cstdint>
#include <functional>

namespace rlx::bench {

/// What follows the product: nothing, bias and exact GELU, or bias, residual and layer norm.
enum class Behind { nothing, gelu, norm };

struct GemmShape {
  const char* name;
  std::int64_t m, n, k;
  Behind behind;
};

/// A square image, channels last, one image; ReLU behind it.
struct ConvolutionShape {
  const char* name;
  std::int64_t size, channels, filters, kernel, stride, padding;

  std::int64_t out() const { return (size + 2 * padding - kernel) / stride + 1; }
};

/// One run of oneDNN's matmul with packed weights on one thread. The pointers must outlive it.
std::function<void()> dnnl_gemm(const GemmShape& shape, float* a, float* b, float* bias, float* c);

/// The same for its direct convolution in the layouts that it likes. `weights` are [filter][row]
/// [column][channel]; the result is written to `c` channels last by one call that is not timed.
std::function<void()> dnnl_convolution(const ConvolutionShape& shape, float* a, float* weights,
                                       float* c);

}  // namespace rlx::bench
