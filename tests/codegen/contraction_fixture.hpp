// Runs generated contractions beside loop::interpret on every instruction set of the host.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "codegen/code.hpp"
#include "codegen/loop.hpp"

namespace rlx::codegen::testing {

/// The generator of the shared object beside the test program; fails the test where there is none.
const CodeGenerator* generator();

/// One target for each instruction set that the host has.
std::vector<Target> host_targets();

/// Buffers filled with noise for a kernel's buffers: floats in about [-1, 1], integers small.
using Buffers = std::vector<std::vector<std::byte>>;
Buffers noise_buffers(const loop::Kernel& kernel, std::uint32_t seed);

/// Generates the kernel for `target` and runs its items in shuffled ranges on `buffers`; fails the
/// test where it cannot be generated.
void run_generated(const loop::Kernel& kernel, const Target& target, Buffers& buffers,
                   std::uint32_t seed);

/// Generates the kernel for `target`, runs its items in shuffled ranges on copies of noise, and
/// expects what interpret gives, within `tolerance` times the magnitude of the sums.
void expect_as_interpreted(const loop::Kernel& kernel, const Target& target, double tolerance,
                           std::uint32_t seed);

/// The same for every target of the host.
void expect_as_interpreted(const loop::Kernel& kernel, double tolerance = 1e-5,
                           std::uint32_t seed = 1);

/// C[m, n] = A[m, k] * B[k, n] with buffers A, B, C and the epilogue "store the sum".
struct MatmulOptions {
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  bool packed = true;
  std::int32_t panel_width = 0;  ///< 0: what choose_packed_layout says for `target`
  bool transposed_a = false, transposed_b = false;
  DType a = f32, b = f32, accumulator = f32;
  std::int64_t k_group = 1;
};
loop::Kernel matmul(const MatmulOptions& options, const Target& target);

/// Appends nodes to an expression.
ScalarId add_node(std::vector<ScalarNode>& nodes, ScalarNode node);

}  // namespace rlx::codegen::testing
