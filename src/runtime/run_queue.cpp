// The queue of runs, and the calls that use it.
#include "runtime/run_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/error_in_flight.hpp"
#include "runtime/compiled_graph.hpp"

namespace rlx {
namespace {

Error was_cancelled(std::size_t run) {
  return run_was_cancelled().while_(fmt::format("running queued run ({})", run));
}

}  // namespace

RunQueue::RunQueue(Run run, std::shared_ptr<std::atomic<bool>> cancel_flag)
    : run_(std::move(run)), cancel_flag_(std::move(cancel_flag)), thread_([this] { work(); }) {}

RunQueue::~RunQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    cancel_flag_->store(true, std::memory_order_relaxed);
    waiting_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void RunQueue::push(Inputs inputs) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) waiting_.push_back(std::move(inputs));
    ++pushed_;
  }
  changed_.notify_all();
}

Result<std::vector<Outputs>> RunQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !is_running_; });
  pushed_ = 0;
  std::vector<Outputs> done = std::move(done_);
  done_.clear();
  if (!failure_) return done;
  Error failure = *std::move(failure_);
  failure_.reset();
  return failure;
}

void RunQueue::cancel() {
  const std::lock_guard lock(mutex_);
  if (is_running_) cancel_flag_->store(true, std::memory_order_relaxed);
  if (waiting_.empty()) return;
  waiting_.clear();
  if (is_running_) {
    is_cut_ = true;  // the run in flight tells, with its index or that of the next
  } else if (!failure_) {
    failure_ = was_cancelled(done_.size());
  }
}

void RunQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
    if (is_over_) return;
    Inputs inputs = std::move(waiting_.front());
    waiting_.pop_front();
    is_running_ = true;
    cancel_flag_->store(false, std::memory_order_relaxed);
    lock.unlock();
    Result<Outputs> outputs = run_(inputs);
    inputs.clear();
    lock.lock();
    is_running_ = false;
    try {
      note(std::move(outputs));
    } catch (...) {
      failure_ = error_in_flight();
    }
    if (failure_) waiting_.clear();
    changed_.notify_all();
  }
}

void RunQueue::note(Result<Outputs> outputs) {
  const bool is_cut = std::exchange(is_cut_, false);
  if (failure_) return;
  if (!outputs.ok()) {
    failure_ =
        std::move(outputs.error()).while_(fmt::format("running queued run ({})", done_.size()));
    return;
  }
  done_.push_back(*std::move(outputs));
  // It ended before it saw the flag, but others were dropped.
  if (is_cut) failure_ = was_cancelled(done_.size());
}

// ---- the calls --------------------------------------------------------------------------------

namespace {

std::vector<NamedInput> named(const RunQueue::Inputs& inputs) {
  std::vector<NamedInput> list;
  for (const auto& [name, tensor] : inputs) list.emplace_back(name, tensor);
  return list;
}

}  // namespace

Status CompiledGraph::Impl::check_idle() const {
  const std::size_t pending = queue ? queue->pending() : 0;
  if (pending == 0) return {};
  return error(ErrorKind::usage, "There are queued runs ({}): call sync_pending first.", pending);
}

Status CompiledGraph::Impl::begin_run() {
  RLX_TRY(check_idle());
  cancel_flag->store(false, std::memory_order_relaxed);
  return {};
}

/// For threads that no exception may leave.
Result<Outputs> CompiledGraph::Impl::run_guarded(std::span<const NamedInput> inputs) {
  try {
    return run(inputs, false);
  } catch (...) {
    return error_in_flight();
  }
}

Status CompiledGraph::commit_no_wait(std::span<const NamedInput> inputs) try {
  RunQueue::Inputs copies;
  for (const NamedInput& input : inputs) {
    if (input.view) {
      Tensor copy(input.view->dtype, Dims(input.view->dims.begin(), input.view->dims.end()));
      std::memcpy(copy.mutable_data(), input.view->data, copy.bytes());
      copies.emplace_back(input.name, std::move(copy));
      continue;
    }
    // A plain span takes the dims of the program's input where its count fits.
    Dims dims{static_cast<std::int64_t>(input.values.size())};
    DType dtype = f32;
    for (const IoInfo& info : impl_->inputs) {
      const bool bound = std::ranges::all_of(info.dims, [](std::int64_t dim) { return dim >= 0; });
      if (info.name == input.name && bound && element_count(info.dims) == dims[0]) {
        dims = info.dims;
        dtype = info.dtype;
      }
    }
    if (dtype != f32)
      return bad_input("The input ({}) is {}: a queued run takes tensors of that dtype.",
                       input.name, name_of(dtype));
    copies.emplace_back(input.name, Tensor::of<float>(std::move(dims), input.values));
  }
  if (!impl_->queue) {
    impl_->queue = std::make_unique<RunQueue>(
        [impl = impl_.get()](const RunQueue::Inputs& queued) -> Result<Outputs> {
          try {
            return impl->run(named(queued), false);
          } catch (...) {
            return error_in_flight();
          }
        },
        impl_->cancel_flag);
    impl_->seen_queue.store(impl_->queue.get(), std::memory_order_release);
  }
  impl_->queue->push(std::move(copies));
  return {};
} catch (...) {
  return error_in_flight();
}

Result<std::vector<Outputs>> CompiledGraph::sync_pending() try {
  if (!impl_->queue) return std::vector<Outputs>();
  return impl_->queue->drain();
} catch (...) {
  return error_in_flight();
}

void CompiledGraph::cancel() {
  if (RunQueue* const queue = impl_->seen_queue.load(std::memory_order_acquire)) queue->cancel();
  impl_->cancel_flag->store(true, std::memory_order_relaxed);
}

Result<std::vector<Outputs>> CompiledGraph::run_pipelined(
    std::span<const std::vector<NamedInput>> input_sets) try {
  Impl& impl = *impl_;
  RLX_TRY(impl.begin_run());
  const bool is_stateful =
      !impl.handles.empty() || !impl.bound || !impl.bound->executable->plan().states.empty();
  const std::size_t lanes =
      is_stateful ? 1 : std::min<std::size_t>(impl.backend->lanes(), input_sets.size());
  while (impl.companions.size() + 1 < lanes) {
    RLX_ASSIGN(auto companion, impl.clone());
    companion->cancel_flag = impl.cancel_flag;
    companion->bound->executable->end_runs_when(impl.cancel_flag);
    impl.companions.push_back(std::move(companion));
  }
  std::vector<std::optional<Result<Outputs>>> results(input_sets.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  impl.backend->run_lanes(static_cast<int>(lanes), [&](int lane) {
    Impl& own = lane == 0 ? impl : *impl.companions[static_cast<std::size_t>(lane) - 1];
    for (std::size_t i = next++; i < input_sets.size() && !failed; i = next++) {
      results[i] = own.run_guarded(input_sets[i]);
      if (!results[i]->ok()) failed = true;
    }
  });
  std::vector<Outputs> outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;  // behind a failure
    if (!results[i]->ok())
      return std::move(results[i]->error()).while_(fmt::format("running input set ({})", i));
    outputs.push_back(**std::move(results[i]));
  }
  return outputs;
} catch (...) {
  return error_in_flight();
}

}  // namespace rlx
