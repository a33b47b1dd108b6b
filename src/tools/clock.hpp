// The clock that the command times its own steps by.
#pragma once

#include <chrono>

namespace rlx::tools {

using Clock = std::chrono::steady_clock;

inline double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace rlx::tools
