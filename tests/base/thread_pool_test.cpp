// The pool under load: teams, barriers, several callers at once, nesting, and exceptions.
#include "base/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/cpu_set.hpp"
#include "base/temporary_folder.hpp"

namespace rlx {
namespace {

// Whether a worker sits out depends on what else the machine does.
constexpr auto usual_spin = std::chrono::milliseconds(3);
constexpr bool patient = true;

TEST(ThreadPool, every_member_runs_once) {
  ThreadPool pool(4, usual_spin, patient);
  EXPECT_EQ(pool.threads(), 4);
  for (int threads = 0; threads <= 6; ++threads) {
    std::array<std::atomic<int>, 8> runs = {};
    std::atomic<int> size = 0;
    pool.run_team(threads, [&](int worker, Team& team) {
      ++runs[worker];
      size = team.size();
    });
    EXPECT_EQ(size, std::clamp(threads, 1, 4));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(runs[i], i < size ? 1 : 0) << threads << " " << i;
  }
}

TEST(ThreadPool, a_pool_of_one_runs_everything_on_the_caller) {
  ThreadPool pool(1, usual_spin, patient);
  const auto caller = std::this_thread::get_id();
  int runs = 0;
  pool.run_team(8, [&](int worker, Team& team) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(team.size(), 1);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    team.barrier();
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

// Each step reads what all others wrote in the step before, without atomics: a barrier that lets
// somebody through too early gives a wrong sum (and a report of the thread sanitizer).
TEST(ThreadPool, barriers_order_plain_writes) {
  ThreadPool pool(5, usual_spin, patient);
  for (const int threads : {2, 3, 4, 5}) {
    std::array<std::array<std::int64_t, 8>, 2> cells = {};
    cells[0].fill(1);
    std::atomic<int> size = 0;
    constexpr int steps = 300;
    pool.run_team(threads, [&](int worker, Team& team) {
      size = team.size();
      for (int step = 0; step < steps; ++step) {
        const auto& from = cells[step % 2];
        auto& to = cells[1 - step % 2];
        std::int64_t sum = 0;
        for (int i = 0; i < team.size(); ++i) sum += from[i];
        to[worker] = sum % 1009 + worker;
        team.barrier();
      }
    });
    std::array<std::int64_t, 8> wanted;
    wanted.fill(1);
    for (int step = 0; step < steps; ++step) {
      const std::int64_t sum = std::accumulate(wanted.begin(), wanted.begin() + size, 0LL);
      for (int i = 0; i < size; ++i) wanted[i] = sum % 1009 + i;
    }
    for (int i = 0; i < size; ++i) EXPECT_EQ(cells[steps % 2][i], wanted[i]);
  }
}

TEST(ThreadPool, several_callers_share_the_workers) {
  ThreadPool pool(3, usual_spin, patient);
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int run = 0; run < 500; ++run) {
        std::int64_t parts[3] = {};
        std::int64_t sum = 0;
        pool.run_team(3, [&](int worker, Team& team) {
          for (int i = worker; i < 60; i += team.size()) parts[worker] += i;
          team.barrier();
          if (worker == team.size() - 1) {
            for (int i = 0; i < team.size(); ++i) sum += parts[i];
          }
        });
        ASSERT_EQ(sum, 1770);
        total += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 500 * 1770);
}

TEST(ThreadPool, teams_inside_teams_take_what_is_free) {
  ThreadPool pool(4, usual_spin, patient);
  std::atomic<int> inner_runs = 0;
  for (int run = 0; run < 50; ++run) {
    pool.run_team(2, [&](int, Team& team) {
      pool.run_team(3, [&](int, Team& inner) {
        inner.barrier();
        ++inner_runs;
      });
      team.barrier();
    });
  }
  EXPECT_GE(inner_runs, 100);
}

TEST(ThreadPool, sleeping_workers_wake) {
  ThreadPool pool(3, usual_spin, patient);
  for (int run = 0; run < 4; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    std::atomic<int> runs = 0;
    pool.run_team(3, [&](int, Team& team) {
      team.barrier();
      ++runs;
    });
    EXPECT_EQ(runs, 3);
  }
}

TEST(ThreadPool, a_pool_of_all_cores_keeps_its_workers_on_distinct_ones) {
  const int cores = allowed_cpus().cores;
  if (cores < 2) GTEST_SKIP() << "one core";
  ThreadPool pool(cores, usual_spin, patient);
  std::vector<int> cpu_of(static_cast<std::size_t>(cores), -1);
  pool.run_team(cores, [&](int worker, Team& team) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (worker > 0 && sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1) {
      cpu_of[static_cast<std::size_t>(worker)] = sched_getcpu();
    }
    team.barrier();
  });
  const std::set<int> distinct(cpu_of.begin() + 1, cpu_of.end());
  EXPECT_EQ(distinct.count(-1), 0U) << "a worker is not pinned";
  EXPECT_EQ(static_cast<int>(distinct.size()), cores - 1);
}

TEST(ThreadPool, teams_of_several_pools_share_the_cores) {
  const int cores = allowed_cpus().cores;
  if (cores < 2) GTEST_SKIP() << "one core";
  ThreadPool first(cores, usual_spin, patient), second(cores, usual_spin, patient);
  const auto team_of = [&](int threads) {
    int size = 0;
    second.run_team(threads, [&](int worker, Team& team) {
      if (worker == 0) size = team.size();
    });
    return size;
  };
  EXPECT_EQ(team_of(cores), cores);
  int beside_all = 0, beside_one = 0;
  first.run_team(cores, [&](int worker, Team& team) {
    if (worker == 0) beside_all = team_of(cores);
    team.barrier();
  });
  first.run_team(1, [&](int, Team&) { beside_one = team_of(cores); });
  EXPECT_EQ(beside_all, 1);
  EXPECT_EQ(beside_one, cores - 1);
  EXPECT_EQ(team_of(cores), cores);
  // A pool of more threads than cores was asked for as such.
  ThreadPool many(cores + 2, usual_spin, patient);
  int size = 0;
  many.run_team(cores + 2, [&](int worker, Team& team) {
    if (worker == 0) size = team.size();
  });
  EXPECT_EQ(size, cores + 2);
}

TEST(ThreadPool, with_cores_to_spare_nothing_is_pinned) {
  const CpuSet allowed = allowed_cpus();
  if (allowed.cores < 3 || allowed.node_cores == 2) GTEST_SKIP() << "too few cores";
  ThreadPool pool(2, usual_spin, patient);
  int cpus = 0;
  pool.run_team(2, [&](int worker, Team&) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (worker == 1 && sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  });
  EXPECT_EQ(cpus, static_cast<int>(allowed.cpus.size()));
}

/// The state of a thread as the system tells it: 'S' while it sleeps, 'R' while it spins.
char state_of_thread(pid_t id) {
  std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
  std::string number, name;
  char state = 0;
  file >> number >> name >> state;
  return state;
}

TEST(ThreadPool, workers_sleep_after_their_spin_and_are_woken) {
  ThreadPool pool(2, std::chrono::microseconds(100), patient);
  for (int round = 0; round < 3; ++round) {
    pid_t worker_id = 0;
    pool.run_team(2, [&](int worker, Team&) {
      if (worker == 1) worker_id = gettid();
    });
    ASSERT_NE(worker_id, 0);
    while (state_of_thread(worker_id) != 'S') std::this_thread::yield();
  }
}

TEST(ThreadPool, workers_with_a_long_spin_do_not_sleep) {
  ThreadPool pool(2, std::chrono::microseconds::max(), patient);
  pid_t worker_id = 0;
  pool.run_team(2, [&](int worker, Team&) {
    if (worker == 1) worker_id = gettid();
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_NE(state_of_thread(worker_id), 'S');
  }
}

TEST(ThreadPool, pools_come_and_go) {
  for (int i = 0; i < 30; ++i) {
    ThreadPool pool(1 + i % 4);
    if (i % 3 == 0) continue;
    std::atomic<int> runs = 0;
    pool.run_team(4, [&](int, Team&) { ++runs; });
    EXPECT_EQ(runs, pool.threads());
  }
}

TEST(ThreadPool, large_bodies_are_not_copied) {
  ThreadPool pool(2, usual_spin, patient);
  struct Body {
    explicit Body(int* calls) : calls(calls) {}
    Body(const Body&) = delete;
    void operator()(int worker, Team&) { calls[worker] = worker + 1; }
    int* calls;
    char filling[100] = {};
  };
  int calls[2] = {};
  Body body(calls);
  pool.run_team(2, body);
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1], 2);
}

TEST(ThreadPool, parallel_for_covers_everything_once) {
  ThreadPool pool(3, usual_spin, patient);
  for (const std::int64_t items : {0, 1, 7, 100, 1000}) {
    for (const std::int64_t grain : {0, 1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(items));
      pool.parallel_for(items, grain, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_LT(begin, end);
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

/// The first piece waits until somebody else has begun the second one.
TEST(ThreadPool, parallel_for_gets_helpers_from_their_sleep) {
  using namespace std::chrono_literals;
  ThreadPool pool(2, 0us);
  std::this_thread::sleep_for(20ms);
  std::atomic<int> begun = 0;
  pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    ++begun;
    const auto start = std::chrono::steady_clock::now();
    while (begun < 2 && std::chrono::steady_clock::now() - start < 20s) std::this_thread::yield();
    EXPECT_EQ(begun, 2);
  });
}

TEST(ThreadPool, parallel_for_throws_on_the_caller) {
  ThreadPool pool(3, usual_spin, patient);
  for (int run = 0; run < 20; ++run) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [](std::int64_t begin, std::int64_t) {
                                     if (begin % 10 == 3) throw std::runtime_error("boom");
                                   }),
                 std::runtime_error);
  }
  std::atomic<int> runs = 0;
  pool.parallel_for(10, 1, [&](std::int64_t, std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST(CpuSet, allows_at_least_one) {
  const CpuSet set = allowed_cpus();
  EXPECT_GE(set.cores, 1);
  EXPECT_LE(set.cores, static_cast<int>(set.cpus.size()));
  EXPECT_EQ(std::set<int>(set.cpus.begin(), set.cpus.end()).size(), set.cpus.size());
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), set.cores);
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

/// Two nodes of three cores with two threads each; processors of a core lie six apart.
void write_two_nodes(const testing::TemporaryFolder& root) {
  write_file(root.path("sys/devices/system/node/online"), "0-1\n");
  write_file(root.path("sys/devices/system/node/node0/cpulist"), "0-2,6-8\n");
  write_file(root.path("sys/devices/system/node/node1/cpulist"), "3-5,9,10-11\n");
  for (int cpu = 0; cpu < 12; ++cpu) {
    write_file(root.path("sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                         "/topology/thread_siblings_list"),
               std::to_string(cpu % 6) + "," + std::to_string(cpu % 6 + 6) + "\n");
  }
}

TEST(CpuSet, cores_of_one_node_come_first) {
  testing::TemporaryFolder root;
  write_two_nodes(root);
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  CpuSet set = cpus_among(all, 0, root.path());
  EXPECT_EQ(set.cpus, all);
  EXPECT_EQ(set.cores, 6);
  EXPECT_EQ(set.node_cores, 3);
  // Of equal nodes the caller's.
  set = cpus_among(all, 10, root.path());
  EXPECT_EQ(set.cpus, (std::vector<int>{3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8}));
  EXPECT_EQ(set.node_cores, 3);
  // The one with most cores, wherever the caller is; 0 and 6 are one core.
  set = cpus_among({0, 4, 5, 6}, 0, root.path());
  EXPECT_EQ(set.cpus, (std::vector<int>{4, 5, 0, 6}));
  EXPECT_EQ(set.cores, 3);
  EXPECT_EQ(set.node_cores, 2);
}

TEST(CpuSet, without_nodes_or_topology_all_are_cores_of_one) {
  testing::TemporaryFolder root;
  const CpuSet set = cpus_among({2, 5, 7}, 5, root.path());
  EXPECT_EQ(set.cpus, (std::vector<int>{2, 5, 7}));
  EXPECT_EQ(set.cores, 3);
  EXPECT_EQ(set.node_cores, 3);
  write_file(root.path("sys/devices/system/node/online"), "0-x,,-3, 1\n");
  EXPECT_EQ(cpus_among({2, 5, 7}, 5, root.path()).node_cores, 3);
}

TEST(CpuSet, reads_quotas_of_both_versions) {
  testing::TemporaryFolder root;
  EXPECT_FALSE(cpu_quota(root.path()).has_value());
  write_file(root.path("proc/self/cgroup"), "0::/a/b\n");
  write_file(root.path("sys/fs/cgroup/a/b/cpu.max"), "max 100000\n");
  EXPECT_FALSE(cpu_quota(root.path()).has_value());
  write_file(root.path("sys/fs/cgroup/a/cpu.max"), "150000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 1.5);
  write_file(root.path("sys/fs/cgroup/a/b/cpu.max"), "50000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 0.5);

  testing::TemporaryFolder old;
  write_file(old.path("proc/self/cgroup"), "5:memory:/x\n4:cpu,cpuacct:/x\n");
  write_file(old.path("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us"), "-1\n");
  write_file(old.path("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us"), "100000\n");
  EXPECT_FALSE(cpu_quota(old.path()).has_value());
  write_file(old.path("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us"), "300000\n");
  EXPECT_EQ(cpu_quota(old.path()), 3.0);
}

}  // namespace
}  // namespace rlx
