// Runs generated code of kernels beside the interpreter and compares what they write.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "codegen/code.hpp"

namespace rlx::testing {

/// The code generator beside the test program.
const codegen::CodeGenerator& generator();

/// A target for each instruction set that this machine has.
std::vector<codegen::Target> host_targets();

/// Contents of a kernel's buffers.
using Contents = std::vector<std::vector<std::byte>>;

/// Random elements: floats in [-2, 2], small integers.
Contents random_contents(const loop::Kernel& kernel, std::mt19937& random);

/// Generates and runs, the work items split over calls at `cuts` places, as run_fenced does it.
/// Throws where code cannot be made or loaded.
void run_generated(const loop::Kernel& kernel, const codegen::Target& target, Contents& contents,
                   int cuts = 0);

/// The same for the items of one of two workers alone.
void run_half(const loop::Kernel& kernel, const codegen::Target& target, Contents& contents,
              int worker);

/// What differs beyond |a - b| <= tolerance * (1 + |b|); empty where nothing does.
std::string difference(const loop::Kernel& kernel, const Contents& made, const Contents& expected,
                       double tolerance);

/// Generated code on every target gives what the interpreter gives.
void expect_as_interpreted(const loop::Kernel& kernel, double tolerance, unsigned seed);
void expect_as_interpreted(const loop::Kernel& kernel, const Contents& start, double tolerance,
                           int cuts = 0);

}  // namespace rlx::testing
