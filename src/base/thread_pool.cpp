// The pool's protocol: a caller claims free workers, posts a job into their mailboxes, works
// itself, and waits for their ends.
#include "base/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <exception>

#include "base/cpu_set.hpp"

namespace rlx {
namespace {

/// Phases of a worker, in the two low bits of its state; the others count claims, so that a caller
/// that waits for the end of its job cannot mistake a later job for it.
enum Phase : std::uint32_t { idle = 0, asleep = 1, claimed = 2, running = 3 };
constexpr std::uint32_t phase_mask = 3, claim_step = 4;

/// A job that ends the thread.
constexpr std::uint16_t stop_index = 0;

/// Pauses before the first yield (some tens of microseconds), and between yields after it.
constexpr int spins_before_yield = 1024, spins_between_yields = 128;

/// So that no sum of times overflows.
constexpr std::chrono::microseconds longest_spin = std::chrono::hours(24);

constexpr long nap_ns = 50'000;

void pin(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A refusal leaves the thread where the system puts it.
  (void)pthread_setaffinity_np(thread, sizeof(set), &set);
}

using pool_detail::cpu_pause;
using Clock = std::chrono::steady_clock;
using Time = pool_detail::SittingOut::Time;

Time time_now() { return Clock::now().time_since_epoch(); }

/// How long this thread has had a core.
Time time_ran() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Time(time.tv_nsec);
}

/// Watches jobs of the calling thread. Clocks are too dear for the shortest jobs: one job in some
/// is timed, and after a long one the system is asked how long the thread ran in the next.
class Watch {
 public:
  /// `skip`: jobs still to be left out; negative: look closely.
  explicit Watch(std::atomic<int>& skip) : skip_(skip), before_(skip.load(relaxed)) {
    if (before_ > 0) {
      skip.store(before_ - 1, relaxed);
      return;
    }
    start_ = time_now();
    if (before_ < 0) ran_ = time_ran();
  }
  /// At the job's end, of which so much was spent in naps.
  void end(Time napped, pool_detail::SittingOut& sitting_out) const {
    if (before_ > 0) return;
    const Time now = time_now(), wall = now - start_;
    if (before_ < 0) sitting_out.note(now, wall - napped, time_ran() - ran_);
    skip_.store(wall > pool_detail::SittingOut::long_job ? -1 : jobs_between_looks, relaxed);
  }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  static constexpr int jobs_between_looks = 15;

  std::atomic<int>& skip_;
  const int before_;
  Time start_{}, ran_{};
};

}  // namespace

namespace pool_detail {

bool Backoff::pause() {
  cpu_pause();
  if (++spins_ < spins_before_yield) return false;
  if (long_since_ == Clock::time_point{}) long_since_ = Clock::now();
  spins_ = spins_before_yield - spins_between_yields;
  if (waited() < nap_after_) {
    sched_yield();
  } else {
    // Whoever is waited for works for long: a nap is short beside that, and leaves the core free.
    const timespec nap{0, nap_ns};
    const Clock::time_point start = Clock::now();
    nanosleep(&nap, nullptr);
    napped_ += Clock::now() - start;
  }
  return true;
}

std::chrono::nanoseconds Backoff::waited() const {
  if (long_since_ == Clock::time_point{}) return {};
  return Clock::now() - long_since_;
}

}  // namespace pool_detail

using pool_detail::Backoff;
using pool_detail::BarrierLine;

namespace {

/// Until the flag is there; how long was spent in naps.
Time wait_long(const std::atomic<std::uint64_t>& flag, std::uint64_t epoch) {
  Backoff backoff;
  while (flag.load(std::memory_order_acquire) < epoch) backoff.pause();
  return backoff.napped();
}

}  // namespace

// The dissemination barrier (Hensgen, Finkel and Manber 1988): in round r a member tells the one
// 2^r places on that it has come, and waits to be told by the one 2^r places before. For two
// members that is one message each way.
void Team::barrier() {
  ++epoch_;
  for (int round = 0, distance = 1; distance < size_; ++round, distance *= 2) {
    const int partner =
        worker_ + distance < size_ ? worker_ + distance : worker_ + distance - size_;
    lines_[partner]->flags[round].store(epoch_, std::memory_order_release);
    const std::atomic<std::uint64_t>& own = lines_[worker_]->flags[round];
    int spins = 0;
    while (own.load(std::memory_order_acquire) < epoch_) {
      cpu_pause();
      if (++spins == spins_before_yield) napped_ += wait_long(own, epoch_);
    }
  }
}

ThreadPool::ThreadPool(int threads, std::chrono::microseconds idle_spin, bool patient)
    : idle_spin_(std::clamp(idle_spin, {}, longest_spin)), patient_(patient) {
  threads = std::clamp(threads, 1, pool_detail::threads_limit);
  const CpuSet allowed = allowed_cpus();
  const int cpus = static_cast<int>(allowed.cpus.size());
  cores_ = allowed.cores;
  const bool fills_node = threads == allowed.node_cores;
  if (threads > 1 && threads <= cpus && (fills_node || threads >= allowed.cores)) {
    cpus_ = allowed.cpus;
    if (fills_node || threads == allowed.cores) cpus_.resize(static_cast<std::size_t>(threads));
  }
  usual_lines_.reserve(static_cast<std::size_t>(threads));
  for (int i = 1; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
  // Not the core of the thread that makes the pool: it most likely is the one that will run
  // programs.
  std::vector<int> free = cpus_;
  std::erase(free, sched_getcpu());
  start(free);
  if (!workers_.empty()) usual_lines_.push_back(&workers_[0]->leader_line);
  for (const auto& worker : workers_) usual_lines_.push_back(&worker->line);
}

void ThreadPool::start(const std::vector<int>& cpus) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    try {
      worker.thread = std::thread([this, &worker] { work(worker); });
    } catch (const std::exception&) {
      workers_.resize(i);
      return;
    }
    if (i < cpus.size()) {
      pin(worker.thread.native_handle(), cpus[i]);
      worker.cpu.store(cpus[i], std::memory_order_relaxed);
    }
  }
}

ThreadPool::~ThreadPool() {
  Claim claims[pool_detail::threads_limit];
  const int count = static_cast<int>(workers_.size());
  // One whose loose job was revoked may still have to find that out.
  Backoff backoff;
  for (int claimed = 0; claimed < count;) {
    claimed += claim(count - claimed, claims + claimed, true);
    if (claimed < count) backoff.pause();
  }
  for (int i = 0; i < count; ++i) {
    claims[i].worker->job.index = stop_index;
    post(claims[i]);
  }
  for (const auto& worker : workers_) worker->thread.join();
}

std::uint32_t ThreadPool::wait_for_job(Worker& worker, pool_detail::Turn& turn) const {
  Backoff backoff(idle_spin_);
  while (true) {
    std::uint32_t state = worker.state.load(std::memory_order_acquire);
    if ((state & phase_mask) == running) return state;
    if ((state & phase_mask) == idle && backoff.waited() > idle_spin_) {
      if (worker.state.compare_exchange_strong(state, (state & ~phase_mask) | asleep)) {
        worker.state.wait((state & ~phase_mask) | asleep);
        backoff = Backoff(idle_spin_);
        turn.begin();
      }
      continue;
    }
    if (backoff.pause()) turn.begin();
  }
}

void ThreadPool::work(Worker& worker) {
  std::atomic<int> skip = 0;
  pool_detail::Turn turn;
  while (true) {
    const std::uint32_t state = wait_for_job(worker, turn);
    Job& job = worker.job;
    if (job.index == stop_index) return;
    if (job.is_loose) {
      help(worker, state, turn);
      continue;
    }
    Team team(job.index, job.size, job.lines, job.epoch);
    const Watch watch(skip);
    job.invoke(job.body(), job.index, &team);
    end_job(worker, state);
    watch.end(team.napped_, worker.sitting_out);
  }
}

// From here on the caller may return: nothing of its own is touched any more.
void ThreadPool::end_job(Worker& worker, std::uint32_t state) {
  worker.state.store((state & ~phase_mask) | idle, std::memory_order_release);
}

int ThreadPool::claim(int wanted, Claim* claims, bool all) {
  int count = 0;
  for (const auto& worker : workers_) {
    if (count >= wanted) break;
    if (!all && !patient_ && !worker->sitting_out.is_fresh() &&
        worker->sitting_out.is_out(time_now()))
      continue;
    std::uint32_t state = worker->state.load(std::memory_order_relaxed);
    while ((state & phase_mask) == idle || (state & phase_mask) == asleep) {
      const std::uint32_t ticket = (state & ~phase_mask) + claim_step;
      const bool was_asleep = (state & phase_mask) == asleep;
      if (worker->state.compare_exchange_weak(state, ticket | claimed, std::memory_order_acquire)) {
        claims[count++] = {worker.get(), ticket | running, was_asleep};
        break;
      }
    }
  }
  return count;
}

void ThreadPool::post(const Claim& claim) {
  claim.worker->state.store(claim.running_state, std::memory_order_release);
  if (claim.was_asleep) claim.worker->state.notify_one();
}

Time ThreadPool::wait_for_end(const Claim& claim) {
  Backoff backoff;
  while (claim.worker->state.load(std::memory_order_acquire) == claim.running_state) {
    backoff.pause();
  }
  return backoff.napped();
}

void ThreadPool::keep_off_the_callers_core(Claim* claims, int count) {
  if (cpus_.empty()) return;
  const int cpu = sched_getcpu();
  for (int i = 0; i < count; ++i) {
    if (claims[i].worker->cpu.load(std::memory_order_relaxed) != cpu) continue;
    for (const int candidate : cpus_) {
      const auto has_it = [&](const auto& worker) {
        return worker->cpu.load(std::memory_order_relaxed) == candidate;
      };
      if (candidate == cpu || std::ranges::any_of(workers_, has_it)) continue;
      pin(claims[i].worker->thread.native_handle(), candidate);
      claims[i].worker->cpu.store(candidate, std::memory_order_relaxed);
      break;
    }
  }
}

namespace {

/// Threads inside of teams, of all pools of the process.
alignas(pool_detail::line_bytes) std::atomic<int> threads_at_work = 0;

/// Counts threads for as long as they are at work.
class AtWork {
 public:
  AtWork() : others_(threads_at_work.fetch_add(1, std::memory_order_relaxed)) {}
  ~AtWork() { threads_at_work.fetch_sub(count_, std::memory_order_relaxed); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  /// Those that were before the caller.
  int others() const { return others_; }
  void add(int helpers) {
    threads_at_work.fetch_add(helpers, std::memory_order_relaxed);
    count_ += helpers;
  }

 private:
  const int others_;
  int count_ = 1;
};

}  // namespace

void ThreadPool::run_job(int threads, Job& job, void* body) {
  Claim claims[pool_detail::threads_limit];
  // Teams of several pools share the cores.
  AtWork at_work;
  const int left = std::max(cores_, this->threads()) - at_work.others();
  const int helpers = claim(std::min({threads, this->threads(), left}) - 1, claims);
  if (helpers <= 0) {
    Team alone(0, 1, nullptr, 0);
    job.invoke(body, 0, &alone);
    return;
  }
  at_work.add(helpers);
  keep_off_the_callers_core(claims, helpers);
  job.size = static_cast<std::uint16_t>(helpers + 1);
  // A team's epochs start above those of every team before: barriers need no clearing.
  job.epoch = next_team_.fetch_add(1, std::memory_order_relaxed) << 32;
  BarrierLine* own_lines[pool_detail::threads_limit];
  job.lines = usual_lines_.data();
  if (claims[helpers - 1].worker != workers_[helpers - 1].get()) {
    own_lines[0] = &claims[0].worker->leader_line;
    for (int i = 0; i < helpers; ++i) own_lines[i + 1] = &claims[i].worker->line;
    job.lines = own_lines;
  }
  for (int i = 0; i < helpers; ++i) {
    job.index = static_cast<std::uint16_t>(i + 1);
    claims[i].worker->job = job;
    post(claims[i]);
  }
  Team team(0, job.size, job.lines, job.epoch);
  Worker& last = *claims[helpers - 1].worker;
  const Watch watch(last.leader_skip);
  job.invoke(body, 0, &team);
  Time napped = team.napped_;
  for (int i = 0; i < helpers; ++i) napped += wait_for_end(claims[i]);
  // A caller that shares its core with others can have that of a worker.
  watch.end(napped, last.sitting_out);
}

}  // namespace rlx
