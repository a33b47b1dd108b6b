// The clock that the command times its own steps by.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"

namespace rlx::tools {

using Clock = std::chrono::steady_clock;

inline double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Runs that are timed together, by what one of them takes: the clock moves in steps of 10 to 50 ns
/// and is read in as many, which is more than some programs take.
inline int runs_per_sample(double run_ms) {
  constexpr double least_ms = 2e-3, most = 256;
  return static_cast<int>(std::clamp(std::ceil(least_ms / run_ms), 1.0, most));
}

/// Milliseconds of each of so many calls of `run`, which tells a Status: in the mean.
template <class Run>
Result<double> milliseconds_of(int runs, const Run& run) {
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < runs; ++i) RLX_TRY(run());
  return milliseconds_since(begin) / runs;
}

}  // namespace rlx::tools
