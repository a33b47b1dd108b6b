// Teams for a machine with more to do than cores: helpers come and go, and nobody waits for one
// that has lost its core.
#include <sched.h>

#include <algorithm>

#include "base/thread_pool.hpp"

namespace rlx {
namespace {

using Time = pool_detail::Turn::Time;

/// Shorter than what the system takes the core away after: 4 ms where it looks 250 times a second.
constexpr Time longest_turn = std::chrono::milliseconds(2);
/// Others had the core, and it was no interrupt.
constexpr Time wanted_by_others = std::chrono::microseconds(500);

constexpr int pauses_between_looks = 32;

/// The low bits of an offer, which hold what became of a loose job; the others are the claim's.
enum Offer : std::uint64_t { open = 1, taken = 2, revoked = 3 };

std::uint64_t offer_of(std::uint32_t running_state, Offer offer) {
  return (std::uint64_t{running_state} << 2) | offer;
}

Time time_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

namespace pool_detail {

void Turn::begin() { began_ = time_now(); }

bool Turn::is_over() const { return time_now() - began_ > longest_turn; }

Time Turn::give_way() {
  const Time before = time_now();
  sched_yield();
  begin();
  return began_ - before;
}

}  // namespace pool_detail

/// On the caller's stack.
struct LooseTeam::Calls {
  ThreadPool& pool;
  ThreadPool::Job& job;
  int count = 0;  ///< of the helpers that there may be
  bool posted[pool_detail::threads_limit] = {};
  ThreadPool::Claim claims[pool_detail::threads_limit];  ///< valid where posted
};

bool LooseTeam::gives_way() {
  if (!turn_.is_over()) return false;
  if (calls_ == nullptr) return true;
  const Time away = turn_.give_way();
  if (away > wanted_by_others && calls_->count > 0)
    calls_->pool.workers_[0]->sitting_out.note_crowd(turn_.began());
  return false;
}

bool LooseTeam::waits() {
  for (int i = 0; i < pauses_between_looks; ++i) pool_detail::cpu_pause();
  return gives_way();
}

void LooseTeam::call_helpers() {
  if (calls_ == nullptr) return;
  ThreadPool& pool = calls_->pool;
  for (int i = 0; i < calls_->count; ++i) {
    ThreadPool::Claim& claim = calls_->claims[i];
    if (calls_->posted[i]) {
      if (claim.worker->state.load(std::memory_order_acquire) == claim.running_state) continue;
      calls_->posted[i] = false;
    }
    if (pool.claim(1, &claim, true) == 0) return;
    pool.keep_off_the_callers_core(&claim, 1);
    calls_->job.index = static_cast<std::uint16_t>(i + 1);
    claim.worker->job = calls_->job;
    claim.worker->offer.store(offer_of(claim.running_state, open), std::memory_order_relaxed);
    ThreadPool::post(claim);
    calls_->posted[i] = true;
  }
}

bool ThreadPool::is_crowded() const {
  return !patient_ && std::ranges::any_of(workers_, [&](const auto& worker) {
    return !worker->sitting_out.is_fresh() && worker->sitting_out.is_out(time_now());
  });
}

void ThreadPool::assume_crowded(std::chrono::nanoseconds time) {
  for (const auto& worker : workers_) worker->sitting_out.stay_out(time_now() + time);
}

// The offer may have been revoked before the worker had a core to see it: then the caller's body
// is gone.
void ThreadPool::help(Worker& worker, std::uint32_t state, pool_detail::Turn& turn) {
  std::uint64_t offer = offer_of(state, open);
  if (worker.offer.compare_exchange_strong(offer, offer_of(state, taken),
                                           std::memory_order_acq_rel)) {
    LooseTeam team(turn, nullptr);
    worker.job.invoke(worker.job.body(), worker.job.index, &team);
  }
  end_job(worker, state);
  if (turn.is_over() && turn.give_way() > wanted_by_others)
    worker.sitting_out.note_crowd(turn.began());
}

void ThreadPool::run_loose_job(int threads, Job& job, void* body) {
  LooseTeam::Calls calls{.pool = *this, .job = job};
  calls.count = std::clamp(threads, 1, this->threads()) - 1;
  pool_detail::Turn turn;
  if (calls.count > 0) turn = pool_detail::Turn(Time(workers_[0]->leader_turn));
  LooseTeam team(turn, &calls);
  job.invoke(body, 0, &team);
  for (int i = 0; i < calls.count; ++i) {
    if (!calls.posted[i]) continue;
    const Claim& claim = calls.claims[i];
    std::uint64_t offer = offer_of(claim.running_state, open);
    if (!claim.worker->offer.compare_exchange_strong(offer, offer_of(claim.running_state, revoked),
                                                     std::memory_order_acq_rel)) {
      wait_for_end(claim);
    }
  }
  if (calls.count > 0) workers_[0]->leader_turn = turn.began().count();
}

}  // namespace rlx
