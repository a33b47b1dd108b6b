// Runs that wait for their turn on a thread of their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "rlx/runtime.hpp"

namespace rlx {

/// One thread that runs what is queued, in order. After a failure what is queued is dropped until
/// the failure was told.
class RunQueue {
 public:
  using Inputs = std::vector<std::pair<std::string, Tensor>>;
  using Run = std::function<Result<Outputs>(const Inputs&)>;

  /// `cancel_flag` is cleared where a run begins.
  RunQueue(Run run, std::shared_ptr<std::atomic<bool>> cancel_flag);
  ~RunQueue();  ///< ends the run in flight; drops the others
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;

  void push(Inputs inputs);
  /// Runs that were pushed since the last drain. Takes no lock.
  std::size_t pending() const { return pushed_.load(std::memory_order_acquire); }
  /// Waits; the outputs of all runs, or the first failure.
  Result<std::vector<Outputs>> drain();
  /// Ends the run in flight by the flag, and forgets what did not begin yet: drain then tells the
  /// failure, if there was anything to end.
  void cancel();

 private:
  void work();
  void note(Result<Outputs> outputs);

  const Run run_;
  const std::shared_ptr<std::atomic<bool>> cancel_flag_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Inputs> waiting_;
  std::vector<Outputs> done_;
  std::optional<Error> failure_;
  std::atomic<std::size_t> pushed_ = 0;
  bool is_running_ = false, is_over_ = false;
  bool is_cut_ = false;  ///< runs behind the one in flight were dropped
  std::thread thread_;   ///< last: it uses all of the above
};

}  // namespace rlx
