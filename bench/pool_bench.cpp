// Measures the thread pool: fork and join of a team, barriers, waking, and what a third busy
// process does to them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "base/cpu_set.hpp"
#include "base/thread_pool.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

struct Figures {
  double low, median, high, mean;
};

template <class Measure>
Figures figures(int samples, Measure&& measure) {
  std::vector<double> values;
  for (int i = 0; i < samples; ++i) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return {values[values.size() / 20], values[values.size() / 2], values[values.size() * 19 / 20],
          std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(samples)};
}

void print(const char* name, int threads, const Figures& f) {
  std::printf("%-28s %2d threads  p5 %10.0f ns  median %10.0f ns  p95 %10.0f ns  mean %10.0f ns\n",
              name, threads, f.low, f.median, f.high, f.mean);
}

double fork_join(rlx::ThreadPool& pool, int threads, int runs) {
  const auto start = Clock::now();
  for (int i = 0; i < runs; ++i) pool.run_team(threads, [](int, rlx::Team&) {});
  return ns_since(start) / runs;
}

double barrier(rlx::ThreadPool& pool, int threads, int barriers) {
  const auto start = Clock::now();
  pool.run_team(threads, [=](int, rlx::Team& team) {
    for (int i = 0; i < barriers; ++i) team.barrier();
  });
  return ns_since(start) / barriers;
}

/// One step of work that no compiler leaves out.
inline void keep_busy() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// A run like a small model's: `steps` steps of about `work_ns` on each thread.
double model_run(rlx::ThreadPool& pool, int threads, int steps, int additions) {
  const auto start = Clock::now();
  pool.run_team(threads, [=](int, rlx::Team& team) {
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < additions; ++i) keep_busy();
      team.barrier();
    }
  });
  return ns_since(start);
}

double wake(rlx::ThreadPool& pool, int threads) {
  std::this_thread::sleep_for(std::chrono::milliseconds(12));
  return fork_join(pool, threads, 1);
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : rlx::default_thread_count();
  rlx::ThreadPool pool(threads);
  fork_join(pool, threads, 1000);
  print("fork and join", threads, figures(200, [&] { return fork_join(pool, threads, 1000); }));
  print("barrier", threads, figures(200, [&] { return barrier(pool, threads, 1000); }));
  print("waking a sleeper", threads, figures(60, [&] { return wake(pool, threads); }));
  print("50 steps, 1 thread", 1, figures(2000, [&] { return model_run(pool, 1, 50, 20000); }));
  print("50 steps", threads, figures(2000, [&] { return model_run(pool, threads, 50, 10000); }));
  // A third runnable thread: the load gate of spinning barriers.
  std::atomic<bool> done = false;
  std::vector<std::thread> load;
  const int loads = count > 2 ? std::atoi(arguments[2]) : 1;
  for (int i = 0; i < loads; ++i)
    load.emplace_back([&] {
      while (!done.load(std::memory_order_relaxed)) {
      }
    });
  print("50 steps, 1 thread, loaded", 1,
        figures(2000, [&] { return model_run(pool, 1, 50, 20000); }));
  print("50 steps, loaded", threads,
        figures(2000, [&] { return model_run(pool, threads, 50, 10000); }));
  done = true;
  for (std::thread& thread : load) thread.join();
  return 0;
}
