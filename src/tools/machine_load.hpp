// How much of the machine others used while something was measured.
#pragma once

#include <chrono>
#include <cstdint>

namespace rlx::tools {

/// Watches from its construction on.
class LoadWatch {
 public:
  LoadWatch();
  /// CPU time of other processes since then, by the wall time: 0.5 is half a core. 0 where the
  /// system does not tell.
  double others() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  double busy_s_ = 0;
  double own_s_ = 0;
};

/// The largest resident size of this process so far.
std::int64_t peak_rss_bytes();

}  // namespace rlx::tools
