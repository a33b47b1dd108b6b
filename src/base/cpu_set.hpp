// Which processors this process may use, and how many threads are worth having.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rlx {

/// Processors by the system's numbers, node by node of memory: first the node with most cores, of
/// several the one that the calling thread is on. Hyper-threads of one core stand behind the first
/// threads of all cores.
struct CpuSet {
  std::vector<int> cpus;
  int cores = 1;       ///< the first so many of `cpus` are on distinct cores
  int node_cores = 1;  ///< and the first so many of those on one node
};

/// The processors that the calling thread may run on. `root` is put before the system's paths
/// (tests).
CpuSet allowed_cpus(const std::string& root = {});
/// The same of these processors, seen from processor `here`.
CpuSet cpus_among(const std::vector<int>& allowed, int here, const std::string& root = {});

/// The processor time that the control group grants, in processors (1.5: three halves); nothing
/// where it is not limited.
std::optional<double> cpu_quota(const std::string& root = {});

/// Allowed cores, and not more than the quota keeps busy. At least 1.
int usable_cores();

/// A thread for each usable core of one node: a program's memory lies on one, and what others read
/// of it goes over the link between them. At least 1.
int default_thread_count();

}  // namespace rlx
