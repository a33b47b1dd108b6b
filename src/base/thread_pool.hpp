// The one thread pool: teams of spinning workers that run a program's steps with barriers between
// them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/sitting_out.hpp"

namespace rlx {

namespace pool_detail {

/// Two cache lines: processors fetch them in pairs.
constexpr int line_bytes = 128;
constexpr int threads_limit = 128;
constexpr int rounds_limit = 7;  ///< 2^7 = threads_limit

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

/// Where one member of a team waits at barriers: one flag for each round. Flags only grow, over all
/// teams, so that no team has to clear them.
struct alignas(line_bytes) BarrierLine {
  std::atomic<std::uint64_t> flags[rounds_limit] = {};
};

/// Waits politely: spins, and yields the processor now and then once the wait is long, so that a
/// thread that could end the wait, or another process, gets to run.
class Backoff {
 public:
  /// A wait that lasts longer than that goes on in naps.
  explicit Backoff(std::chrono::nanoseconds nap_after = std::chrono::milliseconds(3))
      : nap_after_(nap_after) {}
  /// True where others could have the core meanwhile.
  bool pause();
  /// Since the first yield; 0 before it.
  std::chrono::nanoseconds waited() const;
  std::chrono::nanoseconds napped() const { return napped_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds nap_after_;
  int spins_ = 0;
  std::chrono::nanoseconds napped_{};
  Clock::time_point long_since_{};
};

/// A thread's turn on a core that others want, too. The system takes the core away after some
/// milliseconds, wherever the thread then is; a thread that gives way before that does so where it
/// holds nothing that others wait for.
class Turn {
 public:
  using Time = std::chrono::nanoseconds;
  Turn() = default;
  explicit Turn(Time began) : began_(began) {}
  Time began() const { return began_; }
  void begin();
  bool is_over() const;
  /// How long others had the core.
  Time give_way();

 private:
  Time began_{};  ///< on the steady clock
};

}  // namespace pool_detail

/// One worker's view of its team.
class Team {
 public:
  /// Members, the caller included; the same for all members. At most what was asked for.
  int size() const { return size_; }

  /// Returns when all members have called it. What they wrote before it is visible to all after it.
  void barrier();

 private:
  friend class ThreadPool;
  Team(int worker, int size, pool_detail::BarrierLine* const* lines, std::uint64_t epoch)
      : worker_(worker), size_(size), lines_(lines), epoch_(epoch) {}

  const int worker_, size_;
  pool_detail::BarrierLine* const* const lines_;  ///< of each member
  std::uint64_t epoch_;
  std::chrono::nanoseconds napped_{};
};

class ThreadPool;

/// One member's view of a team for a machine with more to do than cores: it has no barriers, and
/// its helpers come and go. Members share work out piece by piece, and wait for pieces that are not
/// done, never for each other.
class LooseTeam {
 public:
  /// After each piece: true where a helper shall return from its body, because others wait for its
  /// core. The caller lets them have it at once, and gets false.
  bool gives_way();
  /// While pieces are waited for: pauses for about a microsecond. True as from gives_way.
  bool waits();
  /// By the caller, now and then: gets helpers that are free (again). Nothing on a helper.
  void call_helpers();

 private:
  friend class ThreadPool;
  struct Calls;
  LooseTeam(pool_detail::Turn& turn, Calls* calls) : turn_(turn), calls_(calls) {}

  pool_detail::Turn& turn_;
  Calls* const calls_;  ///< the caller's
};

/// Threads that wait for teams. Any thread may call it, also several at once and also from inside a
/// team: a team gets those workers that are free at that moment, so it may be smaller than asked
/// for, down to the caller alone. Results must therefore not depend on a team's size. Pools share
/// the cores: what teams of others keep busy a team does not get.
///
/// Where the pool has a thread for every core that the process may use, its workers are pinned to
/// distinct cores, and a worker that finds itself on the caller's core is moved. With cores to
/// spare the system places the threads. A worker whose core others want, too, sits out: teams are
/// smaller for a while, and is_crowded() advises a loose team, in which that worker helps.
class ThreadPool {
 public:
  /// `threads` counts the calling thread: threads - 1 are started. Where the system refuses some
  /// the pool is smaller. A worker waits for `idle_spin` before it sleeps; waking it costs 55 us or
  /// more. Where `patient` no worker sits out.
  explicit ThreadPool(int threads,
                      std::chrono::microseconds idle_spin = std::chrono::milliseconds(3),
                      bool patient = false);
  ~ThreadPool();  ///< no team may be running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The largest team, the caller included.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs body(worker, team) on up to `threads` threads and returns when all have ended; the caller
  /// is worker 0. Takes no lock and allocates nothing. The body must not throw; a small one may be
  /// copied.
  template <class Body>
  void run_team(int threads, Body&& body);

  /// Whether a worker sits out now.
  bool is_crowded() const;
  /// Has all workers sit out for so long: what else the machine does is known, or is to be tested.
  void assume_crowded(std::chrono::nanoseconds time);

  /// Runs body(worker, loose team) on the caller, which is worker 0 and must be able to do all work
  /// alone, and on helpers, workers 1 to threads - 1, as often as they come and go; returns when
  /// the caller's body has ended and no helper is inside. Allocates nothing; the body must not
  /// throw.
  template <class Body>
  void run_loosely(int threads, Body&& body);

  /// Calls function(begin, end) for pieces of [0, items) of about `grain` items, on all threads
  /// that are free meanwhile; nobody waits for one that has begun nothing. The first exception ends
  /// the hand-out of further pieces and is thrown again here.
  template <class Function>
  void parallel_for(std::int64_t items, std::int64_t grain, Function&& function);

 private:
  friend class LooseTeam;
  using Invoke = void (*)(void* body, int worker, void* team);

  /// What a worker runs. A small body travels in it, which saves the worker a cache line.
  struct Job {
    Invoke invoke;
    pool_detail::BarrierLine* const* lines;
    std::uint64_t epoch;
    std::uint16_t index, size;
    bool is_inline, is_loose;
    alignas(8) unsigned char payload[24];  ///< the body, or its address
    void* body() {
      if (is_inline) return payload;
      void* address;
      std::memcpy(&address, payload, sizeof(address));
      return address;
    }
  };

  /// One thread and its mailbox.
  struct alignas(pool_detail::line_bytes) Worker {
    /// A count of claims times 4, plus the phase. The phases follow each other: idle (or asleep),
    /// claimed, running, idle.
    std::atomic<std::uint32_t> state = 0;
    Job job;
    pool_detail::BarrierLine line;         ///< of the worker
    pool_detail::BarrierLine leader_line;  ///< of a caller whose first helper the worker is
    std::atomic<int> cpu = -1;             ///< pinned to; -1: not pinned
    /// Of a loose job: the state of its claim, and in the low bits whether it was taken or revoked.
    std::atomic<std::uint64_t> offer = 0;
    std::atomic<std::int64_t> leader_turn = 0;  ///< when that of a loose team's caller began
    pool_detail::SittingOut sitting_out;
    std::atomic<int> leader_skip = 0;  ///< jobs of callers that are not looked at
    std::thread thread;
  };

  struct Claim {
    Worker* worker;
    std::uint32_t running_state;
    bool was_asleep;
  };

  template <class View, class Body>
  static Job job_of(Body& body);
  void start(const std::vector<int>& cpus);
  void work(Worker& worker);
  static void end_job(Worker& worker, std::uint32_t state);
  static void help(Worker& worker, std::uint32_t state, pool_detail::Turn& turn);
  std::uint32_t wait_for_job(Worker& worker, pool_detail::Turn& turn) const;
  /// Also those that sit out where `all` is set.
  int claim(int wanted, Claim* claims, bool all = false);
  void keep_off_the_callers_core(Claim* claims, int count);
  static void post(const Claim& claim);
  /// How long it napped.
  static std::chrono::nanoseconds wait_for_end(const Claim& claim);
  void run_job(int threads, Job& job, void* body);
  void run_loose_job(int threads, Job& job, void* body);

  std::vector<std::unique_ptr<Worker>> workers_;
  /// The lines of a team whose helpers are the first workers, which is the usual one.
  std::vector<pool_detail::BarrierLine*> usual_lines_;
  alignas(pool_detail::line_bytes) std::atomic<std::uint64_t> next_team_ = 1;
  int cores_ = 1;          ///< that the process may use
  std::vector<int> cpus_;  ///< to pin to; empty: no pinning
  const std::chrono::microseconds idle_spin_;
  const bool patient_;
};

template <class View, class Body>
ThreadPool::Job ThreadPool::job_of(Body& body) {
  Job job;
  job.invoke = [](void* address, int worker, void* view) {
    (*static_cast<Body*>(address))(worker, *static_cast<View*>(view));
  };
  job.is_loose = std::is_same_v<View, LooseTeam>;
  void* const address = const_cast<void*>(static_cast<const void*>(std::addressof(body)));
  job.is_inline = std::is_trivially_copyable_v<Body> && sizeof(Body) <= sizeof(job.payload) &&
                  alignof(Body) <= 8 && std::is_invocable_v<const Body&, int, View&>;
  if (job.is_inline) {
    std::memcpy(job.payload, address, sizeof(Body) <= sizeof(job.payload) ? sizeof(Body) : 0);
  } else {
    std::memcpy(job.payload, &address, sizeof(address));
  }
  return job;
}

template <class Body>
void ThreadPool::run_team(int threads, Body&& body) {
  Job job = job_of<Team>(body);
  run_job(threads, job, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

template <class Body>
void ThreadPool::run_loosely(int threads, Body&& body) {
  Job job = job_of<LooseTeam>(body);
  run_loose_job(threads, job, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

template <class Function>
void ThreadPool::parallel_for(std::int64_t items, std::int64_t grain, Function&& function) {
  grain = grain < 1 ? 1 : grain;
  if (items <= 0) return;
  const std::int64_t pieces = (items - 1) / grain + 1;
  std::atomic<std::int64_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr failure;
  run_loosely(static_cast<int>(pieces < threads() ? pieces : threads()), [&](int, LooseTeam& team) {
    while (true) {
      team.call_helpers();
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= items || failed.load(std::memory_order_relaxed)) return;
      try {
        function(begin, items - begin < grain ? items : begin + grain);
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace rlx
