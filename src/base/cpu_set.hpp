// Which processors this process may use, and how many threads are worth having.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rlx {

/// Processors by the system's numbers. Hyper-threads of one core stand behind the first threads of
/// all cores.
struct CpuSet {
  std::vector<int> cpus;
  int cores = 1;  ///< the first so many of `cpus` are on distinct cores
};

/// The processors that the calling thread may run on. `root` is put before the system's paths
/// (tests).
CpuSet allowed_cpus(const std::string& root = {});

/// The processor time that the control group grants, in processors (1.5: three halves); nothing
/// where it is not limited.
std::optional<double> cpu_quota(const std::string& root = {});

/// One thread for each allowed core, and not more than the quota keeps busy. At least 1.
int default_thread_count();

}  // namespace rlx
