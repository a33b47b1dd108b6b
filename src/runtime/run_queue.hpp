// Runs that wait for their turn on a thread of their own.
#pragma once

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

  explicit RunQueue(Run run);
  ~RunQueue();  ///< waits for the run in flight; drops the others
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;

  void push(Inputs inputs);
  /// Runs that were pushed since the last drain.
  std::size_t pending() const;
  /// Waits; the outputs of all runs, or the first failure.
  Result<std::vector<Outputs>> drain();
  /// Forgets what did not begin yet: drain then tells the failure.
  void drop(Error failure);

 private:
  void work();

  const Run run_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Inputs> waiting_;
  std::vector<Outputs> done_;
  std::optional<Error> failure_;
  std::size_t pushed_ = 0;
  bool is_running_ = false, is_over_ = false;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace rlx
