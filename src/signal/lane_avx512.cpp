// The vector kernels of Fourier transforms for vectors of 64 bytes.
#include <cstdint>
#include <type_traits>

#include "signal/lane_job.hpp"

namespace rlx::signal::avx512 {
namespace {

// A namespace of its own for each instruction set: none of this code may be shared.
#include "signal/lane_run.hpp"

constexpr int bytes = 64;

}  // namespace

LaneKernel<float> float_kernel() { return {bytes / 4, LaneRun<float, bytes / 4>::run}; }
LaneKernel<double> double_kernel() { return {bytes / 8, LaneRun<double, bytes / 8>::run}; }

}  // namespace rlx::signal::avx512
