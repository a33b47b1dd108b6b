// Reading of affinity, topology and control groups.
#include "base/cpu_set.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

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

/// The numbers of a list such as "0-3,8".
std::vector<int> numbers_of(const std::string& list) {
  constexpr int most = 1 << 16;
  std::vector<int> numbers;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream text(part);
    int first = 0, last = 0;
    char dash = 0;
    if (!(text >> first) || first < 0 || first > most) continue;
    last = text >> dash >> last && dash == '-' ? std::min(last, most) : first;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

/// The node of memory beside each processor; none where the system tells of no nodes.
std::map<int, int> nodes_by_cpu(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::map<int, int> nodes;
  for (const int node : numbers_of(first_line(folder + "online"))) {
    for (const int cpu :
         numbers_of(first_line(folder + "node" + std::to_string(node) + "/cpulist")))
      nodes[cpu] = node;
  }
  return nodes;
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
  std::vector<int> allowed;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
    }
  }
  if (allowed.empty()) allowed.push_back(0);
  return cpus_among(allowed, sched_getcpu(), root);
}

CpuSet cpus_among(const std::vector<int>& allowed, int here, const std::string& root) {
  struct Node {
    std::vector<int> first_threads, second_threads;  ///< of its cores
    bool is_here = false;
  };
  const std::map<int, int> node_of = nodes_by_cpu(root);
  std::map<int, Node> by_number;
  std::set<std::string> seen_cores;
  for (const int cpu : allowed) {
    const auto found = node_of.find(cpu);
    Node& node = by_number[found == node_of.end() ? 0 : found->second];
    const std::string siblings = first_line(root + "/sys/devices/system/cpu/cpu" +
                                            std::to_string(cpu) + "/topology/thread_siblings_list");
    // Without a topology every processor counts as a core.
    const bool is_first = siblings.empty() || seen_cores.insert(siblings).second;
    (is_first ? node.first_threads : node.second_threads).push_back(cpu);
    node.is_here = node.is_here || cpu == here;
  }
  std::vector<Node> nodes;
  for (auto& [number, node] : by_number) nodes.push_back(std::move(node));
  std::ranges::stable_sort(nodes, [](const Node& a, const Node& b) {
    return std::tuple(a.first_threads.size(), a.is_here) >
           std::tuple(b.first_threads.size(), b.is_here);
  });
  CpuSet result;
  for (const Node& node : nodes)
    result.cpus.insert(result.cpus.end(), node.first_threads.begin(), node.first_threads.end());
  result.cores = static_cast<int>(result.cpus.size());
  result.node_cores = static_cast<int>(nodes.front().first_threads.size());
  for (const Node& node : nodes)
    result.cpus.insert(result.cpus.end(), node.second_threads.begin(), node.second_threads.end());
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

namespace {

int within_quota(int cores) {
  if (const auto quota = cpu_quota())
    cores = std::min(cores, static_cast<int>(std::ceil(*quota - 0.01)));
  return std::max(cores, 1);
}

}  // namespace

int usable_cores() { return within_quota(allowed_cpus().cores); }

int default_thread_count() { return within_quota(allowed_cpus().node_cores); }

}  // namespace rlx
