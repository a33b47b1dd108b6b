// Reads /proc/stat and the process's own usage.
#include "tools/machine_load.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace rlx::tools {
namespace {

// Seconds that all cores were busy since the machine started; -1 where unknown.
double busy_seconds() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double ticks[8] = {};  // user nice system idle iowait irq softirq steal
  stat >> word;
  for (double& tick : ticks) stat >> tick;
  if (!stat || word != "cpu") return -1;
  double busy = 0;
  for (const int i : {0, 1, 2, 5, 6, 7}) busy += ticks[i];
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

LoadWatch::LoadWatch()
    : begin_(std::chrono::steady_clock::now()), busy_s_(busy_seconds()), own_s_(own_seconds()) {}

double LoadWatch::others() const {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin_;
  const double busy = busy_seconds();
  if (busy < 0 || busy_s_ < 0 || wall.count() <= 0) return 0;
  return std::max(0.0, (busy - busy_s_ - (own_seconds() - own_s_)) / wall.count());
}

std::int64_t peak_rss_bytes() {
  // The system's own count for this program: ru_maxrss begins with what the process that started
  // this one held at that moment.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace rlx::tools
