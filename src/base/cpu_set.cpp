// Reading of affinity, topology and control groups.
#include "base/cpu_set.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

namespace rlx {
namespace {

/// The beginning of one of the system's little files; empty where there is none. Every session
/// reads several, so no stream is made for each.
std::string short_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[4096];
  const ssize_t size = read(file, text, sizeof(text));
  close(file);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::string first_line(const std::string& path) {
  std::string text = short_file(path);
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

/// A smaller limit wins.
void take_limit(std::optional<double>& limit, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  limit = std::min(limit.value_or(quota / period), quota / period);
}

/// Version 2: "max 100000" or "150000 100000" in each group from ours up to the root.
void read_version_2(const std::string& base, std::string group, std::optional<double>& limit) {
  while (true) {
    std::istringstream text(first_line(base + group + "/cpu.max"));
    double quota = 0, period = 0;
    if (text >> quota >> period) take_limit(limit, quota, period);
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

/// Version 1: quota -1 means none.
void read_version_1(const std::string& base, std::string group, std::optional<double>& limit) {
  while (true) {
    std::istringstream quota_text(first_line(base + group + "/cpu.cfs_quota_us"));
    std::istringstream period_text(first_line(base + group + "/cpu.cfs_period_us"));
    double quota = 0, period = 0;
    if (quota_text >> quota && period_text >> period) take_limit(limit, quota, period);
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

CpuSet allowed_cpus(const std::string& root) {
  CpuSet result;
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> second_threads;
  std::set<std::string> seen_cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      const std::string siblings =
          first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
      // Without a topology every processor counts as a core.
      const bool is_first = siblings.empty() || seen_cores.insert(siblings).second;
      (is_first ? result.cpus : second_threads).push_back(cpu);
    }
  }
  if (result.cpus.empty()) result.cpus.push_back(0);
  result.cores = static_cast<int>(result.cpus.size());
  result.cpus.insert(result.cpus.end(), second_threads.begin(), second_threads.end());
  return result;
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> limit;
  const std::string base = root + "/sys/fs/cgroup";
  std::istringstream groups(short_file(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    // "0::/group" (version 2) or "4:cpu,cpuacct:/group" (version 1).
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers.empty()) {
      read_version_2(base, group, limit);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      read_version_1(base + "/" + controllers, group, limit);
      read_version_1(base + "/cpu", group, limit);
    }
  }
  return limit;
}

int default_thread_count() {
  int count = allowed_cpus().cores;
  if (const auto quota = cpu_quota()) {
    count = std::min(count, static_cast<int>(std::ceil(*quota - 0.01)));
  }
  return std::max(count, 1);
}

}  // namespace rlx
