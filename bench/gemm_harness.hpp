// The harness of the contraction benchmarks: makes a kernel, runs it in turns with a peer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "codegen/code.hpp"

namespace rlx::bench {

struct FreeMemory {
  void operator()(void* memory) const;
};
using Memory = std::unique_ptr<float, FreeMemory>;

/// Normal noise, beginning on a page of its own.
Memory noise(std::int64_t elements);

/// What to measure. Buffers of the kernel: A, packed B, C, then others, all f32.
struct Measurement {
  std::string name;
  double operations = 0;  ///< of one call
  loop::Kernel kernel;
  void* const* buffers = nullptr;
  std::function<void()> peer;          ///< empty: none
  const float* peer_result = nullptr;  ///< compared with buffer 2
};

/// Prints GFLOP/s on one thread, compile time and code size; with a peer its GFLOP/s, the ratio and
/// the largest difference. Both run in turns, the best of batches of 2 ms.
void measure(const codegen::CodeGenerator& generator, const codegen::Target& target,
             const Measurement& measurement);

/// Runs `body` with the installed generator and this machine's target, with OpenMP (the peer's)
/// on one thread. The result is for main.
int run_benchmark(
    char** arguments,
    const std::function<void(const codegen::CodeGenerator&, const codegen::Target&)>& body);

}  // namespace rlx::bench
